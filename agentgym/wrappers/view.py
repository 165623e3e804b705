"""The view that the context wrappers of a stack share: the chat under an overlay of edits, and its exact accounts.

The log of the env is append-only. An edit is an entry of the overlay, {message id -> replacement or None}, or of what is inserted
after a message, so it is sticky: what was cleared stays cleared. Messages are addressed by id, never by position. New messages cost
O(new); only an edit of an older message costs O(view).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from agentgym.messages import SYSTEM_ID, Chat, Message
from agentgym.tokens import counter
from agentgym.wrappers.budget import ContextBudget, Load


@dataclass(frozen=True, slots=True)
class Edit:
    """What one strategy changed at one moment, in tokens: `removed` of the messages as they were, `inserted` as they are now."""

    strategy: str
    messages: int
    removed: int
    inserted: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A reply with what answered it."""

    reply: Message
    answers: tuple[Message, ...]


class ContextView:
    """The chat as the policy is to be shown it.

    The accounts obey a law of conservation: `tokens` after a step is `tokens` before it + `appended` - `removed` + `inserted`,
    where `appended` is new text, and the others are what edits took away and put in its place.

    Args:
        budget: The window and what it is counted with.

    Attributes:
        limit: The tokens that strategies may fill; less than the usable window if a report is added after them.
        notices: Text that the system message ends with.
        hold: How many of the newest replies may be edited without a copy of the rest.
        request: What the newest message asks for besides, such as a summary; it is shown once and is no part of the log.
        cleared: Ids of tool results that have been cleared.
        warned: Whether the policy has been told that a lossy edit is coming, since the last one.
        requested: The tokens of the request that was taken back last.
        phase: `act`, or `summary` if the last reply was one.
        overflow: Whether what must be shown does not fit.
        fresh: The messages that the last observation added or changed, without the pinned ones.
        rebuilt: Whether these are all that is shown, because the env has rewritten older messages.
        summaries: Ids of replies that stand for older messages.
        outermost: The strategy that reports.
    """

    def __init__(self, budget: ContextBudget) -> None:
        self.budget = budget
        self.counter = counter(budget.counter)
        self.limit = budget.usable
        self.notices = ""
        self.hold = 2
        self.outermost: object = None
        self.begin()

    def begin(self) -> None:
        """Forget the last episode."""
        self.overlay: dict[str, Message | None] = {}
        self.cleared: set[str] = set()
        self.warned = self.overflow = False
        self.fresh: list[Message] = []
        self.rebuilt = False
        self.summaries: set[str] = set()
        self.request: Message | None = None
        self.requested = self._request_tokens = 0
        self._suffixes: dict[str, dict[str, str]] = {SYSTEM_ID: {"": self.notices}} if self.notices else {}
        self._pinned: set[str] = set()
        self._source = Chat()
        self._base = Chat()
        self._base_load = (0, 0, 0)
        self._held: deque[Message] = deque()
        self._open: list[Message] = []
        self._inserts: dict[str, tuple[Message, ...]] = {}
        self._newest = ""
        self._chat = self._previous = Chat()
        self._load = Load(0, self.limit, 0, 0)
        self.begin_step()

    def begin_step(self, phase: Literal["act", "summary"] = "act") -> None:
        """Open the accounts of a step."""
        self.phase: Literal["act", "summary"] = phase
        self.appended = self.removed = self.inserted = self.tool_output = 0
        self.edits: tuple[Edit, ...] = ()
        self._previous = self._chat

    @property
    def chat(self) -> Chat:
        """What is shown. The same object as long as nothing changes."""
        return self._chat

    @property
    def load(self) -> Load:
        """How full the context is."""
        return self._load

    @property
    def tokens(self) -> int:
        """The tokens shown."""
        return self._load.tokens

    def count(self, messages: Iterable[Message]) -> int:
        """The tokens of some messages."""
        return sum(map(self.counter.count, messages))

    def reused(self) -> int:
        """The tokens of the longest common prefix of what is shown and what was shown a step before."""
        shared = self._chat.shared_prefix(self._previous)
        return self.tokens - self.count(self._chat.messages[k] for k in range(shared, len(self._chat.messages)))

    def newest(self) -> Message:
        """The last message shown, but for a request."""
        return self._open[-1]

    def find(self, ids: Collection[str]) -> list[Message]:
        """Messages as they are shown now, oldest first; O(new) if they are among the newest, else O(view)."""
        found = [message for message in self._tail() if message.id in ids]
        return found if len(found) == len(ids) else [*(m for m in self._base.messages if m.id in ids), *found]

    def turns(self) -> list[Turn]:
        """The replies shown, with their answers, oldest first; O(view)."""
        turns: list[tuple[Message, list[Message]]] = []
        for message in (*self._base.messages, *self._tail()):
            if message.id in self._pinned:
                continue
            if message.role == "assistant":
                turns.append((message, []))
            elif turns:
                turns[-1][1].append(message)
        return [Turn(reply, tuple(answers)) for reply, answers in turns]

    def split_turns(self) -> tuple[list[Turn], list[Turn]]:
        """The older turns, and the newest with what was put after it, which must stay; O(view)."""
        turns = self.turns()
        start = max((k for k, turn in enumerate(turns) if turn.reply.id not in self.summaries), default=0)
        return turns[:start], turns[start:]

    def update(self, chat: Chat) -> None:
        """Take in what the env shows now.

        The newest message is held apart, since a hint on it may be gone from the next observation.
        """
        known = len(self._source.messages)
        before = self._tail()
        self.rebuilt = not (known and chat.shared_prefix(self._source) == known < len(chat.messages))
        if not self.rebuilt:
            before = list(self._open)
        else:
            before = [*self._base.messages, *before]
            known = 0
            self._base, self._base_load = Chat((), chat.tools), (0, 0, 0)
            self._held.clear()
            self._pinned = {message.id for message in chat.messages[: chat.pinned()]}
        self._source = chat.without_last()
        new = [shown for message in chat.messages[known:-1] for shown in self._shown(message)]
        self._newest = chat.messages[-1].id
        self._open = list(self._shown(chat.messages[-1]))
        self._held.extend(new)
        new += self._open
        self.fresh = [message for message in new if message.id not in self._pinned]
        self._account(before, new)
        self._settle()
        self._refresh()

    def _account(self, before: Sequence[Message], after: Sequence[Message]) -> None:
        """Book the difference of two ends of a view that no strategy has made."""
        old = {message.id: message for message in before}
        for message in after:
            past = old.pop(message.id, None)
            tokens = self.counter.count(message)
            common = 0
            if past is not None and past != message:
                was = self.counter.count(past)
                kept = replace(past, text=_common_prefix(past.text, message.text))
                common = min(was, tokens, self.counter.count(kept))
                self.removed += was - common
            if past is None or past != message:
                self.appended += tokens - common
            if past is None and message.role == "tool":
                self.tool_output += tokens
        self.removed += self.count(old.values())

    def apply(
        self,
        strategy: str,
        edits: Mapping[str, Message | None],
        at_least: int = 1,
        cleared: Iterable[str] = (),
        insert: Sequence[Message] = (),
    ) -> int:
        """Make edits, by message id: a replacement, or None to drop the message. The only place that changes what is shown.

        Pinned messages are never edited. The newest reply and what answered it are never dropped. A call without its result and a
        result without its call go with each other. Nothing is done unless it makes the view shorter.

        Args:
            strategy: Who asks for the edits.
            edits: The edits.
            at_least: The tokens that must be gained, or nothing is done.
            cleared: The tool results that the edits clear, by message id.
            insert: Messages to put after all that is shown.

        Returns:
            The tokens gained.
        """
        changed = self._allowed(edits)
        removed = self.count(old for old, _ in changed.values())
        inserted = self.count([*(new for _, new in changed.values() if new is not None), *insert])
        if removed - inserted < max(1, at_least):
            return 0
        accepted = {message_id: new for message_id, (_, new) in changed.items()}
        self.overlay.update(accepted)
        self.cleared.update(cleared)
        for message_id in accepted:
            self._suffixes.pop(message_id, None)
        self._inserts[self._newest] = (*self._inserts.get(self._newest, ()), *insert)
        self._open.extend(insert)
        self._replace(accepted)
        self.removed, self.inserted = self.removed + removed, self.inserted + inserted
        self.edits = (*self.edits, Edit(strategy, len(changed), removed, inserted))
        return removed - inserted

    def _allowed(self, edits: Mapping[str, Message | None]) -> dict[str, tuple[Message, Message | None]]:
        """What becomes of which message, once the invariants are kept."""
        tail = self._tail()
        recent = edits.keys() <= {message.id for message in tail}  # then older messages need not be looked at
        shown = [message for message in (tail if recent else [*self._base.messages, *tail]) if message.id not in self._pinned]
        replies = [k for k, message in enumerate(shown) if message.role == "assistant" and message.id not in self.summaries]
        newest = {message.id for message in shown[max(replies, default=0) :]}
        wanted = {i: new for i, new in edits.items() if new is not None or i not in newest}
        return {old.id: (old, new) for old, new in _whole_turns(shown, wanted) if new is not old}

    def annotate(self, message_id: str, owner: str, text: str) -> None:
        """Put a text at the end of one of the newest messages, in place of the owner's last one; empty to take that away."""
        before = self._tail()
        edits = {message.id: self.annotated(message, owner, text) for message in before if message.id == message_id}
        others = {name: said for name, said in self._suffixes.get(message_id, {}).items() if name != owner}
        self._suffixes[message_id] = {**others, owner: text}
        self._replace(edits)
        self._account(before, self._tail())

    def annotated(self, message: Message, owner: str, text: str) -> Message:
        """A message as `annotate` would show it."""
        suffixes = self._suffixes.get(message.id, {})
        plain = message.text.removesuffix("".join(suffixes.values()))
        others = [said for name, said in suffixes.items() if name != owner]
        return replace(message, text=plain + "".join(others) + text)

    def ask(self, request: Message | None) -> None:
        """Ask for something else than a call, at the end of what is shown; None takes the last request back."""
        self.requested = self._request_tokens
        self.request = request
        self._refresh()

    def _shown(self, message: Message) -> Iterator[Message]:
        """A message of the env as it is shown, with what was put after it."""
        for each in (message, *self._inserts.get(message.id, ())):
            seen = self.overlay.get(each.id, each)
            if seen is not None:
                suffix = "".join(self._suffixes.get(seen.id, {}).values())
                yield replace(seen, text=seen.text + suffix) if suffix else seen

    def _tail(self) -> list[Message]:
        return [*self._held, *self._open]

    def _replace(self, edits: Mapping[str, Message | None]) -> None:
        """Put edits in place of the messages shown."""
        if edits.keys() - {message.id for message in self._tail()}:
            base = [edits.get(message.id, message) for message in self._base.messages]
            self._base = Chat((), self._base.tools).add(*(message for message in base if message is not None))
            self._base_load = self._sum(self._base.messages)
        held, newest = ([edits.get(message.id, message) for message in part] for part in (self._held, self._open))
        self._held = deque(message for message in held if message is not None)
        self._open = [message for message in newest if message is not None]
        self._refresh()

    def _settle(self) -> None:
        """Move what is no longer new to the part that is only added to."""
        replies = sum(message.role == "assistant" for message in self._held)
        old: list[Message] = []
        while self._held and (replies > self.hold or self._held[0].role != "assistant"):
            replies -= self._held[0].role == "assistant"
            old.append(self._held.popleft())
        if old:
            self._base = self._base.add(*old)
            self._base_load = tuple(a + b for a, b in zip(self._base_load, self._sum(old), strict=True))  # type: ignore[assignment]

    def _refresh(self) -> None:
        tail = self._tail()
        tokens, uses, turns = (a + b for a, b in zip(self._base_load, self._sum(tail), strict=True))
        request = 0
        if self.request:
            last = tail.pop() if tail[-1].role == "user" else None  # two user messages in a row break the templates of some models
            asked = replace(last, text=f"{last.text}\n\n{self.request.text}") if last else self.request
            request = self.count([asked]) - (self.count([last]) if last else 0)
            tail.append(asked)
        self.inserted += max(0, request - self._request_tokens)
        self.removed += max(0, self._request_tokens - request)
        self._request_tokens = request
        self._chat = self._base.with_last(*tail)
        self._load = Load(tokens + request, self.limit, uses, turns)

    def _sum(self, messages: Iterable[Message]) -> tuple[int, int, int]:
        tokens = uses = turns = 0
        for message in messages:
            tokens += self.counter.count(message)
            uses += message.role == "tool" and message.id not in self.cleared
            turns += message.role == "assistant" and message.id not in self._pinned
        return tokens, uses, turns


def _whole_turns(shown: Sequence[Message], edits: Mapping[str, Message | None]) -> list[tuple[Message, Message | None]]:
    """The messages with what becomes of them, so that no reply loses all its answers, and no answer or call its other half."""
    changes = [(old, edits.get(old.id, old)) for old in shown]
    starts = [k for k, old in enumerate(shown) if old.role == "assistant"]
    whole = changes[: starts[0] if starts else len(changes)]
    for start, end in pairwise([*starts, len(changes)]):
        whole += _whole_turn(changes[start:end])
    return whole


def _whole_turn(changes: list[tuple[Message, Message | None]]) -> list[tuple[Message, Message | None]]:
    (old_reply, reply), *answers = changes
    calls = {call.id for call in reply.calls} if reply else set()
    answers = [(old, None if new and new.role == "tool" and new.call_id not in calls else new) for old, new in answers]
    left = [new for _, new in answers if new is not None]
    if reply is None or not left:
        return [(old, None) for old, _ in changes]
    answered = {message.call_id for message in left}
    if not calls <= answered:
        reply = replace(reply, calls=tuple(call for call in reply.calls if call.id in answered), raw="")
    return [(old_reply, reply), *answers]


def _common_prefix(one: str, other: str) -> str:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return one[:low]
