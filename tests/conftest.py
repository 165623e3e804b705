"""Settings for all tests, made before any library is loaded, and the sample of their large families."""

from __future__ import annotations

import os

# The tests run in as many processes as there are cores: more threads in each would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from tests.sampling import FAST, SEED, Sample, seed_of


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample",
        type=int,
        default=4,
        metavar="N",
        help="run one case in N of the large families (tests/sampling.py); 1 runs all of them",
    )


def pytest_configure(config: pytest.Config) -> None:
    seed_of(config.rootpath)


def pytest_report_header(config: pytest.Config) -> str:
    return f"sample: one case in {config.option.sample} of the large families, {SEED}={seed_of(config.rootpath)}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the families with the cases of the sample, and with the rest only if it is asked for."""
    sample = Sample(metafunc.config.option.sample, seed_of(metafunc.config.rootpath), metafunc.config.option.markexpr != FAST)
    for family in metafunc.definition.iter_markers("family"):
        metafunc.parametrize(list(family.kwargs), sample.cases(metafunc.definition.nodeid, family.kwargs))
