"""Views with one fault each, which the laws of the context wrappers must detect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

import agentgym.wrappers.context
import agentgym.wrappers.view
from agentgym import Chat, Message
from agentgym.wrappers.view import ContextView

Edits = Mapping[str, Message | None]
Changes = list[tuple[Message, Message | None]]


class PinnedMayGo(ContextView):
    def apply(self, strategy: str, edits: Edits, *args: Any, **kwargs: Any) -> int:
        pinned, self._pinned = self._pinned, set()
        try:
            return super().apply(strategy, edits, *args, **kwargs)
        finally:
            self._pinned = pinned


class NotSticky(ContextView):
    def apply(self, strategy: str, edits: Edits, *args: Any, **kwargs: Any) -> int:
        before = dict(self.overlay)
        gained = super().apply(strategy, edits, *args, **kwargs)
        self.overlay = before
        return gained


class Gain(int):
    def __lt__(self, other: int) -> bool:
        return int(self) == 0


class Generous(int):
    def __sub__(self, other: int) -> Gain:
        return Gain(int(self) - int(other))


class EditsMayGrow(ContextView):
    def count(self, messages: Iterable[Message]) -> int:
        return Generous(super().count(messages))


class ByPosition(ContextView):
    log: tuple[Message, ...] = ()

    def update(self, chat: Chat) -> None:
        self.log = tuple(chat.messages)
        super().update(chat)

    def apply(self, strategy: str, edits: Edits, *args: Any, **kwargs: Any) -> int:
        place = {message.id: k for k, message in enumerate(self.chat.messages)}
        edits = {self.log[min(place[i], len(self.log) - 1)].id: new for i, new in edits.items()}
        return super().apply(strategy, edits, *args, **kwargs)


class Unbooked(int):
    def __radd__(self, other: int) -> int:
        return other


class RemovalsNotBooked(ContextView):
    def count(self, messages: Iterable[Message]) -> int:
        return Unbooked(super().count(messages))


class NewestStays(ContextView):
    newest_before: Message | None = None

    def update(self, chat: Chat) -> None:
        *older, newest = chat.messages
        stays = [self.newest_before] if self.newest_before in older else []
        self.newest_before = newest
        super().update(Chat((*older, *stays, newest), chat.tools))


def no_pair_guard(shown: Sequence[Message], edits: Edits) -> Changes:
    return [(message, edits.get(message.id, message)) for message in shown]


def newest_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_turns: Callable[[Sequence[Message], Edits], Changes] = agentgym.wrappers.view._whole_turns
    asked: dict[str, Message | None] = {}

    class Unguarded(ContextView):
        def apply(self, strategy: str, edits: Edits, *args: Any, **kwargs: Any) -> int:
            asked.clear()
            asked.update(edits)
            return super().apply(strategy, edits, *args, **kwargs)

    monkeypatch.setattr(
        agentgym.wrappers.view, "_whole_turns", lambda shown, edits: whole_turns(shown, asked)
    )
    install(Unguarded)(monkeypatch)


def install(view: type[ContextView]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(agentgym.wrappers.context, "ContextView", view)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no pair guard": lambda monkeypatch: monkeypatch.setattr(
        agentgym.wrappers.view, "_whole_turns", no_pair_guard
    ),
    "pinned messages may be dropped": install(PinnedMayGo),
    "not sticky": install(NotSticky),
    "an edit may grow": install(EditsMayGrow),
    "addressed by position": install(ByPosition),
    "the newest turn may go": newest_may_go,
    "removed text is not booked": install(RemovalsNotBooked),
    "what is gone from the newest message stays": install(NewestStays),
}
