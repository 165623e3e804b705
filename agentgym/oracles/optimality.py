"""Labels of step optimality (LUMINA, section 3: step accuracy)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import gymnasium

from agentgym.messages import Chat, ToolCall
from agentgym.stacks import register_option
from agentgym.stages import Stage, StagedWrapper
from agentgym.world import World


class StepOptimality(StagedWrapper[Chat, str, Chat, str]):
    """Wrapper that adds `optimal` and `alive` to `info`, and `labels` in worlds that label each
    call (`World.label_calls`).

    `optimal` says whether every call of the reply was carried out and among the optimal ones; a
    reply without a readable call is not optimal. `alive` says whether success was still possible
    before the reply. Both are None where the world does not define optimality, and after a reset.
    `labels` has the world's word for each call of the reply, and `invalid` for one that failed; a
    reply is then optimal if all its calls are `optimal` or `neutral`, and at least one is
    `optimal`, unless the world says that its labels do not decide it (`World.labels_decide`). All
    this is for the researcher; no view contains it.

    Example:
        >>> env = StepOptimality(gymnasium.make("agentgym/ListWorld-v0"))
    """

    def __init__(self, env: gymnasium.Env[Chat, str]) -> None:
        super().__init__(env)

    def reset(self, **options: Any) -> tuple[Chat, dict[str, Any]]:
        """Reset; there is no step to label yet."""
        chat, info = self.env.reset(**options)
        labels = {} if self.world_env.world.label_calls() is None else {"labels": ()}
        return chat, {**info, "optimal": None, "alive": None, **labels}

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        """Label the step against the optimal set before it."""
        world, guard = self.world_env.world, self.world_env.guard
        best: Sequence[ToolCall] | None = None
        label_calls: Callable[[Sequence[ToolCall]], Sequence[str]] | None = None
        with guard.watch("labels"):
            best, label_calls = world.optimal_calls(), world.label_calls()
        start = len(self.world_env.chat.messages)
        chat, reward, terminated, truncated, info = self.env.step(action)
        labels: dict[str, Any] = {"optimal": None, "alive": None}
        if label_calls is not None:
            labels["labels"] = ()
        # A tool that broke says nothing of the policy, and may have led to another world.
        if best is not None and not info["detail"].faults:
            with guard.watch("labels"):
                labels = self._label(world, best, label_calls, start, all_ran=info["valid"])
        return chat, reward, terminated, truncated, {**guard.add_faults(info), **labels}

    def _label(
        self,
        world: World[Any],
        best: Sequence[ToolCall],
        label_calls: Callable[[Sequence[ToolCall]], Sequence[str]] | None,
        start: int,
        all_ran: bool,
    ) -> dict[str, Any]:
        """Return the labels of the reply at a place of the chat, by what was optimal before it."""
        reply, *answers = self.world_env.chat.messages[start:]
        all_best = all_ran and bool(reply.calls) and all(call in best for call in reply.calls)
        if label_calls is None:
            return {"optimal": all_best, "alive": bool(best)}
        outcomes = [
            (call, not answer.text.startswith("error:"))
            for call, answer in zip(reply.calls, answers, strict=False)
        ]
        world_labels = iter(label_calls([call for call, ran in outcomes if ran]))
        labels = tuple(next(world_labels) if ran else "invalid" for _, ran in outcomes)
        all_good = "optimal" in labels and set(labels) <= {"optimal", "neutral"}
        optimal = all_good if world.labels_decide else all_best
        return {"optimal": optimal, "alive": bool(best), "labels": labels}


# Inside the oracles, so that the labels are those of the world's own messages.
register_option("labels", StepOptimality, Stage.HINTS)
