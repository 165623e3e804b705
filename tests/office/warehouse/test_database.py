"""Expensive statements end at the same limit on every host, and the office continues."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from agentgym import ToolCall, make, render
from agentgym.envs.loca.results import data_rows, query_rows
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.warehouse import database, engine
from agentgym.office.warehouse.snowflake import Snowflake
from agentgym.text.tools import HostLimitError, ToolError, tools_of
from tests.helpers import PATIENCE


class Account:
    """A warehouse with a table `t` of the numbers 0 to 4, queried in its dialect."""

    def __init__(self, dialect: str) -> None:
        self.server: GoogleCloud | Snowflake
        if dialect == "bigquery":
            self.server = GoogleCloud()
            self.server.bigquery.load("ds", "t", {"x": "INT64"}, [(k,) for k in range(5)])
            self.table, self.reads, self.writes = "ds.t", "bigquery_run_query", "bigquery_run_query"
        else:
            self.server = Snowflake()
            self.server.load("DB.PUBLIC.T", {"X": "INTEGER"}, [(k,) for k in range(5)])
            self.table, self.reads, self.writes = "DB.PUBLIC.T", "read_query", "write_query"

    def run(self, sql: str) -> Any:
        sql = sql.replace("{t}", self.table)
        reads = sql.startswith(("SELECT", "WITH"))
        return tools_of(self.server)[self.reads if reads else self.writes]({"query": sql})

    def sum(self) -> int:
        [row] = self.rows("SELECT SUM(x) AS s FROM {t}")
        return int(next(iter(row.values())))

    def rows(self, sql: str) -> list[dict[str, Any]]:
        answer = self.run(sql)
        return query_rows(answer) if isinstance(self.server, GoogleCloud) else data_rows(answer)

    def kill(self) -> None:
        """Kill the database process, like a host that is out of memory."""
        live = self.server.engine._live
        assert live is not None
        os.kill(live.pid, signal.SIGKILL)


DIALECTS = ("bigquery", "snowflake")
LONG = "REPEAT('ab', 500000)"
# A single call of these would take much time or memory.
SCALARS = {
    "bigquery": (
        f"EDIT_DISTANCE({LONG}, {LONG})",
        f"EDIT_DISTANCE({LONG}, {LONG}, max_distance => 3)",
        "FORMAT('%0999999999d', 1)",
        "FORMAT('%*d', 999999999, 1)",
        "FORMAT('%.999999999f', 1.5)",
        "FORMAT('%-+ 0999999999s', 'x')",
        "FORMAT(CONCAT('%0', '99999', 'd'), 1)",
        f"REPLACE({LONG}, 'a', {LONG})",
        f"REGEXP_REPLACE({LONG}, 'a', {LONG})",
        f"REGEXP_REPLACE({LONG}, '(.*)', REPEAT(r'\\1', 1000))",
        "LPAD('x', 2000000000, 'y')",
        "RPAD('x', 2000000000)",
        "REPEAT('x', 2000000000)",
        "REPEAT(REPEAT('x', 1000000), 1000000)",
        "GENERATE_ARRAY(1, 1000000000)",
        "GENERATE_ARRAY(1, -1000000000, -1)",
        "GENERATE_DATE_ARRAY(DATE '0001-01-01', DATE '9999-12-31')",
        "GENERATE_DATE_ARRAY(DATE '9999-12-31', DATE '0001-01-01', INTERVAL -1 DAY)",
        "GENERATE_TIMESTAMP_ARRAY(TIMESTAMP '2001-01-01', TIMESTAMP '2999-12-31', INTERVAL 1 SECOND)",
    ),
    "snowflake": (
        f"EDITDISTANCE({LONG}, {LONG})",
        f"EDITDISTANCE({LONG}, {LONG}, 5)",
        f"JAROWINKLER_SIMILARITY({LONG}, {LONG})",
        "SPACE(1000000000)",
        "RANDSTR(100000000, RANDOM())",
        f"REPLACE({LONG}, 'a', {LONG})",
        f"REGEXP_REPLACE({LONG}, 'a', {LONG})",
        "LPAD('x', 2000000000, 'y')",
        "RPAD('x', 2000000000, 'y')",
        "REPEAT('x', 2000000000)",
        "ARRAY_GENERATE_RANGE(1, 1000000000)",
    ),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_function_that_would_work_too_much_is_refused_by_its_arguments(dialect: str) -> None:
    account = Account(dialect)
    account.run("SELECT 1 AS a")
    process = account.server.engine._live
    for scalar in SCALARS[dialect]:
        with pytest.raises(ToolError, match=r"invalid argument: ") as caught:
            account.run(f"SELECT {scalar} AS a")
        assert not isinstance(caught.value, HostLimitError), scalar
    assert account.server.engine._live is process, "it was never stopped"
    assert account.sum() == 10


@pytest.mark.parametrize("dialect", DIALECTS)
def test_functions_with_ordinary_arguments_give_what_they_gave(dialect: str) -> None:
    account = Account(dialect)
    ordinary = {
        "bigquery": {
            "EDIT_DISTANCE('kitten', 'sitting')": 3,
            "FORMAT('%05d in 2025: %s', 7, 'x')": "00007 in 2025: x",
            "REPLACE('a,b', ',', ', ')": "a, b",
            "REPLACE('aXb', 'X', '')": "ab",
            "REGEXP_REPLACE('a1b22', '[0-9]+', '#')": "a#b#",
            "LENGTH(REPLACE(REPEAT('a', 900000), 'b', 'cccccc'))": 900_000,
            "ARRAY_LENGTH(GENERATE_DATE_ARRAY(DATE '2025-01-01', DATE '2025-12-31'))": 365,
            "ARRAY_LENGTH(GENERATE_DATE_ARRAY('2025-01-01', '2025-02-01', INTERVAL 1 WEEK))": 5,
        },
        "snowflake": {
            "EDITDISTANCE('kitten', 'sitting')": 3,
            "JAROWINKLER_SIMILARITY('abc', 'abd')": 82,
            "LENGTH(SPACE(3))": 3,
            "LENGTH(RANDSTR(8, RANDOM()))": 8,
            "REPLACE('aXb', 'X')": "ab",
            "REGEXP_REPLACE('a1b22', '[0-9]+')": "ab",
        },
    }
    for scalar, value in ordinary[dialect].items():
        [row] = account.rows(f"SELECT {scalar} AS a")
        assert str(next(iter(row.values()))) == str(value), scalar


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_statement_that_is_stopped_changes_nothing(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "SECONDS", 0.05)
    account = Account(dialect)
    account.run("INSERT INTO {t} VALUES (100)")  # rows that exist only in the process
    slow = "SELECT COUNT(*) AS c FROM " + ", ".join(f"{{t}} t{k}" for k in range(10))
    with pytest.raises(ToolError, match=r"ran for more than 0\.05 seconds") as caught:
        account.run(slow)
    assert not isinstance(caught.value, HostLimitError), "the statement caused it"
    monkeypatch.undo()
    assert account.sum() == 110
    account.run("DELETE FROM {t} WHERE x = 100")
    assert account.sum() == 10


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_process_that_is_killed_costs_one_statement(dialect: str) -> None:
    account, twin = Account(dialect), Account(dialect)
    statements = [
        "CREATE TABLE {t}2 AS SELECT x, x * 2 AS y FROM {t}",
        "INSERT INTO {t}2 SELECT x + 10, 7 FROM {t}",
        "UPDATE {t} SET x = x + 1 WHERE x > 2",
        "DROP TABLE {t}2",
        "INSERT INTO {t} SELECT x FROM {t} WHERE x < 2",
    ]
    for k, statement in enumerate(statements):
        account.kill() if k else None
        if k:
            with pytest.raises(HostLimitError):
                account.run(statement)
        for each in (account, twin):
            each.run(statement)
    account.kill()
    with pytest.raises(HostLimitError):
        account.sum()
    assert account.sum() == twin.sum()
    assert pickle.dumps(account.server.engine) == pickle.dumps(twin.server.engine)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_refused_statement_is_undone_whole(dialect: str) -> None:
    account = Account(dialect)
    account.run("CREATE TABLE {t}2 AS SELECT x FROM {t}")
    account.run("INSERT INTO {t} VALUES (50)")
    for statement in (
        "DROP TABLE {t}, {t}_missing",
        "DROP TABLE {t}, {t}2, {t}",
        "INSERT INTO {t} SELECT CAST('x' AS INT) FROM {t}",
        "CREATE OR REPLACE TABLE {t} AS SELECT 1 / 0 AS z",
        "CREATE TABLE {t}9 AS SELECT REPEAT('y', 600) AS s FROM {t}2, {t}2 b, {t}2 c, {t}2 d, {t}2 e, {t}2 f, {t}2 g, {t}2 h",
    ):
        before = pickle.dumps(copy.deepcopy(account.server))
        with pytest.raises(ToolError):
            account.run(statement)
        assert pickle.dumps(account.server) == before, statement
        assert account.sum() == 60, statement


def test_tables_beyond_the_limit_are_refused_and_tables_at_it_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "MAX_CHARACTERS", 1 << 22)
    account = Account("bigquery")
    rows = "UNNEST(GENERATE_ARRAY(1, 6000))"
    account.run(f"CREATE TABLE ds.big AS SELECT REPEAT('\\x01', 600) AS s FROM {rows} AS x")
    for statement in (
        f"INSERT INTO ds.big SELECT REPEAT('y', 600) FROM {rows} AS x",
        f"CREATE TABLE ds.more AS SELECT [REPEAT('y', 600)] AS s FROM {rows} AS x",
        "UPDATE ds.big SET s = CONCAT(s, s) WHERE TRUE",
    ):
        with pytest.raises(ToolError, match=r"limit exceeded: the tables would have \d+") as caught:
            account.run(statement)
        assert not isinstance(caught.value, HostLimitError)
    assert tools_of(account.server)["bigquery_get_dataset_info"]({"dataset_id": "ds"})
    copied = copy.deepcopy(account)
    assert copied.server.engine.table(("ds", "big")).rows == 6_000
    account.run("DELETE FROM ds.big WHERE TRUE")
    account.run(f"CREATE TABLE ds.more AS SELECT REPEAT('y', 600) AS s FROM {rows} AS x")


def test_a_child_of_this_process_has_a_database_of_its_own() -> None:
    account = Account("snowflake")
    account.run("INSERT INTO {t} VALUES (5)")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(account.sum()).encode())
        os._exit(0)
    assert os.read(reader, 10) == b"15"
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    assert account.sum() == 15


def test_no_process_outlives_the_one_that_started_it() -> None:
    code = (
        "import os, sys\n"
        "from tests.office.warehouse.test_database import Account\n"
        "account = Account('bigquery'); account.sum()\n"
        "print(account.server.engine._live.pid, flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.kill(pid, 0)
        process.kill()
        process.wait()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:  # noqa: PTH123
                if stat.read().rpartition(")")[2].split()[0] == "Z":  # nobody reaps a zombie here
                    return
        except FileNotFoundError:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still there")


def test_an_episode_in_which_the_host_gave_out_is_invalid() -> None:
    env = make("agentgym/ABTesting-v0")
    env.reset(seed=0)
    query = "SELECT COUNT(*) AS c FROM UNNEST(GENERATE_ARRAY(1, 10)) AS x"
    call = render(ToolCall("bigquery_run_query", {"query": query}))
    assert not env.step(call)[4]["detail"].invalid
    servers = env.unwrapped.world.office.toolsets()  # type: ignore[attr-defined]
    (server,) = [each for each in servers if isinstance(each, GoogleCloud)]
    account = Account.__new__(Account)
    account.server = server
    account.kill()
    chat, *_, info = env.step(call)
    assert chat.messages[-1].text.startswith("error: limit exceeded")
    assert info["detail"].invalid.startswith("bigquery_run_query was stopped by the host")
    chat, *_, info = env.step(call)
    assert not info["detail"].errors
    assert info["detail"].invalid
