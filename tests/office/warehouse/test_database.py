from __future__ import annotations

import copy
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
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
    """BigQuery or Snowflake with a table `t` that contains the numbers 0 to 4."""

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
        """Kill the database process, as a host without free memory would."""
        live = self.server.engine._live
        assert live is not None
        os.kill(live.process.pid, signal.SIGKILL)


DIALECTS = ("bigquery", "snowflake")
LONG = "REPEAT('ab', 500000)"
# Statements that take too much time or memory, in both dialects or in one.
HEAVY = (
    "SELECT COUNT(*) AS c FROM " + ", ".join(f"{{t}} t{k}" for k in range(20)),
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT COUNT(*) AS c FROM r",
    "WITH RECURSIVE r AS (SELECT 'abcdefgh' AS s UNION ALL SELECT CONCAT(s, s) FROM r) SELECT COUNT(*) AS c FROM r",
    f"SELECT REPLACE({LONG}, 'a', {LONG}) AS c",
    "SELECT REPEAT(REPEAT('x', 1000000), 1000000) AS c",
    "SELECT LPAD('x', 2000000000, 'y') AS c",
    "INSERT INTO {t} SELECT a.x FROM " + ", ".join(f"{{t}} {name}" for name in "abcdefghijk"),
    f"SELECT {'x / (' * 30}x{')' * 30} AS c FROM {{t}}",
)
OF_DIALECT = {
    "bigquery": (
        f"SELECT EDIT_DISTANCE({LONG}, {LONG}) AS c",
        "SELECT REGEXP_EXTRACT(REPEAT('a', 900000), '(a?){900}a{900}') AS c",
        "SELECT GENERATE_ARRAY(1, 1000000000) AS c",
    ),
    "snowflake": ("SELECT SUM(SEQ4()) AS c FROM TABLE(GENERATOR(ROWCOUNT => 20000000000))",),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_heavy_statements_end_and_cost_the_episode_nothing(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "SECONDS", 0.15)
    account = Account(dialect)
    # Each statement kills a process, and DuckDB runs both dialects, so test Snowflake less.
    common = HEAVY if dialect == "bigquery" else HEAVY[::3]
    for sql in (*common, *OF_DIALECT[dialect]):
        with pytest.raises(ToolError, match=r"limit exceeded|invalid argument") as caught:
            account.run(sql)
        assert not isinstance(caught.value, HostLimitError), sql
    monkeypatch.undo()
    assert account.sum() == 10


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_statement_that_is_stopped_changes_nothing(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account(dialect)
    account.run("INSERT INTO {t} VALUES (100)")  # rows that exist only in the database process
    monkeypatch.setattr(database, "SECONDS", 0.05)
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
        "TRUNCATE TABLE {t}2",
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
    account.run(f"CREATE TABLE ds.big AS SELECT REPEAT('x', 600) AS s FROM {rows} AS x")
    for statement in (
        f"INSERT INTO ds.big SELECT REPEAT('y', 600) FROM {rows} AS x",
        f"CREATE TABLE ds.more AS SELECT [REPEAT('y', 600)] AS s FROM {rows} AS x",
        "UPDATE ds.big SET s = CONCAT(s, s) WHERE TRUE",
    ):
        with pytest.raises(
            ToolError, match=r"limit exceeded: the table must have at most \d+"
        ) as caught:
            account.run(statement)
        assert not isinstance(caught.value, HostLimitError)
    assert copy.deepcopy(account).server.engine.tables["ds", "big"].rows == 6_000
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
        "print(account.server.engine._live.process.pid, flush=True)\n"
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
                if stat.read().rpartition(")")[2].split()[0] == "Z":  # nothing reaps zombies here
                    return
        except FileNotFoundError:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still running")


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


def test_a_statement_that_is_stopped_costs_no_other_engine_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database, "SECONDS", 0.5)
    heavy, others = Account("bigquery"), [Account(dialect) for dialect in DIALECTS * 2]
    ended = threading.Event()

    def work(account: Account) -> set[int]:
        sums = {account.sum()}
        while not ended.is_set():
            sums.add(account.sum())
        return sums

    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(work, account) for account in others]
        for sql in (OF_DIALECT["bigquery"][-1], HEAVY[3]):  # exceed memory, then time
            with pytest.raises(ToolError, match="Resources exceeded"):
                heavy.run(sql)
        ended.set()
        assert [answer.result() for answer in answers] == [{10}] * 4


CHANGES = {
    "merged": "MERGE INTO {t}2 t USING (SELECT {key} AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = {step} "
    "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, {step})",
    "updated": "UPDATE {t}2 SET v = v + 1 WHERE k BETWEEN {key} AND {key} + 3",
    "deleted": "DELETE FROM {t}2 WHERE k BETWEEN {key} AND {key} + 1",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_random_changes_agree_with_a_model(dialect: str) -> None:
    """The reference model is a dict; occasionally a copy of the account replaces the original."""
    rng, account, model = random.Random(3), Account(dialect), dict[int, int]()
    account.run("CREATE TABLE {t}2 (k INTEGER, v INTEGER)")
    for step in range(40):
        key, change = rng.randrange(9), rng.choice(list(CHANGES))
        sql = CHANGES[change].replace("{key}", str(key)).replace("{step}", str(step))
        answer = str(account.run(sql))
        length = {"merged": 1, "updated": 4, "deleted": 2}[change]
        hit = [k for k in model if k in range(key, key + length)]
        if change == "merged":
            model[key] = step
        elif change == "updated":
            model |= {k: model[k] + 1 for k in hit}
        else:
            model = {k: v for k, v in model.items() if k not in hit}
        if change != "merged":
            assert re.search(rf"\b{len(hit)} (rows )?{change}", answer), answer
        if step % 20 == 19:
            account.server = pickle.loads(pickle.dumps(account.server))
        values = [list(row.values()) for row in account.rows("SELECT k, v FROM {t}2")]
        assert {int(k): int(v) for k, v in values} == model
