"""Sampling of the large test families, which combine worlds with arms, strategies, dialects and
other axes.

Each test declares its axes, for example `@pytest.mark.family(env_id=IDS, arm=ARMS)`. A run executes
one in `--sample` combinations of the axes' values. The commit seeds the draw, so each commit runs a
different sample. `-m exhaustive` runs the remaining cases, and `--sample 1` runs all.

Every sample contains at least one case of each kind, such as each id or arm.
`@pytest.mark.rotation(stop=STOPS)` runs one in `--sample` cases, and often none; use this mark for
slow cases that resemble each other. `@pytest.mark.rotation` without arguments is for whole tests
that take seconds and repeat what quicker tests cover.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentgym import teams, worlds
from agentgym.envs.loca.task import OfficeTask

Case = tuple[Any, ...]
# Environment variable that overrides the sample's seed.
SEED = "AGENTGYM_SAMPLE_SEED"
# The `-m` expression of a plain run, which does not build cases outside the sample.
FAST = "not exhaustive"
# The office tasks resemble each other and have long episodes, so fewer of them are sampled.
OFFICE = frozenset(
    entry.id for entry in worlds(presets=True) if issubclass(entry.world, OfficeTask)
)
# Number of other cases per office case, chosen so that both groups take similar time.
OFFICE_SHARE = 8
# Kinds of ids: each world with its presets, each team (`-manager` counts as `-team`), and all
# office tasks together.
KINDS = {
    name: "office"
    if issubclass(entry.world, OfficeTask)
    else entry.id.replace("-manager-", "-team-")
    if entry in teams()
    else entry.world.__name__
    for entry in (*worlds(presets=True), *teams())
    for name in (entry.id, entry.id.removeprefix("agentgym/").removesuffix("-v0"))
}


def is_office(env_id: str) -> bool:
    """Return whether an id belongs to an office task or to a team that plays one."""
    return KINDS[env_id] == "office"


def kind(value: Any) -> Any:
    """Return the group of a value for sampling: the kind of an env id, or else the value itself."""
    if isinstance(value, tuple) and value[0] in OFFICE:  # a tuple of an id and its details
        return "office"
    return KINDS.get(value, value) if isinstance(value, str) else repr(value)


@dataclass(frozen=True)
class Sample:
    """Drawing of samples.

    Args:
        one_in: The number of cases per sampled case; office tasks are sampled far less often.
        seed: The seed, which is combined with the family's name.
        whole: Whether to build the other cases too, marked `exhaustive`.
    """

    one_in: int
    seed: str
    whole: bool

    def cases(
        self, family: str, axes: Mapping[str, Sequence[Any]], each_kind: bool = True
    ) -> list[Any]:
        """Return the cases of a family as test parameters, in the order of `itertools.product`.

        Args:
            family: The family's name, which seeds the draw.
            axes: The parameter names and their values.
            each_kind: Whether to sample each kind on each axis, instead of one case in `one_in`.
        """
        values = [
            [value.values[0] if _is_exhaustive(value) else value for value in axis]
            for axis in axes.values()
        ]
        everything = list(itertools.product(*values))
        marked = itertools.product(*axes.values())
        quick = [
            case
            for case, parts in zip(everything, marked, strict=True)
            if not any(map(_is_exhaustive, parts))
        ]
        if self.one_in == 1:
            drawn = everything
        elif each_kind:
            drawn = self._draw(family, quick)
        else:
            # Draw by position, because the text of a value may contain a memory address.
            drawn = [case for k, case in enumerate(quick) if self.takes(f"{family} {k}")]
        numbers = set(map(id, drawn))  # identifies cases, which may contain unhashable values
        # without any case, pytest would report a skip
        builds_all = not drawn or (self.whole and self.one_in > 1)
        return [
            pytest.param(*case, marks=() if id(case) in numbers else pytest.mark.exhaustive)
            for case in everything
            if builds_all or id(case) in numbers
        ]

    def takes(self, test: str) -> bool:
        """Return whether the sample contains a rotating test, or one of its cases."""
        return random.Random(f"{self.seed} {test}").randrange(self.one_in) == 0

    def _draw(self, family: str, cases: Sequence[Case]) -> list[Case]:
        """Draw one case in `one_in`, then add a case for each kind that is missing on an axis."""
        shuffled = list(cases)
        random.Random(f"{self.seed} {family}").shuffle(shuffled)
        offices = [case for case in shuffled if "office" in map(kind, case)]
        others = [case for case in shuffled if "office" not in map(kind, case)]
        drawn = others[: math.ceil(len(others) / self.one_in)]
        drawn += offices[: math.ceil(len(drawn or offices) / OFFICE_SHARE)]
        for axis in range(len(cases[0])):
            kinds = {kind(case[axis]) for case in drawn}
            for case in shuffled:
                if kind(case[axis]) not in kinds:
                    kinds.add(kind(case[axis]))
                    drawn.append(case)
        return drawn


# The sample of this run, set by `conftest.py`.
current = Sample(12, "0", whole=False)


def few(env_id: str, count: int) -> range:
    """Return the seeds, reduced to a fifth for office tasks in a sampled run."""
    thin = env_id in OFFICE and current.one_in > 1 and not current.whole
    return range(max(1, count // 5) if thin else count)


def _is_exhaustive(value: Any) -> bool:
    return any(mark.name == "exhaustive" for mark in getattr(value, "marks", ()))


def seed_of(root: Path) -> str:
    """Return the sample's seed: the environment variable, the commit, or a constant."""
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
        # The workers of pytest-xdist read the seed from the environment, because they must collect
        # the same cases.
        os.environ[SEED] = commit or "0"
    return os.environ[SEED]
