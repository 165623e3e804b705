"""Verification: recorded episodes that contradict their labels, their scores, or a replay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from agentgym.assemble.registry import load_plugins
from agentgym.training.evaluation.ablation import LABELS, Ablation, cell_of, recorded_spec
from agentgym.training.evaluation.provenance import difference
from agentgym.training.evaluation.scoring import hash_prompt, is_over_window
from agentgym.training.evaluation.study_folder import Study, column_of
from agentgym.training.rollout import Episode, Trajectory

# all of a small study, and seconds for a large one
REPLAYED = 30
# The entries of a step's info that the replies determine.
_FACTS = ("turn", "valid", "success", "optimal", "alive")
_DETAILS = ("score", "calls", "errors", "ended")
# The packages of envs and wrappers.
_OURS = ("agentgym.play.", "agentgym.multi.", "agentgym.oracles", "agentgym.wrappers")
# A text that makes a spec import code: `package.module:name`, unlike `name:option=value`.
_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(?![\w=])")


class Verifier:
    """Find contradictions in recorded episodes of a study, replaying at most `replays` of them."""

    def __init__(self, study: Study, replays: int = REPLAYED) -> None:
        self.study, self.replays, self.replayed = study, replays, 0
        self._runs: dict[str, Ablation | None] = {}

    def contradiction(self, trajectory: Trajectory, *, replay: bool = True) -> str:
        """Return the first contradiction in words, or an empty string.

        A replay requires a spec that imports only registered code.
        """
        found = self._of_labels(trajectory) or _of_scores(trajectory)
        if found or not replay or self.replayed >= self.replays or not may_replay(trajectory):
            return found
        self.replayed += 1
        return _of_replay(trajectory)

    def _of_labels(self, trajectory: Trajectory) -> str:
        if not self.study.runs:
            return ""
        facts = trajectory.labels.get("provenance") or {}
        kept = self.study.policies.get(trajectory.labels.get("policy", ""), {})
        if facts and (found := difference(kept, facts)):
            return f"its player is not that of the study: {found}"
        cell = cell_of(trajectory)
        for run in self.study.runs:
            ablation = self._ablation(run)
            shared = cell.world in run["worlds"] and cell.arm in run["arms"]
            if ablation is None or column_of(run) != cell.policy or not shared:
                continue
            if cell.horizon in run["horizons"] and cell.context in run["contexts"]:
                expected = _expected(str(ablation.spec(*cell[:4]).to_json()))
                if expected != json.loads(trajectory.spec):
                    names = ", ".join(f"{name} {trajectory.labels.get(name)}" for name in LABELS)
                    return f"its env is not that of its labels ({names})"
        return ""

    def _ablation(self, run: Mapping[str, Any]) -> Ablation | None:
        """Return a run of the study; None if its settings name code to import."""
        settings = {name: value for name, value in run.items() if name != "policy"}
        key = json.dumps(settings)
        if key not in self._runs:
            self._runs[key] = None if _names_code(settings) else Ablation(**settings)
        return self._runs[key]


@lru_cache(maxsize=1_024)  # the seeds of a cell ask for the same one
def _expected(spec: str) -> Any:
    return json.loads(recorded_spec(EnvSpec.from_json(spec)))


def _of_scores(trajectory: Trajectory) -> str:
    if not trajectory.steps or is_over_window(trajectory):
        return ""
    info = trajectory.steps[-1].info
    score = (info.get("detail") or {}).get("score")
    if score is None:
        return ""
    if bool(info.get("success")) != (score >= 1):
        return f"success is {info.get('success')} with a score of {score:g}"
    if abs(trajectory.reward - score) > 1e-9:
        return f"its rewards sum to {trajectory.reward:g} with a score of {score:g}"
    return ""


def may_replay(trajectory: Trajectory) -> bool:
    """Report whether a replay runs only registered code: a log must not choose the code to import."""
    if trajectory.failure or not trajectory.steps:
        return False
    spec = json.loads(trajectory.spec)
    load_plugins()
    known = gymnasium.registry.get(spec["id"])
    kwargs = dict(spec["kwargs"])
    if known is None or known.kwargs.get("world") != kwargs.pop("world", None):
        return False
    for part in ({**spec, "kwargs": kwargs}, *spec["additional_wrappers"]):
        if not part["entry_point"].startswith(_OURS) or _names_code(part["kwargs"]):
            return False
    return True


def _names_code(value: Any) -> bool:
    if isinstance(value, str):
        return any(_CODE.match(part) for part in value.split("+"))
    if isinstance(value, Mapping):
        return any(_names_code(part) for part in [*value, *value.values()])
    return isinstance(value, (list, tuple)) and any(map(_names_code, value))


def _of_replay(trajectory: Trajectory) -> str:
    env = gymnasium.make(EnvSpec.from_json(trajectory.spec), disable_env_checker=True)
    try:
        return next(_differences(Episode(env, trajectory.seed), trajectory), "")
    finally:
        env.close()


def _differences(episode: Episode, trajectory: Trajectory) -> Iterator[str]:
    for number, step in enumerate(trajectory.steps, 1):
        detail = step.info.get("detail") or {}
        if hash_prompt(step.chat) != hash_prompt(episode.chat):
            yield f"the chat before reply {number} is not the one that a replay shows"
        if detail.get("ended") == "left" or (
            number == len(trajectory.steps) and is_over_window(trajectory)
        ):
            return  # nobody replied
        if episode.over:
            yield f"it continues after a replay has ended with reply {number - 1}"
            return
        outcome = episode.play(step.reply)
        pairs: list[tuple[str, Any, Any]] = [("reward", step.reward, outcome.reward)]
        pairs += [(name, step.info.get(name), outcome.info.get(name)) for name in _FACTS]
        again = outcome.info.get("detail") or {}
        pairs += [(name, detail.get(name), again.get(name)) for name in _DETAILS]
        for name, recorded, replayed in pairs:
            if recorded != replayed:
                yield f"{name} after reply {number} is {recorded} and replays as {replayed}"
    if trajectory.terminated and not episode.over:
        yield "it has ended, but a replay has not"
