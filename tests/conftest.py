"""Settings that must precede all imports, and the sampling of the large test families."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import subprocess
import sys
from collections.abc import Generator
from importlib import metadata
from typing import Any

import pytest
from packaging.requirements import Requirement

# The tests run in one process per core, so more threads per process would compete for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Disable Ray's usage reports and its default niceness of 15, which starves the workers on a busy
# host.
os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"})
# Containers often disable bytecode. The tests start hundreds of interpreters, and each would
# compile the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from tests import sampling


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample",
        type=int,
        default=12,  # about a dozen commits together sample every case
        metavar="N",
        help="run one case in N of the large families (tests/sampling.py); 1 runs all of them",
    )


@pytest.hookimpl(optionalhook=True)  # pytest-xdist may be missing
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of cores plus one, because sandbox and timeout tests mostly wait."""
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux only
    return 1 + (len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the test families with the sampled cases, or with all cases on request."""
    for marker in (
        *metafunc.definition.iter_markers("family"),
        *metafunc.definition.iter_markers("rotation"),
    ):
        if marker.kwargs:
            cases = sampling.current.cases(
                metafunc.definition.nodeid, marker.kwargs, each_kind=marker.name == "family"
            )
            metafunc.parametrize(list(marker.kwargs), cases)


@pytest.hookimpl(tryfirst=True)  # runs before pytest deselects tests by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the rotating tests outside the sample as exhaustive."""
    for item in items:
        marker = item.get_closest_marker("rotation")
        if marker and not marker.kwargs and not sampling.current.takes(item.nodeid):
            item.add_marker("exhaustive")


def pytest_configure(config: pytest.Config) -> None:
    """Create the sample, and perturb rounding on request: `AGENTGYM_ROUNDING=1 pytest
    tests/training/rl`.
    """
    sys.dont_write_bytecode = False  # in this process too
    seed = sampling.seed_of(config.rootpath)  # must precede the start of pytest-xdist's workers
    sampling.current = sampling.Sample(
        config.option.sample, seed, config.option.markexpr != sampling.FAST
    )
    if rounding := os.environ.get("AGENTGYM_ROUNDING"):
        _round_otherwise(int(rounding))


def _round_otherwise(seed: int) -> None:
    """Multiply gradients by random factors near 1, to imitate rounding differences between
    instruction sets. The factors are the same at every step of a run.
    """
    import torch  # noqa: PLC0415 - only if asked
    from torch.optim.optimizer import register_optimizer_step_pre_hook  # noqa: PLC0415

    def perturb(optimizer: torch.optim.Optimizer, args: Any, options: Any) -> None:
        generator = torch.Generator().manual_seed(seed)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    noise = torch.randn(
                        parameter.grad.shape, generator=generator, dtype=parameter.grad.dtype
                    )
                    parameter.grad.mul_(1 + 1e-5 * noise)

    register_optimizer_step_pre_hook(perturb)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Report the sample, and the missing packages with the installation command."""
    lines = [
        f"sample: one case in {config.option.sample} of the large families, {sampling.SEED}={sampling.current.seed}"
    ]
    if lacking := missing_packages():
        lines.append(
            f"not installed, so their tests are skipped: {', '.join(lacking)} (pip install -c constraints.txt -e '.[dev]')"
        )
    return lines


@functools.cache
def missing_packages() -> tuple[str, ...]:
    found: set[str] = set()
    extras, seen = ["test"], set()
    requirements = [Requirement(text) for text in metadata.requires("agentgym-suite") or ()]
    while extras:
        extra = extras.pop()
        seen.add(extra)
        for requirement in requirements:
            if requirement.marker is not None and requirement.marker.evaluate({"extra": extra}):
                if requirement.name == "agentgym-suite":
                    extras += sorted(requirement.extras - seen)
                elif not _is_installed(requirement.name):
                    found.add(requirement.name)
    return tuple(sorted(found))


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _is_for_want_of_a_package(error: BaseException | None) -> bool:
    """Return whether an error or its cause reports a missing package."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name and missing_packages():
            return importlib.util.find_spec(error.name.partition(".")[0]) is None
        error = error.__cause__ or error.__context__
    return False


def _is_for_want_of_a_sandbox(error: BaseException | None) -> bool:
    """Return whether an error or its cause reports that this host cannot run programs. Failures
    that a test simulates do not count.
    """
    while error is not None:
        if type(error).__name__ == "SandboxUnavailable":
            return not _runs_programs()
        error = error.__cause__ or error.__context__
    return False


_HOST = dict(os.environ)  # saved before a test changes the environment


@functools.cache
def _runs_programs() -> bool:
    code = "from agentgym.sandboxes import workbench; workbench.check()"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=_HOST, capture_output=True, check=False).returncode == 0


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file that imports a missing package."""
    report = yield
    call: Any = getattr(report, "call", None)
    if (
        report.failed
        and call is not None
        and call.excinfo
        and _is_for_want_of_a_package(call.excinfo.value)
    ):
        report.outcome = "skipped"
        report.longrepr = (
            str(collector.path),
            0,
            f"Skipped: {call.excinfo.value.__cause__ or call.excinfo.value}",
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that needs a missing package, or programs that cannot run on this host."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if report.failed and (_is_for_want_of_a_package(error) or _is_for_want_of_a_sandbox(error)):
        report.outcome = "skipped"
        report.longrepr = (
            str(item.path),
            item.reportinfo()[1] or 0,
            f"Skipped: {error}",
        )
    return report


def pytest_collection_finish() -> None:
    """Exclude imported and collected objects from all later garbage collections."""
    gc.freeze()
