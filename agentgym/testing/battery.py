"""Audit a world: policies that ignore the task (shortcuts) must not earn rewards.

Shortcuts learn from demonstrations on training seeds and play test seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from agentgym.assemble.adversaries import adversaries
from agentgym.assemble.registry import make
from agentgym.oracles import RandomPolicy
from agentgym.play.env import ToolEnv, tool_env
from agentgym.play.policy import Policy
from agentgym.testing.blind import learn_shortcuts, opaque_ids
from agentgym.testing.guesses import options
from agentgym.testing.playing import (
    Act,
    Transcript,
    demonstrations,
    play,
    play_at_random,
    play_optimally,
    play_policy,
    start,
)
from agentgym.text.tools import Tool
from agentgym.training.evaluation import Interval, Table, percent, wilson
from agentgym.world.config import Config

# maximum score allowed for a shortcut, unless the chance score is higher
CAP = 0.10
# with fifteen or more shortcuts, 95% intervals would often misjudge at least one
CONFIDENCE = 0.99
# The first seeds for random play and for training are far above the audit's seeds (0, 1, ...).
_CHANCE_SEED, _TRAINING_SEED = 10**6, 2 * 10**6
_REPEATED = "ids of other seeds"
# The audit also reports these shares of episodes.
MEASURES: Mapping[str, str] = {
    _REPEATED: "the oracle uses an opaque id that already occurred in training",
}


@dataclass(frozen=True)
class AuditConfig(Config):
    """Settings of an audit.

    Attributes:
        world: The id of a world or preset.
        seeds: Number of episodes per policy; if 60 of 60 fail, the interval stays below 0.10.
        demonstrations: The number of episodes from which shortcuts learn.
        options: Options of the world.
        splits: Whether to learn on the train split and audit on the test split; otherwise, both
            use all instances, with different seeds.
    """

    world: str
    seeds: Annotated[int, Field(ge=1, le=100_000)] = 200
    demonstrations: Annotated[int, Field(ge=4, le=10_000)] = 100
    options: Mapping[str, Any] = field(default_factory=dict)
    splits: bool = True


@dataclass(frozen=True)
class Ceiling:
    """Maximum score allowed for a shortcut, fixed before any shortcut plays.

    The source of `chance` is `stated` (by the world), `enumerated` (from schemas and prompts) or
    `estimated` (from random calls on reserved seeds).
    """

    chance: float
    source: str

    @property
    def value(self) -> float:
        return max(CAP, self.chance)

    def verdict(self, interval: Interval) -> str:
        """Judge a score's interval: `holds`, `leak`, or `undecided` if more seeds are needed.

        If `chance` is at least `CAP`, an interval that contains the ceiling also holds.
        """
        if interval.low > self.value:
            return "leak"
        return "holds" if interval.high <= self.value or self.chance >= CAP else "undecided"


@dataclass(frozen=True)
class Row:
    """Audit result of one policy or one measure.

    Attributes:
        kind: `shortcut`, `measure` or `baseline`.
        interval: The mean score, or a measure's share of episodes, with a 99% interval.
        verdict: `holds`, `leak` or `undecided`; empty for a baseline.
    """

    name: str
    kind: str
    interval: Interval
    seeds: int
    verdict: str = ""


@dataclass(frozen=True)
class Audit:
    """Result of an audit; baselines are the last rows."""

    world: str
    ceiling: Ceiling
    rows: Sequence[Row]

    @property
    def leaks(self) -> list[Row]:
        return [row for row in self.rows if row.verdict == "leak"]

    @property
    def verdict(self) -> str:
        verdicts = {row.verdict for row in self.rows}
        for worst in ("leak", "undecided"):
            if worst in verdicts:
                return worst
        return "holds"

    def table(self) -> Table:
        """Return the results as a table."""
        rows = []
        for row in self.rows:
            rows.append([row.name, row.kind, percent(row.interval), str(row.seeds), row.verdict])
        title = (
            f"{self.world}: scores in percent with 99% intervals (ceiling "
            f"{100 * self.ceiling.value:.1f}, {self.ceiling.source} score by chance {100 * self.ceiling.chance:.1f})"
        )
        return title, ["policy", "kind", "score", "seeds", "verdict"], rows


def run_audit(
    config: AuditConfig, on_progress: Callable[[int], None] = lambda seeds: None
) -> Audit:
    """Play all shortcuts in a world, and call `on_progress(1)` after each seed."""
    names = ("train", "test") if config.splits else (None, None)
    train, test = (tool_env(make(config.world, split=name, **config.options)) for name in names)
    starts = list(demonstrations(train, _TRAINING_SEED, config.demonstrations))
    if not starts:
        raise ValueError(
            f"{config.world} has no demonstration: implement optimal_calls, or make the world "
            "easier so that random play sometimes succeeds"
        )

    def probing(probe: Act) -> list[Transcript]:
        return [_look(begun, seen.before(0), probe) for begun, seen in starts]

    lessons = [seen for _, seen in starts]
    luck = [play_at_random(start(train, _CHANCE_SEED + k), k)[0] for k in range(config.seeds)]
    ceiling = find_ceiling(test.world_class.chance(test.config), lessons, luck)
    shortcuts = learn_shortcuts(lessons, probing)
    known: set[str] = set()
    for lesson in lessons:
        known |= opaque_ids(lesson)
    policies: dict[str, Policy] = {}
    for name, make_adversary in adversaries(test.world_class).items():
        policies[name] = make_adversary(config.world)
    policies["random legal"] = RandomPolicy(config.world)
    scores: dict[str, list[float]] = defaultdict(list)
    for seed in range(config.seeds):
        _play_seed(start(test, seed), shortcuts, policies, known, scores)
        on_progress(1)
    rows = [_row(name, values, ceiling) for name, values in scores.items()]
    return Audit(config.world, ceiling, sorted(rows, key=lambda row: _KINDS.index(row.kind)))


_BASELINES = ("random legal", "oracle")
_KINDS = ("shortcut", "measure", "baseline")


def _look(begun: ToolEnv, seen: Transcript, probe: Act) -> Transcript:
    if not (calls := probe(seen)):
        return seen
    return play(begun.clone(), lambda now: () if now.turns else calls)[1]


def _play_seed(
    begun: ToolEnv,
    shortcuts: Mapping[str, Act],
    policies: Mapping[str, Policy],
    known: set[str],
    scores: dict[str, list[float]],
) -> None:
    for name, act in shortcuts.items():
        scores[name].append(play(begun.clone(), act)[0])
    for name, policy in policies.items():
        scores[name].append(play_policy(begun.clone(), policy))
    if begun.world.optimal_calls() is not None:
        score, seen = play_optimally(begun)
        scores["oracle"].append(score)
        scores[_REPEATED].append(float(bool(known & opaque_ids(seen))))


def _row(name: str, scores: Sequence[float], ceiling: Ceiling) -> Row:
    interval = score_interval(scores)
    if name in _BASELINES:
        return Row(name, "baseline", interval, len(scores))
    kind = "measure" if name in MEASURES else "shortcut"
    return Row(name, kind, interval, len(scores), ceiling.verdict(interval))


def find_ceiling(
    stated: float | None, lessons: Sequence[Transcript], random_scores: Sequence[float]
) -> Ceiling:
    """Return the maximum score of a shortcut; `stated` is the world's declared chance score."""
    if stated is not None:
        return Ceiling(stated, "stated")
    counts = [answers_of(tool) for tool in lessons[0].tools if tool.final]
    by_schema = max((1 / count for count in counts if count), default=0.0)
    enumerated = max(by_schema, _share_of_options(lessons))
    estimated = score_interval(random_scores)
    if enumerated > estimated.value:
        return Ceiling(enumerated, "enumerated")
    # A chance score above the cap has a sampling error, which must not cause a `leak` verdict.
    if estimated.value > CAP:
        return Ceiling(estimated.high, "estimated")
    return Ceiling(estimated.value, "estimated")


def _share_of_options(lessons: Sequence[Transcript]) -> float:
    shares = []
    for lesson in lessons:
        listed = options(lesson.task)
        if not set(listed) & set(map(str, lesson.final_call.arguments.values())):
            return 0.0
        shares.append(1 / len(listed))
    return fmean(shares)


def answers_of(tool: Tool) -> int:
    """Return how many different calls a tool accepts, or 0 if it accepts one or infinitely many."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    total = prod(map(_count, properties.values()))
    return 0 if total == 1 else total


def _count(schema: Mapping[str, Any]) -> int:
    if "enum" in schema:
        return len(schema["enum"])
    if schema.get("type") == "boolean":
        return 2
    if schema.get("type") == "integer" and {"minimum", "maximum"} <= schema.keys():
        return int(schema["maximum"] - schema["minimum"] + 1)
    return 0


def score_interval(scores: Sequence[float]) -> Interval:
    """Return the mean of scores in [0, 1] with a conservative 99% Wilson interval."""
    return wilson(sum(scores), len(scores), CONFIDENCE)
