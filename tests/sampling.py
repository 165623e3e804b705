"""Sampling of the large test families, which cross worlds with arms, strategies, dialects and other
axes.

A family names its axes: `@pytest.mark.family(env_id=IDS, arm=ARMS)`. One case in `--sample` of
their product runs. The commit seeds the draw, so the sample rotates. `-m exhaustive` runs the
remaining cases, and `--sample 1` runs all.

Every sample contains each kind of id, arm and so on. `@pytest.mark.rotation(stop=STOPS)` draws one
case in `--sample`, often none, for costly cases that resemble each other. `@pytest.mark.rotation`
alone rotates a whole test that takes seconds and repeats what quicker tests cover.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentgym import teams, worlds
from agentgym.envs.loca.task import OfficeTask

Axis = Sequence[Any]
Places = Sequence[int]
# Environment variable that overrides the seed of the sample.
SEED = "AGENTGYM_SAMPLE_SEED"
# The `-m` expression of a plain run, for which cases outside the sample are not built.
FAST = "not exhaustive"
# The office tasks resemble each other and their episodes are long, so they are sampled more thinly.
OFFICE = frozenset(
    entry.id for entry in worlds(presets=True) if issubclass(entry.world, OfficeTask)
)
# Cases of other worlds for each office case; both then take about the same time.
OFFICE_SHARE = 8
# Kinds of ids: each world with its presets, each team, and all office tasks together.
KINDS = {
    name: "office"
    if issubclass(entry.world, OfficeTask)
    else entry.id
    if entry in teams()
    else entry.world.__name__
    for entry in (*worlds(presets=True), *teams())
    for name in (entry.id, entry.id.removeprefix("agentgym/").removesuffix("-v0"))
}


def is_office(env_id: str) -> bool:
    """Return whether an id belongs to an office task or to a team that plays one."""
    return KINDS[env_id] == "office"


def kind(value: Any) -> Any:
    """Return a value's kind, which every sample contains: that of an id, otherwise the value
    itself.
    """
    if isinstance(value, tuple) and value[0] in OFFICE:  # an id with its details
        return "office"
    return KINDS.get(value, value) if isinstance(value, str) else repr(value)


@dataclass(frozen=True)
class Sample:
    """Drawing of samples.

    Args:
        one_in: The number of cases per drawn case; office tasks are drawn far less often.
        seed: The seed, combined with the name of the family.
        whole: Whether to build the remaining cases too, marked `exhaustive`.
    """

    one_in: int
    seed: str
    whole: bool

    def cases(
        self, family: str, axes: Mapping[str, Sequence[Any]], each_kind: bool = True
    ) -> list[Any]:
        """Return the cases of a family as test parameters, in the order of the product of its axes.

        Args:
            family: Its name, on which the draw depends.
            axes: The parameter names with their values.
            each_kind: Whether to draw each kind on each axis, or just one case in so many.
        """
        values = [
            [value.values[0] if _is_exhaustive(value) else value for value in axis]
            for axis in axes.values()
        ]
        places = [
            [k for k, value in enumerate(axis) if not _is_exhaustive(value)]
            for axis in axes.values()
        ]
        everything = list(itertools.product(*(range(len(axis)) for axis in values)))
        if self.one_in == 1:
            drawn = set(everything)
        elif each_kind:
            drawn = self._draw(family, values, places)
        else:
            drawn = {case for case in itertools.product(*places) if self.takes(f"{family} {case}")}
        built = sorted(drawn)
        # pytest would report a skip without cases
        if not built or (self.whole and self.one_in > 1):
            built = everything
        return [
            pytest.param(
                *(axis[k] for axis, k in zip(values, case, strict=True)),
                marks=() if case in drawn else pytest.mark.exhaustive,
            )
            for case in built
        ]

    def takes(self, test: str) -> bool:
        """Return whether a rotating test, or one of its cases, is drawn."""
        return random.Random(f"{self.seed} {test}").randrange(self.one_in) == 0

    def _draw(
        self, family: str, axes: Sequence[Axis], places: Sequence[Places]
    ) -> set[tuple[int, ...]]:
        """Draw cases as indices on the axes."""
        rng = random.Random(f"{self.seed} {family}")
        offices = [
            [k for k in some if kind(axis[k]) == "office"]
            for axis, some in zip(axes, places, strict=True)
        ]
        others = [
            [k for k in some if kind(axis[k]) != "office"]
            for axis, some in zip(axes, places, strict=True)
        ]
        thin = next((n for n, some in enumerate(offices) if some and others[n]), None)
        if thin is None:
            return set(_draw(rng, axes, places, self.one_in))
        mixed = [offices[n] if n == thin else some for n, some in enumerate(places)]
        drawn = set(_draw(rng, axes, others, self.one_in))
        count = math.ceil(min(len(drawn) / OFFICE_SHARE, math.prod(map(len, mixed))))
        few = itertools.islice(
            zip(*(itertools.cycle(rng.sample(some, len(some))) for some in mixed), strict=True),
            count,
        )
        return {*drawn, *few}


# The sample of this run, set by `conftest.py`.
current = Sample(8, "0", whole=False)


def few(env_id: str, count: int) -> range:
    """Return the seeds, a fifth of them for office tasks unless all cases were requested."""
    thin = env_id in OFFICE and current.one_in > 1 and not current.whole
    return range(max(1, count // 5) if thin else count)


def _draw(
    rng: random.Random, axes: Sequence[Axis], places: Sequence[Places], one_in: int
) -> Iterator[tuple[int, ...]]:
    """Draw one case in so many, with each kind on each axis, and the values of an axis about
    equally often.
    """
    kinds = [len({kind(axis[k]) for k in some}) for axis, some in zip(axes, places, strict=True)]
    count = max(*kinds, math.ceil(math.prod(map(len, places)) / one_in))
    columns = []
    for axis, some in zip(axes, places, strict=True):
        order = rng.sample(some, len(some))
        one_of_each = set({kind(axis[k]): k for k in order}.values())
        order.sort(key=lambda k, first=one_of_each: k not in first)
        columns.append(rng.sample(list(itertools.islice(itertools.cycle(order), count)), count))
    return zip(*columns, strict=True)


def _is_exhaustive(value: Any) -> bool:
    return any(mark.name == "exhaustive" for mark in getattr(value, "marks", ()))


def seed_of(root: Path) -> str:
    """Return the seed of the sample: from the environment, else the commit, else a constant."""
    if SEED not in os.environ:
        line = ["git", "rev-parse", "--short", "HEAD"]
        git = shutil.which("git")
        commit = (
            subprocess.run(
                line, cwd=root, capture_output=True, text=True, check=False
            ).stdout.strip()
            if git
            else ""
        )
        # The workers of pytest-xdist read it from the environment, because they must collect the
        # same cases.
        os.environ[SEED] = commit or "0"
    return os.environ[SEED]
