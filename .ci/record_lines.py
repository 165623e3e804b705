"""pytest plugin that records the CPU time of each test and the package lines that the test
executes.

`PYTHONPATH=.ci RECORDS=FOLDER pytest -p record_lines -n 2` writes one file per process, which
`.ci/plant.py` reads. The plugin needs Python 3.12, where `sys.monitoring` can report each line once
per test. Child processes are not recorded.
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
# `sys.monitoring` id that no debugger, profiler or optimizer uses
TOOL = 4
Lines = set[tuple[str, int]]
met: set[CodeType] = set()
running: Lines = set()
# Each test's CPU seconds, and a bit mask of the executed lines of each file.
records: dict[str, tuple[float, dict[str, int]]] = {}


def start(code: CodeType, _: int) -> object:
    # Line events start too late for a function's first call, so record every line of the function.
    if code not in met and str(code.co_filename).startswith(PACKAGE):
        met.add(code)
        monitoring.set_local_events(TOOL, code, monitoring.events.LINE)
        running.update((code.co_filename, line) for *_, line in code.co_lines() if line)
    return monitoring.DISABLE


def line(code: CodeType, number: int) -> object:
    running.add((code.co_filename, number))
    return monitoring.DISABLE


monitoring.use_tool_id(TOOL, "lines of tests")
monitoring.register_callback(TOOL, monitoring.events.PY_START, start)
monitoring.register_callback(TOOL, monitoring.events.LINE, line)
monitoring.set_events(TOOL, monitoring.events.PY_START)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
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
    times = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in times)


def pytest_sessionfinish() -> None:
    monitoring.set_events(TOOL, 0)
    if records:
        path = Path(os.environ["RECORDS"]) / f"{os.getpid()}.pickle"
        path.write_bytes(pickle.dumps(records))
