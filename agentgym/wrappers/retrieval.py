"""Retrieval: only the tool results most similar to the task stay (AgentLongBench, appendix E)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from agentgym.text.messages import SYSTEM_ID, Chat, Message
from agentgym.text.search import Dense, Lexical, load_embed
from agentgym.text.validation import check_int
from agentgym.wrappers.budget import ContextBudget, Load, Trigger, read_budget, read_trigger
from agentgym.wrappers.clearing import PLACEHOLDER, ClearToolResults


class Retrieval(ClearToolResults):
    """Wrapper that keeps the newest reply's results and the results most similar to the task.

    Args:
        budget: The window.
        trigger: When to clear.
        keep: The number of results that stay; the paper's baselines keep five.
        embed: The embedding function, `wordllama` or `package.module:function`; by default, BM25
            measures similarity.
        placeholder: The text that replaces a result.

    Example:
        >>> env = Retrieval(agentgym.make("ListWorld"), ContextBudget(window=8_000), keep=3)
    """

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        budget: ContextBudget | Mapping[str, Any] | None = None,
        trigger: Trigger | Mapping[str, Any] | str = "0.75",
        keep: int = 5,
        embed: str = "",
        placeholder: str = PLACEHOLDER,
    ) -> None:
        check_int("keep", keep, 1, 1_000_000)
        self._embed = load_embed(embed) if embed else None
        trigger = read_trigger("trigger", trigger)
        # Record the arguments before the base class records its own arguments.
        gymnasium.utils.RecordConstructorArgs.__init__(
            self,
            budget=read_budget(budget),
            trigger=trigger,
            keep=keep,
            embed=embed,
            placeholder=placeholder,
        )
        super().__init__(env, budget, trigger, keep=keep, placeholder=placeholder)

    def _uses(self) -> tuple[list[tuple[Message, Message]], int]:
        uses, _ = super()._uses()
        # BM25 divides by the average number of words, so each text needs at least one word.
        texts = [f"result\n{result.text}" for _, result in uses]
        if not texts:
            return [], 0
        index = Dense.of(texts, self._embed) if self._embed else Lexical.of(texts)
        kept = {uses[place][1].id for place in index.best(self._task(), self.keep)}
        _, newest = self.view.split_turns()
        for turn in newest:
            kept.update(answer.id for answer in turn.answers)
        cleared = [use for use in uses if use[1].id not in kept]
        return cleared, len(cleared)

    def _task(self) -> str:
        pinned = self.view.chat.messages[: self.view.chat.pinned()]
        return "\n".join(message.text for message in pinned if message.id != SYSTEM_ID)

    def _reached(self, load: Load) -> bool:
        return False  # one edit clears all other results
