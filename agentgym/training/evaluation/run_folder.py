"""Results of a study's folder: scored episodes, missing ones, and doubts about them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym.training.evaluation.ablation import Cell, cell_of
from agentgym.training.evaluation.missing import (
    INVALID,
    LOST,
    NOT_PLAYED,
    Results,
    as_results,
    missing_result,
)
from agentgym.training.evaluation.provenance import difference
from agentgym.training.evaluation.scoring import Result, is_over_window, score
from agentgym.training.evaluation.study_settings import (
    SETTINGS,
    Study,
    column_of,
    load_study,
    log_of,
)
from agentgym.training.rollout import Trajectory


def load_results(out: Path) -> Results:
    """Return the scores of all trajectories in a folder, in cell order, with the missing cells.

    Duplicates and trajectories outside the settings are omitted with a warning.

    Raises:
        DamagedFileError: A file of the folder cannot be read.
    """
    results, doubles, strays = read_results(out)
    for count, what in ((doubles, "doubles"), (strays, f"not cells of {SETTINGS}")):
        if count:
            warnings.warn(
                f"{count} trajectories in {log_of(out).path} are {what} and do not count; to "
                f"remove them: agentgym doctor {out} --repair",
                stacklevel=2,
            )
    return results


def read_results(out: Path) -> tuple[Results, int, int]:
    """Return the results of a folder, and the numbers of duplicates and strays."""
    study = load_study(out) or Study()
    results: dict[Cell, Result] = {}
    failures: dict[Cell, str] = {}
    differing: Counter[tuple[str, str]] = Counter()
    doubles = strays = contradictions = 0
    for trajectory in log_of(out):
        if not study.holds(trajectory):
            strays += 1
            continue
        if trajectory.failure and not is_over_window(trajectory):
            if study.runs:  # otherwise the log need not have the labels of a cell
                failures[cell_of(trajectory)] = INVALID if _is_invalid(trajectory) else LOST
            continue
        result = score(trajectory)
        cell = result_cell(result)
        if cell in results:
            doubles += 1
            contradictions += results[cell] != result
            continue
        results[cell] = result
        kept = study.policies.get(cell.policy)
        if kept and (found := difference(kept, trajectory.labels.get("provenance") or kept)):
            differing[cell.policy, found] += 1
    doubts = []
    for (policy, found), count in differing.items():
        doubts.append(
            f"{count} episodes of {policy} were played by another player or code: {found}"
        )
    if contradictions:
        doubts.append(f"{contradictions} of {doubles} duplicates have other results than the first")
    ordered = [results[cell] for cell in sorted(results, key=study.order)]
    if study.runs:
        missing = _missing_rows(study, results, failures)
    else:
        missing = as_results(ordered).missing
    return Results(ordered, missing, doubts), doubles, strays


def _missing_rows(
    study: Study, results: Mapping[Cell, Result], failures: Mapping[Cell, str]
) -> list[Result]:
    axes = {column_of(run): run["axis"] for run in study.runs}
    instances: dict[tuple[Any, ...], str] = {}
    for cell, result in results.items():
        instances[cell.world, cell.horizon, cell.seed] = result.instance
    rows = []
    for cell in study.cells():
        if cell not in results:
            instance = instances.get((cell.world, cell.horizon, cell.seed), "")
            cause = failures.get(cell, NOT_PLAYED)
            rows.append(missing_result(cell, axes[cell.policy], instance, cause))
    return rows


def _is_invalid(trajectory: Trajectory) -> bool:
    return any((step.info.get("detail") or {}).get("invalid") for step in trajectory.steps)


def missing_cells(out: Path) -> list[Cell]:
    """Return the cells still to be played, including damaged lines; none without a study."""
    study = load_study(out) if out.is_dir() else None
    if study is None:
        return []
    played = set()
    for _, each in log_of(out).readable():
        if each is None or (each.failure and not is_over_window(each)):
            continue
        if study.holds(each):
            played.add(cell_of(each))
    return [cell for cell in study.cells() if cell not in played]


def result_cell(result: Result) -> Cell:
    """Return a result's cell."""
    return Cell(*(getattr(result, name) for name in Cell._fields))
