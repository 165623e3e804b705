"""Controls of the oracle method: an agent with a planted deficit, and an agent that no hint can
help.

A credible method finds only the planted deficit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.assemble.registry import make
from agentgym.oracles import ControlPolicy, NoisyPolicy
from agentgym.oracles.policies import Deficits
from agentgym.play.policy import Policy
from agentgym.text.validation import check_int
from agentgym.training.evaluation.intervals import effects
from agentgym.training.evaluation.scoring import Result, score
from agentgym.training.evaluation.statistics import Interval
from agentgym.training.rollout import rollout

METRICS = ("success", "step_accuracy")
# Deficits that about twenty episodes can reveal, by the intervention that removes the deficit.
DEFICITS: Mapping[str, Deficits] = {
    "P": Deficits(planning=0.15),
    "S": Deficits(tracking=0.1),
    "H": Deficits(distraction=0.05),
}
# error rate that no hint can reduce
NOISE = 0.1

# arms without and with the oracle that removes a deficit
_ARMS: Mapping[str, Sequence[str]] = {"P": ("", "P"), "S": ("", "S"), "H": ("S", "SH")}
_NULL_ARMS = ("", "P", "S", "SH")
# a budget that leaves no room for errors
_TIGHT: Mapping[str, Any] = {"budget_factor": 1.0, "budget_slack": 0}

# options that make episodes long enough for every deficit; unlisted worlds use `OFFICE`
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "ListWorld": {"items": 24, "removals": 11, **_TIGHT},
    "TreeWorld": {"nodes": 16, **_TIGHT},
    "GridWorld": {"size": 12, "distance": 11, **_TIGHT},
    "DocumentWorld": {},
    "CodeWorld": {},
    "MultimodalWorld": {},
    "PuzzleWorld": {"puzzles": 3, "items": 200, **_TIGHT},
    "LongContextQA": {"rounds": 30, "task": "count_frequency_env", **_TIGHT},
    "SearchWorld": {"premises": 16, "tasks": 60, **_TIGHT},
    "CommonsWorld": {**_TIGHT},
    "PursuitWorld": {**_TIGHT},
    "BargainWorld": {**_TIGHT},
    "RaceWorld": {**_TIGHT},
    "SignalWorld": {**_TIGHT},
}
OFFICE: Mapping[str, Any] = {"size": 4, **_TIGHT}


@dataclass(frozen=True, slots=True)
class Control:
    """The effects of hints on both control agents in one world.

    `planted` contains each intervention's effect on the agent with the matching deficit, by letter
    and metric; `null` contains the effect on the agent that no hint can help.
    """

    world: str
    options: Mapping[str, Any]
    seeds: int
    steps: float
    planted: Mapping[str, Mapping[str, Interval]]
    null: Mapping[str, Mapping[str, Interval]]

    def found(self, letter: str) -> bool:
        """Report whether success or step accuracy reveals the deficit for an oracle letter."""
        return any(interval.low > 0 for interval in self.planted[letter].values())

    def false_findings(self) -> tuple[int, int]:
        """Return how many effects in `null` are significant, and how many effects there are."""
        intervals = [each for metrics in self.null.values() for each in metrics.values()]
        return sum(not each.low <= 0 <= each.high for each in intervals), len(intervals)


def run_controls(world: str, seeds: int = 20) -> Control:
    """Play both agents in a world with the options in `SETTINGS`.

    Arms use independent random numbers, so no two results are equal by construction.
    """
    check_int("seeds", seeds, 2, 100_000)
    options = SETTINGS.get(world, OFFICE)
    arms = sorted({arm for pair in (*_ARMS.values(), _NULL_ARMS) for arm in pair})
    envs = {arm: make(world, oracles=arm, labels=True, **options) for arm in arms}

    def play(policy: Policy, arm: str, seed: int) -> Result:
        labels = {"world": world, "arm": arm, "horizon": 0, "provenance": {"policy": "control"}}
        return score(rollout(policy, envs[arm], seed, labels))

    planted: dict[str, list[Result]] = {letter: [] for letter in DEFICITS}
    null: list[Result] = []
    # The outer loop iterates over instances, because offices cache recent initial states.
    for seed in range(seeds):
        for letter, deficits in DEFICITS.items():
            planted[letter] += [
                play(ControlPolicy(world, deficits, number), arm, seed)
                for number, arm in enumerate(_ARMS[letter])
            ]
        null += [
            play(NoisyPolicy(world, NOISE, number), arm, seed)
            for number, arm in enumerate(_NULL_ARMS)
        ]
    played = [*null, *(row for rows in planted.values() for row in rows)]
    return Control(
        world,
        options,
        seeds,
        sum(row.steps for row in played) / len(played),
        {letter: _effect(rows, letter) for letter, rows in planted.items()},
        {
            letter: _effect([row for row in null if row.arm in _ARMS[letter]], letter)
            for letter in DEFICITS
        },
    )


def _effect(rows: Sequence[Result], letter: str) -> dict[str, Interval]:
    return {metric: effects(rows, (), metric)[letter,] for metric in METRICS}
