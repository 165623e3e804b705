"""What an episode was worth: success and step accuracy (LUMINA, section 4.2), from its trajectory alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentgym.stacks import check_context, strategies
from agentgym.training.rollout.token_usage import Usage, usage
from agentgym.training.rollout.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one episode.

    Attributes:
        world: The short name of the world.
        arm: The oracle arm: ``""``, `S`, `P`, `SP`, `SH` or `SPH`.
        horizon: The size that was asked for: turns of an optimal policy, or the value of the option `axis`.
        seed: The seed of the instance; one seed is one cluster in the statistics.
        success: 1.0 if the task was solved, else 0.0.
        steps: Steps with a label.
        optimal: Steps that were optimal.
        alive: Steps before which success was still possible.
        alive_optimal: Steps among those that were optimal.
        context: The context strategies, joined by `+`; `none` if there was none.
        usage: The tokens of the episode, if context wrappers counted them.
        report: What the world reported at the end; None if it reports nothing.
        axis: What sets the sizes: `horizon`, or an option of the world.
        calls: Calls of tools, those made by code included.
    """

    world: str
    arm: str
    horizon: int
    seed: int
    success: float
    steps: int
    optimal: int
    alive: int
    alive_optimal: int
    context: str = "none"
    usage: Usage | None = None
    report: Mapping[str, Any] | None = None
    axis: str = "horizon"
    calls: int = 0


def score(trajectory: Trajectory) -> Result:
    """The figures of an episode that an ablation recorded, with `StepOptimality` in its stack.

    Raises:
        ValueError: The trajectory says nothing about its world, arm and horizon, or has no steps, or is not the policy's doing.
    """
    labels = trajectory.labels
    if trajectory.failure:
        raise ValueError(f"the episode of seed {trajectory.seed} broke ({trajectory.failure}); it has no score, so leave it out")
    if missing := [name for name in ("world", "arm", "horizon") if name not in labels]:
        raise ValueError(f"the trajectory of seed {trajectory.seed} has no label {missing[0]!r}: record it with an ablation")
    if not trajectory.steps:
        raise ValueError(f"the trajectory of seed {trajectory.seed} has no steps")
    marked = [step.info for step in trajectory.steps if step.info.get("optimal") is not None]
    alive = [info for info in marked if info["alive"]]
    return Result(
        world=labels["world"],
        arm=labels["arm"],
        horizon=labels["horizon"],
        seed=trajectory.seed,
        success=float(trajectory.steps[-1].info["success"]),
        steps=len(marked),
        optimal=sum(info["optimal"] for info in marked),
        alive=len(alive),
        alive_optimal=sum(info["optimal"] for info in alive),
        context=labels.get("context", "none"),
        usage=usage(trajectory),
        report=trajectory.steps[-1].info["detail"].get("report"),
        axis=labels.get("axis", "horizon"),
        calls=sum(detail["calls"] + len(detail.get("nested", ())) for detail in (step.info["detail"] for step in trajectory.steps)),
    )


def ordered_contexts(results: Iterable[Result]) -> list[str]:
    """The context strategies that were played, as the paper's table has them: none, single ones, then stacks."""

    def place(context: str) -> tuple[int, list[int]]:
        names = check_context(context)
        return len(names), [strategies().index(name) for name in names]

    return sorted({row.context for row in results}, key=place)
