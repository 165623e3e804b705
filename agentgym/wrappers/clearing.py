"""Clear old tool results and old thinking (LOCA-bench, section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium

from agentgym.assemble.wrapper_order import Stage
from agentgym.text.messages import Chat, Message
from agentgym.text.validation import check_bool, check_float, check_int, read_tokens
from agentgym.world.turn_budget import multiply_up
from agentgym.wrappers.budget import ContextBudget, Load, Trigger, read_trigger
from agentgym.wrappers.context import ContextWrapper

PLACEHOLDER = "[tool result cleared]"

_LOW = 8 / 15  # with the default trigger, 40 % of the window


class ClearThinking(ContextWrapper):
    """Wrapper that removes thinking, except from the newest replies that contain thinking.

    Args:
        budget: The window.
        trigger: When to clear; by default at every turn.
        keep: The number of newest replies that keep their thinking, at least 1, or "all".

    Example:
        >>> env = ClearThinking(agentgym.make("ListWorld"), keep=1)
    """

    stage = Stage.CLEAR_THINKING
    lossy: bool = False

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        budget: ContextBudget | Mapping[str, Any] | None = None,
        trigger: Trigger | Mapping[str, Any] | str = "1turns",
        keep: int | str = 1,
    ) -> None:
        if keep != "all":
            check_int("keep", keep, 1, 1_000_000)
        self.trigger = read_trigger("trigger", trigger)
        self.keep = keep
        super().__init__(env, budget, trigger=self.trigger, keep=keep)
        if isinstance(keep, int):  # the newest replies stay editable
            tail = min(keep + 1, 16)  # more editable replies would slow down every step
            self.view.editable_tail = max(self.view.editable_tail, tail)

    def begin(self) -> None:
        super().begin()
        self._thinking_ids: list[str] = []

    def edit(self) -> None:
        if isinstance(self.keep, str):
            return
        if self.view.was_rebuilt:
            self._thinking_ids = []
        for message in self.view.new_messages:
            if message.thinking and message.id not in self._thinking_ids:
                self._thinking_ids.append(message.id)
        level = self.trigger.level(self.view.load)
        if not self.is_due(level) or len(self._thinking_ids) <= self.keep:
            return
        old = set(self._thinking_ids[: -self.keep])
        self._thinking_ids = self._thinking_ids[-self.keep :]
        count = self.view.counter.count
        edits = {}
        for message in self.view.find(old):
            bare = replace(message, thinking="", raw="")
            if count(bare) < count(message):
                edits[message.id] = bare
        self.view.apply("ClearThinking", edits)


class ClearToolResults(ContextWrapper):
    """Wrapper that replaces the oldest tool results with a placeholder.

    If the kept messages alone reach the trigger, results are cleared at every turn;
    `clear_at_least` makes these edits rarer.

    Args:
        budget: The window.
        trigger: When to clear.
        target: Clearing stops once this level is reached; by default, 8/15 of the trigger. With
            a low target, the prompt is rewritten less often.
        ratio: The share of the uncleared results to clear each time; replaces `target`. The paper
            uses 0.5.
        keep: The number of newest results to keep. Results of the newest reply always stay.
        exclude: Tools whose results are never cleared and do not count towards `keep`.
        clear_inputs: Whether to clear the arguments of the calls too.
        clear_at_least: The minimum number of tokens to save; otherwise, nothing is cleared.
        placeholder: The text that replaces a result.

    Example:
        >>> env = ClearToolResults(agentgym.make("ListWorld"), ContextBudget(window=8_000), keep=3)
    """

    stage = Stage.CLEAR_TOOL_RESULTS

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        budget: ContextBudget | Mapping[str, Any] | None = None,
        trigger: Trigger | Mapping[str, Any] | str = "0.75",
        target: Trigger | Mapping[str, Any] | None = None,
        ratio: float | None = None,
        keep: int = 3,
        exclude: Sequence[str] = (),
        clear_inputs: bool = False,
        clear_at_least: int | str = 0,
        placeholder: str = PLACEHOLDER,
    ) -> None:
        check_int("keep", keep, 0, 1_000_000)
        check_bool("clear_inputs", clear_inputs)
        clear_at_least = read_tokens("clear_at_least", clear_at_least, 0, 10**9)
        if ratio is not None:
            check_float("ratio", ratio, 0.001, 1.0)
            if target is not None:
                raise ValueError(f"ratio and target must not both be set, got {ratio} and {target}")
        if isinstance(exclude, str) or not isinstance(placeholder, str):
            raise ValueError(
                f"exclude must be a list of tools and placeholder must be a string, got "
                f"{exclude!r} and {placeholder!r}"
            )
        self.trigger = read_trigger("trigger", trigger)
        self.target = None if target is None else read_trigger("target", target)
        self.ratio, self.keep, self.exclude = ratio, keep, frozenset(exclude)
        self.clear_inputs, self.clear_at_least = clear_inputs, clear_at_least
        self.placeholder = placeholder
        super().__init__(
            env,
            budget,
            trigger=self.trigger,
            target=self.target,
            ratio=ratio,
            keep=keep,
            exclude=tuple(exclude),
            clear_inputs=clear_inputs,
            clear_at_least=clear_at_least,
            placeholder=placeholder,
        )

    def edit(self) -> None:
        level = self.trigger.level(self.view.load)
        if not self.is_due(level):
            return
        edits, cleared, gain = self._choose()
        if gain >= max(1, self.clear_at_least) and self.may_edit(level):
            self.view.apply(type(self).__name__, edits, self.clear_at_least, cleared)

    def _uses(self) -> tuple[list[tuple[Message, Message]], int]:
        uses: list[tuple[Message, Message]] = []
        older, newest = self.view.split_turns()
        unread = 0
        for turn in (*older, *newest):
            names = {call.id: call.name for call in turn.reply.calls}
            for answer in turn.answers:
                if answer.role != "tool" or answer.id in self.view.cleared:
                    continue
                if names[answer.call_id] not in self.exclude:
                    uses.append((turn.reply, answer))
                    unread += turn in newest
        return uses, len(uses) - max(self.keep, unread)

    def _choose(self) -> tuple[dict[str, Message], list[str], int]:
        uses, free = self._uses()
        load = self.view.load
        edits: dict[str, Message] = {}
        cleared: list[str] = []
        most = free if self.ratio is None else min(free, multiply_up(self.ratio, len(uses)))
        for reply, result in uses[: max(0, most)]:
            if self.ratio is None and self._reached(load):
                break
            old = [result]
            new = {result.id: replace(result, text=self.placeholder, images=())}
            if self.clear_inputs:
                old.append(edits.get(reply.id, reply))
                new[reply.id] = _without_input(old[-1], result.call_id)
            saved = self.view.count(old) - self.view.count(new.values())
            if saved > 0:
                edits.update(new)
                cleared.append(result.id)
                load = Load(load.tokens - saved, load.usable, load.tool_uses - 1, load.turns)
        return edits, cleared, self.view.tokens - load.tokens

    def _reached(self, load: Load) -> bool:
        if self.target:
            return self.target.level(load) <= 1
        return self.trigger.level(load) <= _LOW


def _without_input(reply: Message, call_id: str) -> Message:
    calls = [replace(c, arguments={}) if c.id == call_id else c for c in reply.calls]
    return replace(reply, calls=tuple(calls), raw="")
