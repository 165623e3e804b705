"""A plugin for pytest that runs the tests named in a JSON file, in its order, and writes there which
failed: `PYTHONPATH=.ci TESTS=FILE pytest -p choose_tests -x …`, for `.ci/plant.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = Path(os.environ["TESTS"])
order = {name: k for k, name in enumerate(json.loads(FILE.read_text(encoding="utf-8")))}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop all other tests."""
    chosen = [item for item in items if item.nodeid in order]
    items[:] = sorted(chosen, key=lambda item: order[item.nodeid])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the name of a test that failed."""
    if report.failed:
        FILE.write_text(json.dumps([report.nodeid]), encoding="utf-8")
