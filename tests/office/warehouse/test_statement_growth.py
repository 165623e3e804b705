from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from agentgym.text.tools import ToolError
from tests.helpers import calls_of
from tests.office.warehouse.test_database import DIALECTS, Account

_BANK = tomllib.loads(Path(__file__).with_name("statement_growth.toml").read_text(encoding="utf-8"))
CHAINS, NESTS = _BANK["chains"], _BANK["nests"]
SHAPES = [*CHAINS, *NESTS]


def statement(shape: str, size: int) -> str:
    if shape in NESTS:
        start, opening, middle, closing, end = NESTS[shape]
        levels = size // len(opening + closing)
        return start + opening * levels + middle + closing * levels + end
    start, part, end = CHAINS[shape]
    count = size // len(part.replace("{}", "1234").replace("{t}", "DB.PUBLIC.T"))
    return start + "".join(part.replace("{}", str(k)) for k in range(count)) + end


def attempt(account: Account, sql: str) -> None:
    """Run a statement that may be rejected, but must not fail in another way."""
    if account.table != "ds.t":
        sql = sql.replace("INT64", "INTEGER").replace("AS STRING", "AS VARCHAR")
    with contextlib.suppress(ToolError):
        account.run(sql[:100_000])


@pytest.fixture(scope="module", params=DIALECTS)
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    yield (made := Account(request.param))
    made.server.engine.close()


def too_steep(work: list[int]) -> bool:
    """Return whether work grows faster than the statement, whose length quadruples at each step."""
    return any(long > 8 * short + 20_000 for short, long in pairwise(work))


@pytest.mark.rotation(shape=SHAPES)
def test_work_grows_no_faster_than_a_statement(account: Account, shape: str) -> None:
    sizes = (1_000, 4_000)
    attempt(account, "SELECT 1 AS x")  # the first statement starts DuckDB
    work = [calls_of(attempt, account, statement(shape, size)) for size in sizes]
    assert not too_steep(work), work


def test_the_law_finds_work_that_grows_with_the_square() -> None:
    assert too_steep([n * n // 9 for n in (1_000, 4_000)])
    assert not too_steep([40 * n for n in (1_000, 4_000)])
