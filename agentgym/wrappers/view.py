"""The chat with the edits of a stack's context wrappers, and exact token counts.

An edit is an overlay entry, {message id: replacement or None}, or an insertion after a message.
Only methods that use older messages take time proportional to the length of the view.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from agentgym.text.messages import SYSTEM_ID, Chat, Message
from agentgym.text.tokens import counter
from agentgym.wrappers.budget import ContextBudget, Load


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit by one strategy that replaces `removed` tokens with `inserted` tokens."""

    strategy: str
    messages: int
    removed: int
    inserted: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A reply with its results."""

    reply: Message
    answers: tuple[Message, ...]


@dataclass(slots=True)
class StepAccounts:
    """Token counts of one step; see `ContextRecord`."""

    phase: Literal["act", "summary"] = "act"
    appended: int = 0
    removed: int = 0
    inserted: int = 0
    tool_output: int = 0
    edits: tuple[Edit, ...] = ()


class ContextView:
    """The chat as the policy sees it.

    A step proceeds as follows:

    1. `begin_step` resets the token counts.
    2. `update` reads the env's observation and reapplies earlier edits.
    3. Each strategy, innermost first, edits with `apply`, adds notes with `annotate`, or requests a
       summary with `ask`.
    4. The outermost strategy reports `accounts`: `tokens` after a step equals the previous `tokens`
       + `appended` - `removed` + `inserted`.

    The view has three parts: the append-only archive, the recent messages of the newest
    `editable_tail` replies, and the env's newest message with everything after it. The newest
    message is separate, because the next observation may drop its hint.

    Attributes:
        limit: The number of tokens available to strategies; the rest of the usable window is
            reserved for usage reports.
        editable_tail: The number of newest replies that can be edited without copying the chat.
        overlay: This episode's edits by message id; None for a dropped message.
        summaries: Ids of replies that summarise older messages.
        new_messages: The unpinned messages that the last observation added or changed.
        was_rebuilt: Whether the env rewrote older messages, so that `new_messages` is the whole
            view.
        warned: Whether the policy has been warned about the next lossy edit.
        overflow: Whether the view exceeds the window even after trimming.
        request: A request in the newest message, shown once and not logged.
        chat: The visible chat; the object is replaced only if the chat changes.
    """

    def __init__(self, budget: ContextBudget) -> None:
        # Settings of the stack, which `begin` does not reset.
        self.budget = budget
        self.counter = counter(budget.counter)
        self.limit = budget.usable
        self.notices = ""
        self.editable_tail = 2  # clearing thinking may edit the previous reply
        self.outermost: object = None
        self.edit_counts: dict[str, int] = {}
        self.begin()

    def begin(self) -> None:
        """Reset the view for a new episode."""
        self.edit_counts = dict.fromkeys(self.edit_counts, 0)
        self.overlay: dict[str, Message | None] = {}
        self._inserts: dict[str, tuple[Message, ...]] = {}
        self._suffixes: dict[str, dict[str, str]] = {}
        if self.notices:
            self._suffixes[SYSTEM_ID] = {"": self.notices}
        self.cleared: set[str] = set()
        self.summaries: set[str] = set()
        self.warned = self.overflow = False
        self.request: Message | None = None
        self.last_request_tokens = self._request_tokens = 0
        self.new_messages: list[Message] = []
        self.was_rebuilt = False
        self._source = Chat()
        self._pinned: set[str] = set()
        self._archived = Chat()
        self._archived_load = (0, 0, 0)
        self._recent: deque[Message] = deque()
        self._newest: list[Message] = []
        self._newest_id = ""
        self.chat = self._previous = Chat()
        self.load = Load(0, self.limit, 0, 0)
        self.begin_step()

    def begin_step(self, phase: Literal["act", "summary"] = "act") -> None:
        """Reset the token counts for a step."""
        self.accounts = StepAccounts(phase)
        self._previous = self.chat

    @property
    def tokens(self) -> int:
        return self.load.tokens

    def count(self, messages: Iterable[Message]) -> int:
        """Count the tokens of messages."""
        return sum(map(self.counter.count, messages))

    def reused(self) -> int:
        """Count the tokens of the common prefix with the previous view."""
        messages = self.chat.messages
        shared = self.chat.shared_prefix(self._previous)
        return self.tokens - self.count(messages[k] for k in range(shared, len(messages)))

    def newest(self) -> Message:
        """Return the last visible message, excluding any request."""
        return self._newest[-1]

    def find(self, ids: Collection[str]) -> list[Message]:
        """Return the messages with these ids, oldest first."""
        recent = [message for message in self._tail() if message.id in ids]
        if len(recent) == len(ids):
            return recent
        return [message for message in self._archived.messages if message.id in ids] + recent

    def editable(self) -> list[Message]:
        """Return all visible unpinned messages, oldest first."""
        shown = (*self._archived.messages, *self._tail())
        return [message for message in shown if message.id not in self._pinned]

    def turns(self) -> list[Turn]:
        """Return the visible replies with their results, oldest first."""
        turns: list[tuple[Message, list[Message]]] = []
        for message in self.editable():
            if message.role == "assistant":
                turns.append((message, []))
            elif turns:
                turns[-1][1].append(message)
        return [Turn(reply, tuple(answers)) for reply, answers in turns]

    def split_turns(self) -> tuple[list[Turn], list[Turn]]:
        """Split the view into the older turns and the newest turn."""
        turns = self.turns()
        start = len(turns) - 1
        while start > 0 and turns[start].reply.id in self.summaries:
            start -= 1
        return turns[: max(start, 0)], turns[max(start, 0) :]

    def update(self, chat: Chat) -> None:
        """Read the env's current observation."""
        known = len(self._source.messages)
        self.was_rebuilt = not (
            known and chat.shared_prefix(self._source) == known < len(chat.messages)
        )
        if self.was_rebuilt:
            before = [*self._archived.messages, *self._tail()]
            known = 0
            self._archived, self._archived_load = Chat((), chat.tools), (0, 0, 0)
            self._recent.clear()
            self._pinned = {message.id for message in chat.messages[: chat.pinned()]}
        else:
            before = list(self._newest)
        self._source = chat.without_last()
        new: list[Message] = []
        for message in chat.messages[known:-1]:
            new += self._with_edits(message)
        self._newest_id = chat.messages[-1].id
        self._newest = list(self._with_edits(chat.messages[-1]))
        self._recent.extend(new)
        new += self._newest
        self.new_messages = [message for message in new if message.id not in self._pinned]
        self._book(before, new)
        self._archive()
        self._render()

    def _book(self, before: Sequence[Message], after: Sequence[Message]) -> None:
        accounts = self.accounts
        old = {message.id: message for message in before}
        for message in after:
            past = old.pop(message.id, None)
            if past == message:
                continue
            tokens = self.counter.count(message)
            common = 0
            if past is not None:
                past_tokens = self.counter.count(past)
                prefix = replace(past, text=_common_prefix(past.text, message.text))
                common = min(past_tokens, tokens, self.counter.count(prefix))
                accounts.removed += past_tokens - common
            elif message.role == "tool":
                accounts.tool_output += tokens
            accounts.appended += tokens - common
        accounts.removed += self.count(old.values())

    def apply(
        self,
        strategy: str,
        edits: Mapping[str, Message | None],
        at_least: int = 1,
        cleared: Iterable[str] = (),
        insert: Sequence[Message] = (),
    ) -> int:
        """Apply a strategy's edits and return the number of saved tokens.

        Pinned messages are never edited, and the newest reply and its results are never dropped.
        Calls and results are dropped together. Edits that do not shorten the view are ignored.

        Args:
            strategy: The name of the strategy.
            edits: Maps message ids to replacements, or to None to drop the message.
            at_least: The minimum number of saved tokens; edits that save fewer are ignored.
            cleared: The ids of tool results that the edits clear.
            insert: Messages to append to the view.
        """
        changes = self._permitted(edits)
        accepted = {message_id: new for message_id, (_, new) in changes.items()}
        replacements = [new for new in accepted.values() if new is not None]
        removed = self.count(old for old, _ in changes.values())
        inserted = self.count([*replacements, *insert])
        if removed - inserted < max(1, at_least):
            return 0
        self.overlay.update(accepted)
        self.cleared.update(cleared)
        for message_id in accepted:
            self._suffixes.pop(message_id, None)
        self._inserts[self._newest_id] = (*self._inserts.get(self._newest_id, ()), *insert)
        self._newest.extend(insert)
        self._replace(accepted)
        accounts = self.accounts
        accounts.removed += removed
        accounts.inserted += inserted
        accounts.edits = (*accounts.edits, Edit(strategy, len(changes), removed, inserted))
        return removed - inserted

    def _permitted(
        self, edits: Mapping[str, Message | None]
    ) -> dict[str, tuple[Message, Message | None]]:
        tail = self._tail()
        if edits.keys() <= {message.id for message in tail}:  # skip the older messages
            shown = [message for message in tail if message.id not in self._pinned]
        else:
            shown = self.editable()
        start = 0
        for k, message in enumerate(shown):
            if message.role == "assistant" and message.id not in self.summaries:
                start = k
        newest = {message.id for message in shown[start:]}
        edits = {i: new for i, new in edits.items() if new is not None or i not in newest}
        return {old.id: (old, new) for old, new in _whole_turns(shown, edits) if new is not old}

    def annotate(self, message_id: str, owner: str, text: str) -> None:
        """Append a note to one of the newest messages; replace `owner`'s previous note, if any."""
        before = self._tail()
        edits = {}
        for message in before:
            if message.id == message_id:
                edits[message_id] = self.with_note(message, owner, text)
        suffixes = self._suffixes.setdefault(message_id, {})
        suffixes.pop(owner, None)
        suffixes[owner] = text
        self._replace(edits)
        self._book(before, self._tail())

    def with_note(self, message: Message, owner: str, text: str) -> Message:
        """Return a message with a note, as `annotate` would show it."""
        suffixes = self._suffixes.get(message.id, {})
        original = message.text.removesuffix("".join(suffixes.values()))
        others = [note for name, note in suffixes.items() if name != owner]
        return replace(message, text=original + "".join(others) + text)

    def ask(self, request: Message | None) -> None:
        """Append a request to the view; None withdraws the request."""
        self.last_request_tokens = self._request_tokens
        self.request = request
        self._render()

    def _with_edits(self, message: Message) -> Iterator[Message]:
        for each in (message, *self._inserts.get(message.id, ())):
            shown = self.overlay.get(each.id, each)
            if shown is not None:
                if suffix := "".join(self._suffixes.get(shown.id, {}).values()):
                    shown = replace(shown, text=shown.text + suffix)
                yield shown

    def _tail(self) -> list[Message]:
        return [*self._recent, *self._newest]

    def _replace(self, edits: Mapping[str, Message | None]) -> None:
        def edited(messages: Iterable[Message]) -> Iterator[Message]:
            for message in messages:
                new = edits.get(message.id, message)
                if new is not None:
                    yield new

        if edits.keys() - {message.id for message in self._tail()}:
            archived = list(edited(self._archived.messages))
            self._archived = Chat((), self._archived.tools).extend(archived)
            self._archived_load = self._sum(archived)
        self._recent = deque(edited(self._recent))
        self._newest = list(edited(self._newest))
        self._render()

    def _archive(self) -> None:
        replies = sum(message.role == "assistant" for message in self._recent)
        old: list[Message] = []
        while self._recent and (
            replies > self.editable_tail or self._recent[0].role != "assistant"
        ):
            replies -= self._recent[0].role == "assistant"
            old.append(self._recent.popleft())
        if old:
            self._archived = self._archived.extend(old)
            self._archived_load = self._sum(old, self._archived_load)

    def _render(self) -> None:
        tail = self._tail()
        tokens, uses, turns = self._sum(tail, self._archived_load)
        request = 0
        if self.request and tail[-1].role == "user":
            # Two user messages in a row break some models' chat templates.
            last = tail.pop()
            tail.append(replace(last, text=f"{last.text}\n\n{self.request.text}"))
            request = self.count([tail[-1]]) - self.count([last])
        elif self.request:
            tail.append(self.request)
            request = self.count([self.request])
        self.accounts.inserted += max(0, request - self._request_tokens)
        self.accounts.removed += max(0, self._request_tokens - request)
        self._request_tokens = request
        self.chat = self._archived.with_last(*tail)
        self.load = Load(tokens + request, self.limit, uses, turns)

    def _sum(
        self, messages: Iterable[Message], start: tuple[int, int, int] = (0, 0, 0)
    ) -> tuple[int, int, int]:
        tokens, uses, turns = start
        for message in messages:
            tokens += self.counter.count(message)
            uses += message.role == "tool" and message.id not in self.cleared
            turns += message.role == "assistant" and message.id not in self._pinned
        return tokens, uses, turns


def _whole_turns(
    shown: Sequence[Message], edits: Mapping[str, Message | None]
) -> list[tuple[Message, Message | None]]:
    changes = [(old, edits.get(old.id, old)) for old in shown]
    bounds = [k for k, old in enumerate(shown) if old.role == "assistant"] + [len(changes)]
    whole = changes[: bounds[0]]
    for start, end in pairwise(bounds):
        old_reply, reply = changes[start]
        calls = {call.id for call in reply.calls} if reply else set()
        answers = []
        for old, new in changes[start + 1 : end]:
            is_orphan = new and new.role == "tool" and new.call_id not in calls
            answers.append((old, None if is_orphan else new))
        left = [new for _, new in answers if new is not None]
        answered = {message.call_id for message in left}
        if reply is not None and not calls <= answered:
            kept = tuple(call for call in reply.calls if call.id in answered)
            reply = replace(reply, calls=kept, raw="")
        if reply is None or not left:
            whole += [(old, None) for old, _ in changes[start:end]]
        else:
            whole += [(old_reply, reply), *answers]
    return whole


def _common_prefix(one: str, other: str) -> str:
    # Bisect: comparing slices in C is far faster than comparing single characters.
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return one[:low]
