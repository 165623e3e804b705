"""Episodes chosen or condensed before they are summarized: sizes of one success, and pass@k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

from agentgym.arguments import check_int
from agentgym.training.evaluation.intervals import Interval, summarize
from agentgym.training.evaluation.scoring import CELL, Result, group_by

LEVEL = 0.3
"""Success without oracles at which policies are compared, if nobody says otherwise (LUMINA, 4.4)."""


@dataclass(frozen=True, slots=True)
class Level:
    """Size at which a policy succeeds about as often as others.

    Attributes:
        horizon: The size.
        success: Its success there without oracles.
    """

    horizon: int
    success: Interval


def find_levels(
    results: Sequence[Result], success: float = LEVEL, by_world: Mapping[str, float] | None = None
) -> dict[tuple[str, str], Level]:
    """Return the size at which each policy comes nearest to a share of success without oracles in
    each world; of two that are equally near, the smaller.

    Args:
        results: The episodes of one or many policies.
        success: The share to come near to.
        by_world: The share in some of the worlds.

    Returns:
        By policy and world.

    Raises:
        ValueError: There is a policy and a world without an episode without oracles.
    """
    levels: dict[tuple[str, str], Level] = {}
    for (policy, world), rows in group_by(results, "policy", "world").items():
        bare = [row for row in rows if not row.arm]
        if not bare:
            raise ValueError(
                f"{policy!r} has no episodes without oracles in {world} to level by; run the arm "
                "none"
            )
        wanted = (by_world or {}).get(world, success)
        rates = {
            int(key[0]): rate for key, rate in summarize(bare, ("horizon",), "success").items()
        }
        horizon = min(sorted(rates), key=lambda size: abs(rates[size].value - wanted))
        levels[policy, world] = Level(horizon, rates[horizon])
    return levels


def level_horizons(
    results: Sequence[Result], success: float = LEVEL, by_world: Mapping[str, float] | None = None
) -> list[Result]:
    """Return the episodes at the sizes of `find_levels`, so that effects can be compared between
    policies and worlds (LUMINA, figure 6).
    """
    levels = find_levels(results, success, by_world)
    return [row for row in results if row.horizon == levels[row.policy, row.world].horizon]


def pass_at(results: Sequence[Result], k: int) -> list[Result]:
    """Return one result for each instance, whose `success` is the chance that one of k samples
    drawn from those that were played is solved (Chen et al. 2021, Evaluating Large Language Models
    Trained on Code, section 2.1).

    Instances with fewer samples are left out. Where k is 1 it is the mean over the samples.
    """
    check_int("k", k, 1, 10_000)
    return [
        replace(some[0], sample=0, success=1 - comb(len(some) - solved, k) / comb(len(some), k))
        for some in group_by(results, *CELL, "seed").values()
        if len(some) >= k
        for solved in [sum(row.success == 1 for row in some)]
    ]
