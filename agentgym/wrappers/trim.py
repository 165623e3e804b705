"""The last resort: messages that do not fit the window are dropped, oldest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, SupportsFloat

import gymnasium

from agentgym.messages import Chat, Message
from agentgym.stacks import register_option
from agentgym.stages import Stage
from agentgym.tokens import TokenCounter
from agentgym.wrappers.budget import ContextBudget, Trigger, read_trigger
from agentgym.wrappers.context import ContextWrapper


class Trim(ContextWrapper):
    """Wrapper that drops the oldest turns when the view does not fit, then cuts the middle of the
    newest tool results.

    It is what a bounded window without any strategy does (LOCA-bench, section 3.1: the most recent
    tokens are kept). If even the system message, the task and the newest turn do not fit, the
    episode is truncated; `StepInfo.ended` is then `context_overflow`. If that is so from the start,
    the first step truncates it without playing the reply.

    Args:
        env: The env.
        budget: The window.
        target: The level down to which turns are dropped, so that the prompt is not rewritten at
            each turn.

    Example:
        >>> env = Trim(agentgym.make("ListWorld"), ContextBudget(window=4_000))
    """

    stage = Stage.TRIM

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        budget: ContextBudget | Mapping[str, Any] | None = None,
        target: Trigger | Mapping[str, Any] | str = "0.75",
    ) -> None:
        self.target = read_trigger("target", target)
        super().__init__(env, budget, target=self.target)

    def edit(self) -> None:
        """Make the view fit, if that can be done."""
        view = self.view
        if self.should_run(view.tokens / (view.limit + 1)):
            self._drop()
            self._cut()
        view.overflow = view.tokens > view.limit

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        """Play a reply; end the episode if there is no prompt that fits."""
        if self.view.overflow and isinstance(action, str) and not self.world_env.over:
            self.view.begin_step()
            return self._truncate(self._report(self._first_info, action))
        chat, reward, terminated, truncated, info = super().step(action)
        if self.view.overflow and not self.world_env.over:
            return self._truncate(info)
        return chat, reward, terminated, truncated, info

    def _truncate(
        self, info: dict[str, Any]
    ) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        _, reward, terminated, truncated, last = self.world_env.truncate("context_overflow")
        ended = replace(info["detail"], ended=last["detail"].ended, score=last["detail"].score)
        info = {**info, "success": last["success"], "detail": ended}
        return self.view.chat, reward, terminated, truncated, info

    def _drop(self) -> None:
        view = self.view
        turns, _ = view.split_turns()
        tokens = view.tokens
        edits: dict[str, Message | None] = {}
        for turn in sorted(
            turns, key=lambda turn: turn.reply.id in view.summaries
        ):  # a summary stands for much, so it goes last
            if self.target.level(replace(view.load, tokens=tokens)) <= 1:
                break
            tokens -= view.count((turn.reply, *turn.answers))
            edits.update(dict.fromkeys(m.id for m in (turn.reply, *turn.answers)))
        view.apply("Trim", edits)

    def _cut(self) -> None:
        view = self.view
        _, newest = view.split_turns()
        answers = [answer for turn in newest[:1] for answer in turn.answers]
        excess = view.tokens - view.limit
        edits: dict[str, Message | None] = {}
        for answer in sorted(answers, key=view.counter.count, reverse=True):
            if excess <= 0:
                break
            room = max(0, view.counter.length(answer.text) - excess)
            cut = replace(answer, text=cut_middle(answer.text, room, view.counter))
            saved = view.count([answer]) - view.count([cut])
            if saved > 0:
                edits[answer.id] = cut
                excess -= saved
        view.apply("Trim", edits)  # all at once: each edit looks at every answer


register_option("trim", Trim, Trim.stage)


def cut_middle(text: str, tokens: int, counter: TokenCounter) -> str:
    """Return the text within `tokens`, its middle replaced by a note of its length; the note alone
    if there is no room.
    """
    if counter.length(text) <= tokens:
        return text
    keep = int(len(text) * tokens / counter.length(text))
    while True:
        head, tail = (keep + 1) // 2, keep // 2
        cut = f"{text[:head]}\n[… {len(text) - keep} characters cut …]\n{text[len(text) - tail :]}"
        length = counter.length(cut)
        if keep == 0 or length <= tokens:
            return cut
        # Tokens are not spread evenly over a text, so a guess may be too long, even by far.
        keep = int(keep * min(0.9, tokens / length))
