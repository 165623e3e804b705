"""What LORE reports (TaskWeaver, sections 4.1 to 4.4): accuracy against operations and height, and how episodes failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import sqrt
from typing import Any, Protocol

from agentgym.oracles import ARMS
from agentgym.training.evaluation.bootstrap import Interval
from agentgym.training.evaluation.scoring import Result, ordered_contexts
from agentgym.training.rollout.trajectory import Trajectory
from agentgym.world import check_choice, check_int

WIDTHS = {"operations": 10, "height": 5}
"""The axes of the paper's curves, with the widths of their bins."""

_LEAST = 10
_NORMAL = 1.959963984540054


class Played(Protocol):
    """An episode that has ended: an `LoreResult`, or a `Result` of an ablation."""

    @property
    def success(self) -> float:
        """Whether the exact answer was given."""

    @property
    def report(self) -> Mapping[str, Any] | None:
        """What the world reported."""


@dataclass(frozen=True, slots=True)
class LoreResult:
    """The figures of one episode; `LoreWorld.report` says what each of those in `report` is.

    Attributes:
        success: Whether the exact answer was given.
        turns: The turns of the episode.
        failed_rounds: Replies whose calls all failed.
        labels: How many calls have each label; none unless the stack holds `StepOptimality`.
        optimal_turns: Turns that were optimal; none unless the stack holds `StepOptimality`.
        report: What the world reported.
    """

    success: bool
    turns: int
    failed_rounds: int
    labels: Mapping[str, int]
    optimal_turns: int
    report: Mapping[str, int | bool]


@dataclass(frozen=True, slots=True)
class Bin:
    """Episodes whose tasks are of like size: `low` to `high`, both included."""

    low: int
    high: int
    episodes: int
    accuracy: Interval


def outcome(trajectory: Trajectory) -> LoreResult:
    """The figures of an episode.

    Raises:
        ValueError: It has not ended, or was not played in a world of LORE.
    """
    infos = [step.info for step in trajectory.steps]
    report = (infos[-1]["detail"].get("report") if infos else None) or {}
    if "height" not in report:
        raise ValueError(f"the trajectory of seed {trajectory.seed} has no report of a world of LORE at its end")
    rounds = [0, *(info["detail"]["failed_rounds"] for info in infos)]
    return LoreResult(
        success=bool(infos[-1]["success"]),
        turns=infos[-1]["turn"],
        failed_rounds=sum(after > before for before, after in pairwise(rounds)),
        labels=Counter(label for info in infos for label in info.get("labels") or ()),
        optimal_turns=sum(bool(info.get("optimal")) for info in infos),
        report=report,
    )


def is_lore(episode: Played) -> bool:
    """Whether an episode was played in a world of LORE, to its end."""
    return "height" in (episode.report or {})


def lines(results: Sequence[Result]) -> dict[str, dict[str, list[Result]]]:
    """The results in worlds of LORE, by world and then by arm and context.

    The name of a line is the arm, the context if no arms are compared, or both.
    """
    rows = [row for row in results if is_lore(row)]
    arms = [arm for arm in ARMS if any(row.arm == arm for row in rows)]
    contexts = ordered_contexts(rows)
    found: dict[str, dict[str, list[Result]]] = {row.world: {} for row in rows}
    for world, arm, context in product(found, arms, contexts):
        words = [arm or "none"] * (len(arms) > 1 or len(contexts) == 1) + [context] * (len(contexts) > 1)
        if line := [row for row in rows if (row.world, row.arm, row.context) == (world, arm, context)]:
            found[world][", ".join(words)] = line
    return found


def accuracy(episodes: Sequence[Played], by: str = "operations", width: int | None = None) -> list[Bin]:
    """The share of exact answers for each size, with Wilson's 95 % interval.

    Args:
        episodes: Episodes of LORE.
        by: `operations` or `height`.
        width: The width of a bin; 10 operations or 5 levels if None. The first bin starts at 1; a task of size 0 is in it.

    Raises:
        ValueError: `by` or `width` is not right.
    """
    check_choice("by", by, list(WIDTHS))
    step = WIDTHS[by] if width is None else width
    check_int("width", step, 1, 1_000_000)
    sizes = [max(0, (each.report or {})[by] - 1) // step for each in episodes]
    bins = []
    for place in sorted(set(sizes)):
        inside = [bool(each.success) for each, size in zip(episodes, sizes, strict=True) if size == place]
        bins.append(Bin(place * step + 1, (place + 1) * step, len(inside), wilson(sum(inside), len(inside))))
    return bins


def curve(episodes: Sequence[Played], by: str) -> list[Bin]:
    """The accuracies that tables and figures show: for each number of operations, or for heights.

    Of heights, bins of 5 levels are joined with the next until each holds ten episodes, or there is but one.
    """
    if by == "operations":
        return accuracy(episodes, by, 1)
    found: list[Bin] = []
    for each in accuracy(episodes, by):
        found.append(_joined(found.pop(), each) if found and found[-1].episodes < _LEAST else each)
    if len(found) > 1 and found[-1].episodes < _LEAST:
        found[-2:] = [_joined(*found[-2:])]
    return found


def _joined(first: Bin, second: Bin) -> Bin:
    episodes = first.episodes + second.episodes
    solved = sum(round(each.accuracy.value * each.episodes) for each in (first, second))
    return Bin(first.low, second.high, episodes, wilson(solved, episodes))


def wilson(successes: int, trials: int) -> Interval:
    """A share with Wilson's 95 % interval (Wilson 1927)."""
    check_int("trials", trials, 1, 10**9)
    check_int("successes", successes, 0, trials)
    share, z2 = successes / trials, _NORMAL**2
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _NORMAL * sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))
