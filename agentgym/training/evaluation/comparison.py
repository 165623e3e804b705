"""Comparison of policies from one or many folders: rates, differences over common instances,
pass@k, and oracle effects at sizes of equal success.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path

from agentgym.oracles import sort_arms
from agentgym.text.validation import check_int
from agentgym.training.evaluation.ablation import Cell
from agentgym.training.evaluation.intervals import Interval, differences, effects, holm, summarize
from agentgym.training.evaluation.scoring import CELL, Result, group_by
from agentgym.training.evaluation.study import (
    Study,
    conflicts,
    load_results,
    load_study,
    result_cell,
)
from agentgym.training.evaluation.tables import (
    INTERVENTIONS,
    METRIC_NAMES,
    Table,
    few_instances,
    p_value,
    percent,
)
from agentgym.training.rollout.policies import other

LEVEL = 0.3
"""Default success without oracles at which policies are compared (LUMINA, 4.4)."""


def load_folders(folders: Mapping[Path, str]) -> list[Result]:
    """Return the results of several folders, with a distinct name for each policy.

    Policies with the same name share a column only if the folders record the same policy and
    settings; otherwise the names include the folder. A cell in two folders counts once, with a
    warning.

    Args:
        folders: The folders, with labels for their policies; empty keeps the names.

    Raises:
        ValueError: A folder contains no episodes, or two measure a world's sizes differently.
        DamagedFileError: A file cannot be read.
    """
    names = _columns(folders)
    merged: dict[Cell, Result] = {}
    doubles = 0
    for folder in folders:
        rows = load_results(folder)
        if not rows:
            raise ValueError(
                f"{folder} contains no trajectories; run: agentgym ablate --out {folder}"
            )
        for row in rows:
            renamed = replace(row, policy=names.get((folder, row.policy), row.policy))
            doubles += result_cell(renamed) in merged
            merged.setdefault(result_cell(renamed), renamed)
    _check_axes(merged.values())
    if doubles:
        warnings.warn(
            f"{doubles} cells occur in more than one folder; the first folder's version counts",
            stacklevel=2,
        )
    return list(merged.values())


def _check_axes(results: Iterable[Result]) -> None:
    axes: dict[str, str] = {}
    for row in results:
        if axes.setdefault(row.world, row.axis) != row.axis:
            raise ValueError(
                f"the sizes of {row.world} are {axes[row.world]} in one folder and {row.axis} in "
                "another; compare folders with the same axis"
            )


def _columns(folders: Mapping[Path, str]) -> dict[tuple[Path, str], str]:
    """Return new policy names by folder and old name, where needed."""
    studies = {folder: load_study(folder) or Study() for folder in folders}
    known = [(folder, name) for folder, study in studies.items() for name in study.columns()]
    names = {}
    for folder, column in known:
        if label := folders[folder]:
            single = len(studies[folder].columns()) == 1
            names[folder, column] = label if single else f"{label}: {column}"
        elif not all(
            _alike(studies[folder], studies[other_folder], column)
            for other_folder, name in known
            if name == column and other_folder != folder
        ):
            names[folder, column] = f"{column} ({folder})"
    return names


def _alike(one: Study, two: Study, column: str) -> bool:
    """Report whether two folders' policies and settings are equal."""
    facts = [study.policies.get(column) for study in (one, two)]
    if not facts[0] or not facts[1] or other(facts[0], facts[1]):
        return False
    return not any(next(conflicts(a, b), "") for a in one.runs for b in two.runs)


def comparison_tables(
    results: Sequence[Result], levels: Mapping[str, float] | None = None
) -> list[Table]:
    """Return the tables of several policies; none for one.

    Args:
        results: The episodes.
        levels: The success without oracles at which to compare effects, by world.
    """
    policies = list(dict.fromkeys(row.policy for row in results))
    if len(policies) < 2:
        return []
    return [
        *(_rates_table(world, rows) for world, rows in group_by(results, "world").items()),
        *_differences_table(results, policies),
        *_levels_tables(results, levels or {}),
    ]


def pass_at(results: Sequence[Result], k: int) -> list[Result]:
    """Return one result per instance, whose `success` is the probability that one of k samples
    drawn from the played ones succeeds (Chen et al. 2021, Evaluating Large Language Models Trained
    on Code, section 2.1).

    Instances with fewer samples are omitted. For k = 1 it is the mean over the samples.
    """
    check_int("k", k, 1, 10_000)
    return [
        replace(some[0], sample=0, success=1 - comb(len(some) - solved, k) / comb(len(some), k))
        for some in group_by(results, *CELL, "seed").values()
        if len(some) >= k
        for solved in [sum(row.success == 1 for row in some)]
    ]


def pass_table(results: Sequence[Result]) -> list[Table]:
    """Return the pass@k table; none if each instance was played once."""
    most = min(map(len, group_by(results, *CELL, "seed").values()))
    if most < 2:
        return []
    ks = [k for k in (1, 2, 4, 8, 16, 32, 64, 128) if k < most] + [most]
    rates = {k: summarize(pass_at(results, k), ("policy", "world", "arm"), "success") for k in ks}
    rows = [
        [str(policy), str(world), str(arm) or "none"]
        + [percent(rates[k][policy, world, arm]) for k in ks]
        for policy, world, arm in rates[most]
    ]
    title = f"pass@k of {most} samples an instance, % with 95 % intervals by instance"
    return [(title, ["policy", "world", "arm", *(f"pass@{k}" for k in ks)], rows)]


def _rates_table(world: str, rows: Sequence[Result]) -> Table:
    arms = sort_arms(row.arm for row in rows)
    rates = summarize(rows, ("policy", "arm"), "success")
    lines = [
        [policy, *(percent(rates[policy, arm]) if (policy, arm) in rates else "" for arm in arms)]
        for policy in dict.fromkeys(row.policy for row in rows)
    ]
    title = f"{world}: success rate by policy and oracles, % with 95 % intervals"
    return title + few_instances(rows), ["policy", *(arm or "none" for arm in arms)], lines


def _differences_table(results: Sequence[Result], policies: Sequence[str]) -> list[Table]:
    """Return each policy's differences from the first."""
    first = policies[0]
    changes: dict[tuple[str, str, str], tuple[Interval, str]] = {}
    for (world, arm), rows in group_by(results, "world", "arm").items():
        if any(row.policy == first for row in rows):
            for (name,), change in differences(rows, (), "success", first, "policy").items():
                policy = str(name)
                changes[policy, world, arm] = change, _pairing(rows, first, policy)
    corrected = holm([change.p_value for change, _ in changes.values()])
    lines = [
        [policy, world, arm or "none", percent(change, signed=True), p_value(p), pairing]
        for ((policy, world, arm), (change, pairing)), p in zip(
            changes.items(), corrected, strict=True
        )
    ]
    title = (
        f"Success rate against {first}, percentage points with 95 % intervals, and p corrected for "
        f"the {len(changes)} differences of this table (Holm)"
    )
    header = ["policy", "world", "arm", "success rate", "p (Holm)", "compared over"]
    return [(title, header, lines)] if lines else []


def _pairing(rows: Sequence[Result], one: str, two: str) -> str:
    """Describe the instances over which two policies were compared."""
    sides: list[dict[object, str]] = [{}, {}]
    for row in rows:
        if row.policy in (one, two):
            key = row.context, row.horizon, row.seed, row.instance
            sides[row.policy == two][key] = row.prompt
    both = sides[0].keys() & sides[1].keys()
    if not both:
        return f"{len(sides[0])} and {len(sides[1])} instances, unpaired"
    others = sum(sides[0][key] != sides[1][key] for key in both if sides[0][key] and sides[1][key])
    return f"{len(both)} instances" + (f"; {others} with other prompts" if others else "")


@dataclass(frozen=True, slots=True)
class Level:
    """Size at which a policy reaches a given success.

    Attributes:
        horizon: The size.
        success: The success without oracles at this size.
    """

    horizon: int
    success: Interval


def find_levels(
    results: Sequence[Result], success: float = LEVEL, by_world: Mapping[str, float] | None = None
) -> dict[tuple[str, str], Level]:
    """Return for each policy and world the size whose success without oracles is nearest to a
    target; of two equally near, the smaller.

    Args:
        results: The episodes of one or many policies.
        success: The target.
        by_world: Targets for individual worlds.

    Returns:
        Levels by policy and world.

    Raises:
        ValueError: A policy has no episode without oracles in a world.
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
    """Return the episodes at the sizes of `find_levels`, so that effects are comparable between
    policies and worlds (LUMINA, figure 6).
    """
    levels = find_levels(results, success, by_world)
    return [row for row in results if row.horizon == levels[row.policy, row.world].horizon]


def _nearness(success: Interval, wanted: float) -> str:
    """Describe whether a size is close enough to the target."""
    return "yes" if success.low <= wanted <= success.high else "no: other sizes needed"


def _levels_tables(results: Sequence[Result], by_world: Mapping[str, float]) -> list[Table]:
    """Return tables of the sizes at which policies are compared, and of the oracle effects there."""
    bare = {(row.policy, row.world) for row in results if not row.arm}
    rows = [row for row in results if (row.policy, row.world) in bare]
    if not rows or len({row.horizon for row in rows}) < 2:
        return []
    levels = find_levels(rows, by_world=by_world)
    sizes = [
        [
            *(policy, world, f"{100 * by_world.get(world, LEVEL):.0f}"),
            *(str(level.horizon), percent(level.success)),
            _nearness(level.success, by_world.get(world, LEVEL)),
        ]
        for (policy, world), level in levels.items()
    ]
    header = ["policy", "world", "wanted", "size", "success rate without oracles", "near"]
    tables = [("Sizes at which policies succeed about equally often, %", header, sizes)]
    levelled = level_horizons(rows, by_world=by_world)
    changes = {
        (metric, *key): change
        for metric in ("success", "step_accuracy")
        for key, change in effects(levelled, ("policy",), metric).items()
    }
    corrected = holm([change.p_value for change in changes.values()])
    lines = [
        [
            *(str(policy), INTERVENTIONS[str(letter)], METRIC_NAMES[str(metric)]),
            *(percent(change, signed=True), p_value(p)),
        ]
        for ((metric, policy, letter), change), p in zip(changes.items(), corrected, strict=True)
    ]
    title = (
        "Effect of each intervention at these sizes, averaged over worlds, percentage points with "
        f"95 % intervals, and p corrected for the {len(changes)} effects (Holm)"
    )
    header = ["policy", "intervention", "metric", "change", "p (Holm)"]
    return [*tables, (title, header, lines)] if lines else tables
