"""Comparison of policies: rates, paired differences, pass@k, and oracle effects."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import comb
from pathlib import Path

from agentgym.text.validation import check_int
from agentgym.training.evaluation.ablation import Cell
from agentgym.training.evaluation.intervals import Key, differences, effects, summarize
from agentgym.training.evaluation.missing import Results, as_results
from agentgym.training.evaluation.provenance import difference
from agentgym.training.evaluation.scoring import (
    CELL,
    Result,
    distinct,
    group_by,
    ordered_arms,
    played,
)
from agentgym.training.evaluation.statistics import Interval, holm_by_key
from agentgym.training.evaluation.study_folder import (
    Study,
    conflicts,
    load_results,
    load_study,
    result_cell,
)
from agentgym.training.evaluation.tables import (
    INTERVENTIONS,
    METRIC_NAMES,
    QUALITY,
    Table,
    cell,
    few_instances,
    p_value,
    percent,
    quality,
)

# Success rate without oracles at which policies are compared (LUMINA, section 4.4).
LEVEL = 0.3
# A size suits a comparison if the interval of its success rate contains the target rate and both
# bounds are less than this distance from the target rate.
NEAR = 0.25


def load_folders(folders: Mapping[Path, str]) -> Results:
    """Return the results of several folders, with a distinct name for each policy.

    Policies share a column only if name, policy and settings agree. A cell that occurs
    in two folders counts once and causes a warning.

    Raises:
        ValueError: A folder contains no episodes, or two folders measure a world's sizes
            differently.
        DamagedFileError: A file cannot be read.
    """
    names = _columns(folders)
    merged: dict[Cell, Result] = {}
    missing: dict[Cell, Result] = {}
    doubles = 0
    for folder in folders:
        rows = load_results(folder)
        if not rows:
            raise ValueError(
                f"{folder} contains no trajectories; run: agentgym ablate --out {folder}"
            )
        for row in rows.everything:
            renamed = replace(row, policy=names.get((folder, row.policy), row.policy))
            place = result_cell(renamed)
            if row.missing:
                missing[place] = renamed
            elif place in merged:
                doubles += 1
            else:
                merged[place] = renamed
    _check_axes(merged.values())
    if doubles:
        said = f"{doubles} cells occur in more than one folder; the first folder's version counts"
        warnings.warn(said, stacklevel=2)
    for place in merged:
        missing.pop(place, None)
    return Results(merged.values(), missing.values())


def _check_axes(results: Iterable[Result]) -> None:
    axes: dict[str, str] = {}
    for row in results:
        if axes.setdefault(row.world, row.axis) != row.axis:
            raise ValueError(
                f"the sizes of {row.world} are {axes[row.world]} in one folder and {row.axis} in "
                "another; compare folders with the same axis"
            )


def _columns(folders: Mapping[Path, str]) -> dict[tuple[Path, str], str]:
    studies = {folder: load_study(folder) or Study() for folder in folders}
    known: list[tuple[Path, str]] = []
    for folder, study in studies.items():
        known += [(folder, name) for name in study.columns()]
    names = {}
    for folder, column in known:
        if label := folders[folder]:
            single = len(studies[folder].columns()) == 1
            names[folder, column] = label if single else f"{label}: {column}"
            continue
        for other, name in known:
            same_name = name == column and other != folder
            if same_name and not _alike(studies[folder], studies[other], column):
                names[folder, column] = f"{column} ({folder})"
    return names


def _alike(one: Study, two: Study, column: str) -> bool:
    facts, others = one.policies.get(column), two.policies.get(column)
    if not facts or not others or difference(facts, others):
        return False
    return not any(next(conflicts(*runs), "") for runs in product(one.runs, two.runs))


def comparison_tables(
    results: Sequence[Result], levels: Mapping[str, float] | None = None
) -> list[Table]:
    """Return the tables that compare policies, or an empty list for a single policy."""
    results = as_results(results)
    policies = list(results.by("policy"))
    if len(policies) < 2:
        return []
    tables = []
    for world, rows in results.by("world").items():
        title = f"{world}: success rate by policy and oracles, % with 95% intervals"
        axes = {"policy": distinct(rows.everything, "policy"), "arm": ordered_arms(rows.everything)}
        tables.append(success_table(title, rows.everything, axes))
    tables += _differences_table(results.everything, policies)
    return tables + _levels_tables(results, levels or {})


def pass_at(results: Sequence[Result], k: int) -> list[Result]:
    """Return one result per instance, with pass@k as its `success` (Chen et al. 2021, Evaluating
    Large Language Models Trained on Code, section 2.1). Instances with fewer than k samples are
    omitted.
    """
    check_int("k", k, 1, 10_000)
    rows = []
    for some in group_by(results, *CELL, "seed").values():
        samples = played(some)
        if len(samples) >= k:
            failed = sum(row.success < 1 for row in samples)
            share = 1 - comb(failed, k) / comb(len(samples), k)
            rows.append(replace(samples[0], sample=0, success=share))
    return rows


def pass_table(results: Sequence[Result]) -> list[Table]:
    """Return the pass@k table, or an empty list if each instance was played only once."""
    results = as_results(results)
    most = min(map(len, group_by(results.everything, *CELL, "seed").values()), default=0)
    if most < 2:
        return []
    ks = [k for k in (1, 2, 4, 8, 16, 32, 64, 128) if k < most] + [most]
    rates: dict[int, dict[Key, Interval]] = {}
    for k in ks:
        rows = pass_at(results, k)  # if each instance lacks samples, no instance is left
        rates[k] = summarize(rows, ("policy", "world", "arm"), "success") if rows else {}
    lines = []
    for key, rows in group_by(results.everything, "policy", "world", "arm").items():
        policy, world, arm = key
        line = [policy, world, arm or "none"]
        for k in ks:
            line += [cell(rates[k], key)]
        lines.append([*line, *quality(rows)])
    title = f"pass@k of {most} samples an instance, % with 95% intervals by instance"
    return [(title, ["policy", "world", "arm", *(f"pass@{k}" for k in ks), *QUALITY], lines)]


def success_table(title: str, rows: Sequence[Result], axes: Mapping[str, Sequence[str]]) -> Table:
    """Return a table of success rates by two fields; `axes` contains the fields' values."""
    down, across = axes
    rates, groups = summarize(rows, (down, across), "success"), group_by(rows, down)
    lines = []
    for name in axes[down]:
        line = [name or "none"]
        for column in axes[across]:
            line.append(cell(rates, (name, column)))
        lines.append([*line, *quality(groups[name])])
    header = [down, *(column or "none" for column in axes[across]), *QUALITY]
    return title + few_instances(rows), header, lines


def _differences_table(results: Sequence[Result], policies: Sequence[str]) -> list[Table]:
    first = policies[0]
    changes: dict[tuple[str, str, str], Interval] = {}
    compared: list[list[Result]] = []
    for (world, arm), rows in group_by(results, "world", "arm").items():
        by_policy = group_by(rows, "policy")
        if first not in by_policy:
            continue
        for (name,), change in differences(rows, (), "success", first, "policy").items():
            changes[str(name), world, arm] = change
            compared.append(by_policy[first] + by_policy[name])
    if not changes:
        return []
    corrected = holm_by_key(changes)
    lines = []
    for (key, change), rows in zip(changes.items(), compared, strict=True):
        policy, world, arm = key
        line = [policy, world, arm or "none", percent(change, signed=True)]
        lines.append([*line, p_value(corrected[key]), _pairing(rows, first), *quality(rows)])
    title = (
        f"Success rate against {first}, percentage points with 95% intervals, and p corrected for "
        f"the {len(changes)} differences of this table (Holm)"
    )
    header = ["policy", "world", "arm", "success rate", "p (Holm)", "compared over", *QUALITY]
    return [(title, header, lines)]


def _pairing(rows: Sequence[Result], one: str) -> str:
    sides: list[dict[object, str]] = [{}, {}]
    for row in played(rows):
        place = row.context, row.horizon, row.seed, row.instance
        sides[row.policy != one][place] = row.prompt
    both = sides[0].keys() & sides[1].keys()
    if not both:
        return f"{len(sides[0])} and {len(sides[1])} instances, unpaired"
    others = 0
    for key in both:
        first, second = sides[0][key], sides[1][key]
        if first and second and first != second:
            others += 1
    if not others:
        return f"{len(both)} instances"
    return f"{len(both)} instances; {others} with other prompts"


@dataclass(frozen=True, slots=True)
class Level:
    """Size at which a policy reaches a given success rate without oracles."""

    horizon: int
    success: Interval


def find_levels(
    results: Sequence[Result], success: float = LEVEL, by_world: Mapping[str, float] | None = None
) -> dict[tuple[str, str], Level]:
    """Return, for each policy and world, the size at which success without oracles is nearest to
    the target.

    Ties go to the smaller size; `by_world` sets other targets for its worlds. Raise
    `ValueError` if a world has no episodes without oracles.
    """
    levels: dict[tuple[str, str], Level] = {}
    rows = as_results(results).everything
    for (policy, world), each in group_by(rows, "policy", "world").items():
        bare = [row for row in each if not row.arm]
        if not played(bare):
            raise ValueError(
                f"{policy!r} has no episodes without oracles in {world}, so it has no comparison "
                "size; also run the arm 'none'"
            )
        wanted = (by_world or {}).get(world, success)
        rates = {}
        for (size,), rate in summarize(bare, ("horizon",), "success").items():
            if rate.count:
                rates[int(size)] = rate
        horizon = min(sorted(rates), key=lambda size: abs(rates[size].value - wanted))
        levels[policy, world] = Level(horizon, rates[horizon])
    return levels


def level_horizons(
    results: Sequence[Result], success: float = LEVEL, by_world: Mapping[str, float] | None = None
) -> Results:
    """Return the episodes at the sizes from `find_levels`, to compare effects (figure 6)."""
    levels = find_levels(results, success, by_world)
    return as_results(results).where(
        lambda row: row.horizon == levels[row.policy, row.world].horizon
    )


def _nearness(success: Interval, wanted: float) -> str:
    if not success.low <= wanted <= success.high:
        return "no: other sizes needed"
    if max(wanted - success.low, success.high - wanted) >= NEAR:
        return "no: more episodes needed"
    return "yes"


def _levels_tables(results: Results, by_world: Mapping[str, float]) -> list[Table]:
    rows = results.with_bare_arm()
    if len(group_by(rows, "horizon")) < 2:
        return []
    levels = find_levels(rows, by_world=by_world)
    levelled = level_horizons(rows, by_world=by_world)
    bare = group_by(levelled.where(lambda row: not row.arm).everything, "policy", "world")
    lines = []
    for (policy, world), level in levels.items():
        wanted, rate = by_world.get(world, LEVEL), level.success
        line = [policy, world, f"{100 * wanted:.0f}", str(level.horizon), str(rate.count)]
        line += [percent(rate), _nearness(rate, wanted)]
        lines.append([*line, *quality(bare[policy, world])])
    title = "Sizes at which policies succeed about equally often, %"
    header = ["policy", "world", "wanted", "size", "episodes", "success rate without oracles"]
    return [(title, [*header, "near", *QUALITY], lines), *_levelled_effects(levelled)]


def _levelled_effects(levelled: Results) -> list[Table]:
    changes: dict[Key, Interval] = {}
    for measure in ("success", "step_accuracy"):
        for (name, letter), change in effects(levelled, ("policy",), measure).items():
            changes[name, letter, measure] = change
    if not changes:
        return []
    corrected = holm_by_key(changes)
    by_policy = group_by(levelled.everything, "policy")
    lines = []
    for key, change in changes.items():
        name, letter, metric = map(str, key)
        line = [name, INTERVENTIONS[letter], METRIC_NAMES[metric], str(change.count)]
        line += [percent(change, signed=True), p_value(corrected[key])]
        lines.append([*line, *quality(by_policy[name])])
    title = (
        "Effect of each intervention at these sizes, averaged over worlds, percentage points with "
        f"95% intervals, and p corrected for the {len(changes)} effects (Holm)"
    )
    header = ["policy", "intervention", "metric", "pairs", "change", "p (Holm)", *QUALITY]
    return [(title, header, lines)]
