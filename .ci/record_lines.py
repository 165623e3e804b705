"""A plugin for pytest that records which lines of the package each test runs, and its processor time.

`PYTHONPATH=.ci RECORDS=FOLDER pytest -p record_lines -n 2` writes a file in FOLDER for each process, which
`.ci/plant.py` reads. It needs Python 3.12, whose monitoring reports each line of a test once and
costs a third of the time. What a test runs in other processes is not seen.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from types import CodeType

import pytest

ROOT = f"{Path(__file__).parents[1]}/"
PACKAGE = f"{ROOT}agentgym/"
monitoring = sys.monitoring
TOOL = 4
"""A number that no debugger, profiler or optimizer uses."""
Lines = set[tuple[str, int]]
met: set[CodeType] = set()
running: Lines = set()
records: dict[str, tuple[float, dict[str, int]]] = {}
"""The seconds of each test, and for each file a number whose bits are the lines that it runs."""


def start(code: CodeType, _: int) -> object:
    """Ask for the lines of a function of the package, once; all of its first call count as run,
    which began before.
    """
    if code not in met and str(code.co_filename).startswith(PACKAGE):
        met.add(code)
        monitoring.set_local_events(TOOL, code, monitoring.events.LINE)
        running.update((code.co_filename, line) for *_, line in code.co_lines() if line)
    return monitoring.DISABLE


def line(code: CodeType, number: int) -> object:
    """Record a line, and hear no more of it during this test."""
    running.add((code.co_filename, number))
    return monitoring.DISABLE


monitoring.use_tool_id(TOOL, "lines of tests")
monitoring.register_callback(TOOL, monitoring.events.PY_START, start)
monitoring.register_callback(TOOL, monitoring.events.LINE, line)
monitoring.set_events(TOOL, monitoring.events.PY_START)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record a test with its fixtures."""
    running.clear()
    monitoring.restart_events()
    began = seconds()
    result = yield
    masks = Counter[str]()
    for name, number in running:
        masks[name.removeprefix(ROOT)] += 1 << number
    records[item.nodeid] = (seconds() - began, dict(masks))
    return result


def seconds() -> float:
    """Return the processor time of this process and of those that it has ended."""
    times = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in times)


def pytest_sessionfinish() -> None:
    """Write the records of this process, if it ran tests."""
    monitoring.set_events(TOOL, 0)
    if records:
        path = Path(os.environ["RECORDS"]) / f"{os.getpid()}.pickle"
        path.write_bytes(pickle.dumps(records))
