"""Success and step accuracy (LUMINA, section 4.2) of trajectories."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from statistics import fmean
from typing import Any

from agentgym.assemble.wrapper_stack import check_context, strategies
from agentgym.oracles import sort_arms
from agentgym.text.messages import Chat
from agentgym.training.rollout import Collector, EnvLike, PolicyLike, Trajectory, Usage, usage
from agentgym.training.rollout.policies import SCRIPTED, read_seats
from agentgym.training.rollout.seat_policies import against
from agentgym.world.digests import digest

# Fields of `Result` that identify a cell of a table.
CELL = ("policy", "world", "arm", "context", "horizon")
# Env arguments that change only how an instance is presented.
_SHOWN_ONLY = ("dialect", "parallel_calls", "render_mode", "stacks")
# Truncation reasons that mean the model's context window was exceeded.
_OVER_WINDOW = {"over_window", "context_overflow"}
# Prefixes of endpoint errors that mean that the context window was exceeded.
_OVER_WINDOW_FAILURES = ("over_window", "ContextLengthError")
# Errors raised for values of wrong types, which a log from another person may contain.
MALFORMED = (AttributeError, LookupError, OverflowError, StopIteration, TypeError)
# Wrappers that have a budget but are not context strategies.
_NO_EDITORS = {"ContextAwareness", "Trim"}


@dataclass(frozen=True, slots=True)
class Result:
    """The metrics of one episode, or the record of a missing episode.

    Attributes:
        arm: The oracle arm: ``""``, `S`, `P`, `SP`, `SH` or `SPH`.
        horizon: The requested size: the turns of optimal play, or the value of the option `axis`.
        success: 1.0 or 0.0; among rivals, whether the played or first seat won or drew.
        alive: The number of steps taken while success was still possible.
        calls: The number of tool calls, including calls made by the policy's code.
        instance: A digest of everything that determines the instance, so all arms share it.
        opening: A digest of the first prompt and reply, which detects repeated samples; empty for
            scripted policies, whose random choices depend on the instance.
        missing: `lost`, `invalid` or `not played` if the episode has no metrics.
    """

    world: str
    arm: str
    horizon: int
    seed: int
    success: float = 0.0
    steps: int = 0
    optimal: int = 0
    alive: int = 0
    alive_optimal: int = 0
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
    replies: int = 0
    unreadable: int = 0
    over_window: bool = False
    idle: tuple[str, ...] = ()
    opening: str = ""
    missing: str = ""


def score(trajectory: Trajectory) -> Result:
    """Score an episode recorded with `StepOptimality`; an episode that exceeded the window
    counts as unsolved.

    Raises:
        ValueError: The trajectory has a `failure`, has no steps, lacks the label for world, arm or
            horizon, or contains a value of a wrong type.
    """
    try:
        return _score(trajectory)
    except MALFORMED as error:
        raise ValueError(
            f"the episode of seed {trajectory.seed} contains a malformed value ({error!r}), so omit it"
        ) from error


def _score(trajectory: Trajectory) -> Result:
    labels = trajectory.labels
    over_window = is_over_window(trajectory)
    _check_scorable(trajectory, over_window)
    infos = [step.info for step in trajectory.steps]
    labelled, alive, calls = [], [], 0
    for info in infos:
        calls += info["detail"]["calls"] + len(info["detail"].get("nested", ()))
        if info.get("optimal") is not None:
            labelled.append(info["optimal"])
            if info["alive"]:
                alive.append(info["optimal"])
    prompt = opening = ""
    if trajectory.steps:
        prompt = hash_prompt(trajectory.steps[0].chat)
        if not _draws_by_instance(labels):
            opening = digest([prompt, trajectory.steps[0].reply.text])
    return Result(
        world=labels["world"],
        arm=labels["arm"],
        horizon=labels["horizon"],
        seed=trajectory.seed,
        success=0.0 if over_window else _success(trajectory),
        steps=len(labelled),
        optimal=sum(labelled),
        alive=len(alive),
        alive_optimal=sum(alive),
        context=labels.get("context", "none"),
        usage=usage(trajectory),
        report=infos[-1]["detail"].get("report") if infos else None,
        axis=labels.get("axis", "horizon"),
        calls=calls,
        policy=labels.get("policy", ""),
        sample=labels.get("sample", 0),
        instance=instance_of(trajectory.spec, trajectory.seed),
        prompt=prompt,
        tokens=tuple(labels["tokens"]) if "tokens" in labels else None,
        model=_model_of(labels),
        replies=len(infos),
        unreadable=sum(map(is_unreadable, infos)),
        over_window=over_window,
        idle=_idle(trajectory),
        opening=opening,
    )


def _check_scorable(trajectory: Trajectory, over_window: bool) -> None:
    if trajectory.failure and not over_window:
        raise ValueError(
            f"the episode of seed {trajectory.seed} failed ({trajectory.failure}) and has no score, "
            "so omit it"
        )
    for name in ("world", "arm", "horizon"):
        if name not in trajectory.labels:
            raise ValueError(
                f"the trajectory of seed {trajectory.seed} has no label {name!r}; record it with "
                "an ablation"
            )
    if not trajectory.steps and not over_window:
        raise ValueError(f"the trajectory of seed {trajectory.seed} has no steps")


def is_over_window(trajectory: Trajectory) -> bool:
    """Report whether an episode exceeded the model's context window."""
    if trajectory.failure.startswith(_OVER_WINDOW_FAILURES):
        return True
    if not trajectory.steps:
        return False
    info = trajectory.steps[-1].info
    reasons = {value for value in info.values() if isinstance(value, str)}
    ended = (info.get("detail") or {}).get("ended")
    return bool(reasons & _OVER_WINDOW or ended in _OVER_WINDOW or info.get("over_window"))


def is_unreadable(info: Mapping[str, Any]) -> bool:
    """Report whether a step's reply contained no readable tool call or answer."""
    detail = info["detail"]
    if detail.get("ended") in _OVER_WINDOW:  # there was no reply
        return False
    return not info.get("valid", True) and not detail["calls"]


def _idle(trajectory: Trajectory) -> tuple[str, ...]:
    ignored = set(_NO_EDITORS)
    for step in trajectory.steps:
        edits = step.info.get("context", {}).get("edits", ())
        ignored.update(edit["strategy"] for edit in edits)
    idle = []
    for each in json.loads(trajectory.spec).get("additional_wrappers") or ():
        if (each["kwargs"] or {}).get("budget") and each["name"] not in ignored:
            idle.append(each["name"])
    return tuple(idle)


def _draws_by_instance(labels: Mapping[str, Any]) -> bool:
    name = str(labels.get("provenance", {}).get("policy", ""))
    names = read_seats(name).values() or [name]
    return all(each.partition(":")[0] in SCRIPTED for each in names)


def hash_prompt(chat: Chat) -> str:
    """Return a digest of a prompt, ignoring ids and timestamps, which differ between episodes."""
    messages = []
    for message in chat.messages:
        data = message.to_dict()
        for name in ("id", "moment", "call_id"):
            data.pop(name, None)
        messages.append(data)
    return digest([messages, list(chat.tools)])


def _model_of(labels: Mapping[str, Any]) -> str:
    facts = labels.get("provenance", {})
    name = facts.get("model") or facts.get("policy", "")
    return "" if name == labels.get("policy", "") else str(name)


@lru_cache(maxsize=4_096)  # all arms share instances
def instance_of(spec: str, seed: int) -> str:
    """Return the digest of a spec's world, options and seed."""
    kwargs = json.loads(spec).get("kwargs", {})
    drawn = {name: value for name, value in kwargs.items() if name not in _SHOWN_ONLY}
    return digest([drawn, seed])


def group_by(results: Iterable[Result], *fields: str) -> dict[Any, list[Result]]:
    """Group the episodes by one or more fields, keeping their order."""
    key = attrgetter(*fields)
    groups: dict[Any, list[Result]] = {}
    for row in results:
        groups.setdefault(key(row), []).append(row)
    return groups


def distinct(results: Iterable[Result], *fields: str) -> list[Any]:
    """Return the distinct values of one or more fields, keeping their order."""
    return list(dict.fromkeys(map(attrgetter(*fields), results)))


def played(rows: Iterable[Result]) -> list[Result]:
    """Return the episodes that are not missing."""
    return [row for row in rows if not row.missing]


def ordered_arms(results: Iterable[Result]) -> list[str]:
    """Return the arms in the papers' order."""
    return sort_arms(distinct(results, "arm"))


def ordered_contexts(results: Iterable[Result]) -> list[str]:
    """Return the played context strategies in order: none, single strategies, combinations."""

    def place(context: str) -> tuple[int, list[int], str]:
        names = check_context(context)
        return len(names), [strategies().index(name) for name in names], context

    return sorted(distinct(results, "context"), key=place)


def without_failures(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Return the episodes without failures; `RuntimeError` if none is left."""
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


def _success(trajectory: Trajectory) -> float:
    info = trajectory.steps[-1].info
    team = (info["detail"].get("report") or {}).get("team", {})
    if "winners" in team:
        return float((trajectory.seat or next(iter(team["rewards"]))) in team["winners"])
    return float(info["success"])


def success_rate(trajectories: Iterable[Trajectory], opponents: Collection[str] = ()) -> float:
    """Return the share of solved episodes; with opponents, the share of games won against them."""
    return fmean(_success_against(trajectory, opponents) for trajectory in trajectories)


def _success_against(trajectory: Trajectory, opponents: Collection[str]) -> float:
    if opponents:
        outcomes = trajectory.outcomes()
        own = [outcomes[agent] for agent in outcomes if agent not in opponents]
        if own:
            return float("won" in own)
    return float(trajectory.steps[-1].info["success"])


def evaluate(
    policy: PolicyLike,
    env: EnvLike,
    episodes: int,
    num_envs: int = 64,
    opponents: Mapping[str, PolicyLike] | None = None,
) -> float:
    """Return the success rate on seeds 0, 1, ..., which training does not use.

    Raises:
        RuntimeError: Every episode has a `failure`.
    """
    rivals = opponents or {}
    with Collector(env, num_envs) as collector:
        player = against(policy, rivals, collector.agents)
        played = without_failures(collector.collect(player, range(episodes)))
    return success_rate(played, rivals)
