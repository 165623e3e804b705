"""Context awareness: usage reports for the policy (LOCA-bench, section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from agentgym.assemble.wrapper_order import Stage
from agentgym.text.messages import Chat, Message
from agentgym.text.validation import check_bool
from agentgym.wrappers.budget import ContextBudget
from agentgym.wrappers.context import ContextWrapper

_OWNER = "awareness"
_SLACK = 12  # spare tokens, because the line's token count varies
_TRIES = 8  # maximum number of rounds; two or three usually suffice


class ContextAwareness(ContextWrapper):
    """Wrapper that states the usable window in the system message and reports token usage after
    each result.

    The reported usage covers the whole visible chat, including the report.

    Args:
        budget: The window.
        latest_only: Whether to remove earlier reports, which rewrites the prompt every turn.

    Example:
        >>> env = ContextAwareness(agentgym.make("ListWorld"), ContextBudget(window=8_000))
    """

    stage = Stage.AWARENESS

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        budget: ContextBudget | Mapping[str, Any] | None = None,
        latest_only: bool = False,
    ) -> None:
        check_bool("latest_only", latest_only)
        super().__init__(env, budget, latest_only=latest_only)
        self.latest_only = latest_only
        self.usable = self.view.budget.usable
        room = self.view.counter.length(self._line(self.usable, self.usable)) + _SLACK
        if room >= self.usable:
            raise ValueError(
                f"a usable window of {self.usable} tokens has no room for the usage line ({room}); "
                "enlarge the window"
            )
        self.view.limit = self.usable - room
        self.view.notices = f"\n\n<budget:token_budget>{self.usable}</budget:token_budget>"

    def begin(self) -> None:
        super().begin()
        self._line_id = ""

    def edit(self) -> None:
        if self.view.request is not None or not self.world_env.world.turn:
            return
        newest = self.view.newest()
        if self.latest_only and self._line_id and self._line_id != newest.id:
            self.view.annotate(self._line_id, _OWNER, "")
        self._line_id = newest.id
        self.view.annotate(newest.id, _OWNER, self._settled_line(newest))
        self.view.edit_counts[type(self).__name__] += 1

    def _settled_line(self, newest: Message) -> str:
        others = self.view.tokens - self.view.counter.count(newest)
        line = ""
        # Padding may help if the computed usage keeps alternating between two values.
        for padding in ("", " ", "  ", "\n"):
            used = self.view.tokens
            for _ in range(_TRIES):
                line = self._line(used, self.usable - used) + padding
                total = others + self.view.counter.count(self.view.with_note(newest, _OWNER, line))
                if total == used:
                    return line
                used = total
        return line

    @staticmethod
    def _line(used: int, left: int) -> str:
        return (
            f"\n\n<system_warning>Token usage: {used}/{used + left}; {max(0, left)} "
            "remaining</system_warning>"
        )
