"""Missing episodes of a study. Hard episodes go missing more often; ignoring them biases rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from agentgym.training.evaluation.ablation import Cell
from agentgym.training.evaluation.scoring import CELL, Result, distinct, group_by, played

LOST, INVALID, NOT_PLAYED = "lost", "invalid", "not played"
# Maximum number of cells that a note lists.
_SHOWN = 5


class Results(list[Result]):
    """The played episodes of a study, and records of the missing ones."""

    def __init__(self, played: Iterable[Result] = (), missing: Iterable[Result] = ()) -> None:
        super().__init__(played)
        self.missing = list(missing)

    @property
    def everything(self) -> list[Result]:
        """Return the played episodes, then the missing ones."""
        return [*self, *self.missing]

    def where(self, keep: Callable[[Result], bool]) -> Results:
        """Return the episodes, played or missing, for which `keep` is true."""
        return Results(filter(keep, self), filter(keep, self.missing))

    def with_bare_arm(self) -> Results:
        """Return the episodes of the policies and worlds that were played without oracles."""
        bare = {(row.policy, row.world) for row in self if not row.arm}
        return self.where(lambda row: (row.policy, row.world) in bare)

    def by(self, field: str) -> dict[str, Results]:
        """Group the episodes by a field, keeping their order."""
        played, missing = group_by(self, field), group_by(self.missing, field)
        groups = {}
        for value in {**played, **missing}:
            groups[value] = Results(played.get(value, ()), missing.get(value, ()))
        return groups

    def notes(self) -> list[str]:
        """Return remarks on missing episodes and idle strategies."""
        notes = []
        if self.missing:
            notes.append(
                f"{len(self.everything)} episodes were expected and {len(self.missing)} are missing "
                f"({describe_missing(self.missing)}); differences use complete pairs, and rates that "
                "the missing episodes could move beyond their interval show bounds, with all of them "
                f"failed and all solved; they belong to {_cells(self.missing)}"
            )
        if over := [row for row in self if row.over_window]:
            notes.append(
                f"{len(over)} episodes outgrew the model's context window and count as failures: "
                f"{_cells(over)}"
            )
        for name, rows in idle_cells(self).items():
            notes.append(f"{name} never acted, so its rows measure no strategy: {_cells(rows)}")
        return notes


def as_results(results: Sequence[Result]) -> Results:
    """Return `Results`; if no missing episodes are recorded, infer them from a full grid."""
    if isinstance(results, Results):
        return results
    there = played(results)
    missing = [row for row in results if row.missing]
    return Results(there, missing or _absent(there))


def _absent(results: Sequence[Result]) -> Iterator[Result]:
    for rows in group_by(results, "policy", "world", "axis").values():
        there = set(distinct(rows, "arm", "context", "horizon", "seed", "sample"))
        instances = group_by(rows, "horizon", "seed", "sample")
        for arm, context in distinct(rows, "arm", "context"):
            for (horizon, seed, sample), some in instances.items():
                if (arm, context, horizon, seed, sample) not in there:
                    row = some[-1]
                    cell = Cell(row.world, arm, context, horizon, seed, sample, row.policy)
                    yield missing_result(cell, row.axis, row.instance)


def missing_result(cell: Cell, axis: str, instance: str = "", cause: str = NOT_PLAYED) -> Result:
    """Return the record of a missing episode."""
    return Result(**cell._asdict(), axis=axis, instance=instance, missing=cause)


def filled(rows: Iterable[Result], hits: int) -> list[Result]:
    """Replace missing episodes with solved (`hits=1`) or failed (`hits=0`) one-step episodes."""
    figures: dict[str, Any] = {"success": float(hits), "steps": 1, "optimal": hits, "missing": ""}
    figures |= {"alive": 1, "alive_optimal": hits}
    return [replace(row, **figures) if row.missing else row for row in rows]


def describe_missing(rows: Iterable[Result]) -> str:
    """Return the number of missing episodes and their causes."""
    causes = Counter(row.missing for row in rows if row.missing)
    return ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items())) or "0"


def idle_cells(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Return the context wrappers that edited nothing in a whole cell, with the cells' episodes."""
    idle: dict[str, list[Result]] = {}
    for rows in group_by(played(results), *CELL).values():
        names = set(rows[0].idle)
        for row in rows:
            names.intersection_update(row.idle)
        for name in sorted(names):
            idle.setdefault(name, []).extend(rows)
    return idle


def _cells(rows: Iterable[Result]) -> str:
    parts = []
    for cell, some in group_by(rows, *CELL).items():
        policy, world, arm, context, horizon = cell
        text = f"{world}, arm {arm or 'none'}, context {context}, size {horizon} ({len(some)})"
        parts.append(f"{policy}: {text}" if policy else text)
    if len(parts) > _SHOWN:
        parts[_SHOWN:] = [f"and {len(parts) - _SHOWN} more cells"]
    return "; ".join(parts)
