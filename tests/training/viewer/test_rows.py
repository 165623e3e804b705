from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from agentgym.training.viewer.page import asset
from agentgym.training.viewer.run_index import RunRow

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no node to run the script")

FIRST = RunRow(0, "a/t.jsonl", 0, "a", world="W", arm="none", context="none", outcome="solved")
ROWS = [
    replace(FIRST, seed=10, size=4, turns=3, reward=1.0, policy="p", labels={"optimal": 2}),
    replace(FIRST, number=1, arm="S", seed=9, size=16, turns=20, policy="p", outcome="lost"),
    replace(FIRST, number=2, arm="S", seed=9, size=4, turns=3, policy="p", outcome="broken"),
    replace(FIRST, number=3, run="b", arm="none", size=None, turns=100, policy='=p,"q"'),
]


def evaluate(expression: str) -> Any:
    """Evaluate a JavaScript expression that may use the page's pure functions and `rows`."""
    program = "\n".join(
        [
            asset("address.js"),
            asset("rows.js"),
            f"const rows = {json.dumps([asdict(row) for row in ROWS])};",
            f"process.stdout.write(JSON.stringify({expression}));",
        ]
    )
    assert NODE is not None
    done = subprocess.run([NODE, "-"], input=program, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "address",
    [
        "#",
        "#list&arm=S&size=16&sort=-turns&text=a%20%26%20b",
        "#episode=a/t.jsonl:3&with=b/t.jsonl:3&with=c/t.jsonl:0&turn=7&outcome=lost",
        "#episode=a/t.jsonl:3&team&context=x%2By%3Dz",
        "#run=%C3%BC%25&rows=policy&measure=turns",
    ],
)
def test_an_address_is_read_and_written(address: str) -> None:
    assert evaluate(f"writeAddress(readAddress({json.dumps(address)}))") == address


@pytest.mark.parametrize("hash_", ["", "#turn=-1", "#turn=x&unknown=1", "#%E0%A4%A&turn=1e9"])
def test_a_malformed_address_is_the_summary(hash_: str) -> None:
    address = evaluate(f"readAddress({json.dumps(hash_)})")
    assert (address["episode"], address["list"], address["turn"], address["filters"]) == (
        "", False, 0, {},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("filters", "matches", "kept"),
    [
        ({}, None, [0, 1, 2, 3]),
        ({"arm": "S", "size": "16"}, None, [1]),
        ({"seed": "9"}, None, [1, 2]),
        ({"label": "optimal"}, None, [0]),
        ({"arm": "S"}, [2, 3], [2]),
        ({"outcome": "unknown"}, None, []),
    ],
)
def test_filters(filters: dict[str, str], matches: list[int] | None, kept: list[int]) -> None:
    found = "null" if matches is None else f"new Set({matches})"
    assert (
        evaluate(
            f"rows.filter((row) => keeps(row, {json.dumps(filters)}, {found})).map((row) => row.number)"
        )
        == kept
    )


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("", [0, 1, 2, 3]),
        ("turns", [0, 2, 1, 3]),
        ("-turns", [3, 1, 0, 2]),
        ("size", [0, 2, 1, 3]),
        ("-size", [1, 0, 2, 3]),
        ("arm", [0, 3, 1, 2]),
        ("__proto__", [0, 1, 2, 3]),
    ],
)
def test_order_with_missing_values_last(sort: str, order: list[int]) -> None:
    assert evaluate(f"sorted(rows, {json.dumps(sort)}).map((row) => row.number)") == order


def test_columns_that_are_empty_or_none_are_hidden() -> None:
    assert evaluate("columnsOf(rows).map((column) => column.name)") == [
        "number", "outcome", "run", "world", "arm", "policy", "seed", "size", "turns", "reward",
    ]  # fmt: skip


def test_tables_pool_no_runs_and_count_each_episode_once() -> None:
    tables = evaluate(
        "tablesOf(rows, 'arm').map((table) => [table.filters, table.names.map((name) =>"
        "table.sizes.map((size) => meanOf(table.rowsOf(name, size), 'solved')))])"
    )
    nothing, solved, lost = (
        {"count": 0, "mean": None}, {"count": 1, "mean": 1}, {"count": 1, "mean": 0},
    )  # fmt: skip
    assert tables == [
        [{"run": "a"}, [[solved, nothing], [nothing, lost]]],
        [{"run": "b"}, [[solved]]],
    ]


def test_csv_is_read_back_and_runs_no_formula(tmp_path: Path) -> None:
    table = list(csv.DictReader(io.StringIO(evaluate("toCsv(rows)"))))
    assert [int(row["turns"]) for row in table] == [3, 20, 3, 100]
    assert [row["policy"] for row in table] == ["p", "p", "p", '\'=p,"q"']
    assert json.loads(table[0]["labels"]) == {"optimal": 2}
