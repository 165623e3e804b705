"""Scores of episodes, success and step accuracy (LUMINA, section 4.2), from trajectories alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from statistics import fmean
from typing import Any

from agentgym.assemble.wrapper_stack import check_context, strategies
from agentgym.play.policy import Policy
from agentgym.training.rollout import EnvLike, Trajectory, Usage, collect, usage
from agentgym.world.digests import digest

CELL = ("policy", "world", "arm", "context", "horizon")
"""The fields of `Result` that identify an episode's cell in the tables."""
# Env arguments that change how an instance is shown, not which one it is.
_SHOWN_ONLY = ("dialect", "parallel_calls", "render_mode", "stacks")


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one episode.

    Attributes:
        world: The short name of the world.
        arm: The oracle arm: ``""``, `S`, `P`, `SP`, `SH` or `SPH`.
        horizon: The requested size: turns of an optimal policy, or the value of the option `axis`.
        seed: The seed of the instance; one seed is one statistical cluster.
        success: 1.0 if the task was solved, else 0.0.
        steps: The number of labelled steps.
        optimal: The number of optimal steps.
        alive: The number of steps before which success was still possible.
        alive_optimal: The number of optimal steps among those.
        context: The context strategies, joined by `+`; `none` without one.
        usage: The episode's tokens, if context wrappers counted them.
        report: The world's final report; None if there is none.
        axis: The meaning of the size: `horizon`, or an option of the world.
        calls: The number of tool calls, including those made by code.
        policy: The policy's column.
        sample: The index of the instance's sample.
        instance: A digest of everything that determines the instance; equal for all arms.
        prompt: A digest of the first prompt.
        tokens: The tokens of all prompts and all replies, if counted.
        model: The policy's model, or its name if it has an alias.
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
    policy: str = ""
    sample: int = 0
    instance: str = ""
    prompt: str = ""
    tokens: tuple[int, int] | None = None
    model: str = ""


def score(trajectory: Trajectory) -> Result:
    """Return the figures of an episode recorded by an ablation with `StepOptimality`.

    Raises:
        ValueError: The trajectory lacks its world, arm or horizon, has no steps, or is a failure.
    """
    labels = trajectory.labels
    if trajectory.failure:
        raise ValueError(
            f"the episode of seed {trajectory.seed} failed ({trajectory.failure}) and has no score, "
            "so leave it out"
        )
    if missing := [name for name in ("world", "arm", "horizon") if name not in labels]:
        raise ValueError(
            f"the trajectory of seed {trajectory.seed} has no label {missing[0]!r}: record it with "
            "an ablation"
        )
    if not trajectory.steps:
        raise ValueError(f"the trajectory of seed {trajectory.seed} has no steps")
    labelled = [step.info for step in trajectory.steps if step.info.get("optimal") is not None]
    alive = [info for info in labelled if info["alive"]]
    return Result(
        world=labels["world"],
        arm=labels["arm"],
        horizon=labels["horizon"],
        seed=trajectory.seed,
        success=float(trajectory.steps[-1].info["success"]),
        steps=len(labelled),
        optimal=sum(info["optimal"] for info in labelled),
        alive=len(alive),
        alive_optimal=sum(info["optimal"] for info in alive),
        context=labels.get("context", "none"),
        usage=usage(trajectory),
        report=trajectory.steps[-1].info["detail"].get("report"),
        axis=labels.get("axis", "horizon"),
        calls=sum(
            detail["calls"] + len(detail.get("nested", ()))
            for detail in (step.info["detail"] for step in trajectory.steps)
        ),
        policy=labels.get("policy", ""),
        sample=labels.get("sample", 0),
        instance=_instance_of(trajectory.spec, trajectory.seed),
        prompt=labels.get("prompt", ""),
        tokens=tuple(labels["tokens"]) if "tokens" in labels else None,
        model=_model_of(labels),
    )


def _model_of(labels: Mapping[str, Any]) -> str:
    facts = labels.get("provenance", {})
    name = facts.get("model") or facts.get("policy", "")
    return "" if name == labels.get("policy", "") else str(name)


@lru_cache(maxsize=4_096)  # the arms of an ablation ask for the same ones in turn
def _instance_of(spec: str, seed: int) -> str:
    """Return the digest of a spec's world, options and seed."""
    kwargs = json.loads(spec).get("kwargs", {})
    drawn = {name: value for name, value in kwargs.items() if name not in _SHOWN_ONLY}
    return digest([drawn, seed])


def group_by(results: Iterable[Result], *fields: str) -> dict[Any, list[Result]]:
    """Group the episodes by the value of a field, or by a tuple of several fields, keeping their
    order.
    """
    key = attrgetter(*fields)
    groups: dict[Any, list[Result]] = {}
    for row in results:
        groups.setdefault(key(row), []).append(row)
    return groups


def ordered_contexts(results: Iterable[Result]) -> list[str]:
    """Return the played context strategies in the order of the paper's table: none, single ones,
    then stacks.
    """

    def place(context: str) -> tuple[int, list[int], str]:
        names = check_context(context)
        return len(names), [strategies().index(name) for name in names], context

    return sorted({row.context for row in results}, key=place)


def without_failures(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Return the episodes without failures, which do not measure the policy and must not count as
    lost.

    Raises:
        RuntimeError: Every episode is a failure.
    """
    trajectories = list(trajectories)
    complete = [trajectory for trajectory in trajectories if not trajectory.failure]
    if not complete:
        cause = f": {trajectories[0].failure}" if trajectories else ""
        raise RuntimeError(
            f"none of {len(trajectories)} episodes was completed{cause}; fix the workers "
            "or the endpoint first"
        )
    return complete


def describe_failures(trajectories: Iterable[Trajectory]) -> Iterator[str]:
    """Yield a line about omitted failures, if there are any."""
    causes = Counter(trajectory.failure for trajectory in trajectories if trajectory.failure)
    if causes:
        cause, count = causes.most_common(1)[0]
        yield (
            f"excluded {causes.total()} episodes that do not measure the policy; {count} of "
            f"them: {cause}"
        )


def success_rate(trajectories: Iterable[Trajectory]) -> float:
    """Return the share of solved episodes."""
    return fmean(float(trajectory.steps[-1].info["success"]) for trajectory in trajectories)


def evaluate(policy: Policy, env: EnvLike, episodes: int, num_envs: int = 64) -> float:
    """Return the share of episodes that a policy solves, on seeds from 0 on, which training does
    not use.

    Failures do not count.

    Raises:
        RuntimeError: Every episode is a failure.
    """
    return success_rate(without_failures(collect(policy, env, range(episodes), num_envs)))
