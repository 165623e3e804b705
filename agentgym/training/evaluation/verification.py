"""Checks that recorded episodes agree with their labels, their scores and a replay."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentgym.assemble.recorded_specs import make_recorded
from agentgym.training.evaluation.ablation import LABELS, Ablation, cell_of
from agentgym.training.evaluation.provenance import difference
from agentgym.training.evaluation.scoring import (
    MALFORMED,
    hash_prompt,
    is_over_window,
    score,
)
from agentgym.training.evaluation.study_folder import Study, column_of
from agentgym.training.rollout import Episode, PolicyConfig, Trajectory, TrajectoryLog
from agentgym.training.rollout.episode import spec_of
from agentgym.training.rollout.policies import EXTERNAL
from agentgym.training.rollout.rollouts import reply_of

# Entries of a step's info that depend only on the replies.
_FACTS = ("turn", "valid", "success", "optimal", "alive")
_DETAILS = ("score", "calls", "errors", "ended")


def contradiction(study: Study, trajectory: Trajectory, *, replay: bool) -> str:
    """Return the first contradiction in a recorded episode, or an empty string. Raise
    `ValueError` or `ImportError` if the env cannot be made.
    """
    try:
        found = _of_labels(study, trajectory) or _of_scores(study, trajectory)
    except MALFORMED as error:
        return f"it contains a malformed value ({error!r})"
    return found or (_of_replay(trajectory) if replay else "")


def choose_lines(log: TrajectoryLog, count: int, seed: int | None = 0) -> set[int]:
    """Choose at most `count` lines of a log to replay; without a seed, unpredictably."""
    numbers = []
    for number, trajectory in log.readable():
        if trajectory is not None and not trajectory.failure:
            numbers.append(number)
    return set(Random(seed).sample(numbers, min(count, len(numbers))))


def _of_labels(study: Study, trajectory: Trajectory) -> str:
    if not study.runs:
        return ""
    facts = trajectory.labels.get("provenance") or {}
    kept = study.policies.get(trajectory.labels.get("policy", ""), {})
    if facts and (found := difference(kept, facts)):
        return f"its player is not that of the study: {found}"
    cell = cell_of(trajectory)
    for run in study.runs:
        values = zip(("worlds", "arms", "contexts", "horizons"), cell[:4], strict=True)
        if column_of(run) != cell.policy or any(value not in run[name] for name, value in values):
            continue
        settings = {name: value for name, value in run.items() if name != "policy"}
        expected = _ablation(json.dumps(settings)).spec(*cell[:4])
        if _recorded(str(expected.to_json())) != json.loads(trajectory.spec):
            names = ", ".join(f"{name} {trajectory.labels.get(name)}" for name in LABELS)
            return f"its env is not that of its labels ({names})"
    return ""


@lru_cache(maxsize=8)
def _ablation(settings: str) -> Ablation:
    # The default policy cannot play worlds without optimal calls.
    return Ablation(**json.loads(settings), policy=PolicyConfig(f"{EXTERNAL}:replay"))


@lru_cache(maxsize=1_024)
def _recorded(spec: str) -> Any:
    env = gymnasium.make(EnvSpec.from_json(spec), disable_env_checker=True)
    env.close()
    return json.loads(spec_of(env))


def _of_scores(study: Study, trajectory: Trajectory) -> str:
    if study.runs:
        try:
            score(trajectory)
        except ValueError as error:
            return str(error)
    if not trajectory.steps or is_over_window(trajectory):
        return ""
    info = trajectory.steps[-1].info
    points = (info.get("detail") or {}).get("score")
    if points is None:
        return ""
    # A rival's success is not the score of the best rival.
    if bool(info.get("success")) != (points >= 1) and not trajectory.outcomes():
        return f"success is {info.get('success')} with a score of {points:g}"
    paid = trajectory.seat_rewards().get(trajectory.seat, points)
    if not abs(trajectory.reward - paid) <= 1e-9:  # also if either is not a number
        return f"its rewards sum to {trajectory.reward:g} instead of {paid:g}"
    return ""


def _of_replay(trajectory: Trajectory) -> str:
    env = make_recorded(trajectory.spec)
    try:
        return next(_differences(Episode(env, trajectory.seed), trajectory), "")
    finally:
        env.close()


def _team(detail: Mapping[str, Any]) -> Any:
    return (detail.get("report") or {}).get("team")


def _differences(episode: Episode, trajectory: Trajectory) -> Iterator[str]:
    for number, step in enumerate(trajectory.steps, 1):
        detail = step.info.get("detail") or {}
        if hash_prompt(step.chat) != hash_prompt(episode.chat):
            yield f"the chat before reply {number} is not the one that a replay shows"
        if episode.over:
            yield f"it continues after a replay has ended with reply {number - 1}"
            return
        outcome = episode.play(replace(reply_of(step), usage=None))
        pairs: list[tuple[str, Any, Any]] = [("reward", step.reward, outcome.reward)]
        pairs += [(name, step.info.get(name), outcome.info.get(name)) for name in _FACTS]
        again = outcome.info.get("detail") or {}
        pairs += [(name, detail.get(name), again.get(name)) for name in _DETAILS]
        pairs.append(("the team's report", _team(detail), _team(again)))
        for name, recorded, replayed in pairs:
            if recorded != replayed:
                yield f"{name} after reply {number} is {recorded} and replays as {replayed}"
    if not episode.over:
        yield "it has ended, but a replay has not"
    elif is_over_window(trajectory) != is_over_window(episode.trajectory()):
        yield "only one of it and its replay exceeds the context window"
