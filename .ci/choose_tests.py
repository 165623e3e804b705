"""pytest plugin that runs the tests listed in a JSON file in order, and overwrites the file
with the last failed test.

`PYTHONPATH=.ci TESTS=FILE pytest -p choose_tests -x …`
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

FILE = Path(os.environ["TESTS"])
order = {name: k for k, name in enumerate(json.loads(FILE.read_text(encoding="utf-8")))}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    chosen = [item for item in items if item.nodeid in order]
    items[:] = sorted(chosen, key=lambda item: order[item.nodeid])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        FILE.write_text(json.dumps([report.nodeid]), encoding="utf-8")
