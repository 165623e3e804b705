"""Snowflake's transactions and stages."""

from __future__ import annotations

import copy
import pickle
import random

import pytest

from agentgym.envs.loca.plan import data_rows
from agentgym.office.warehouse import stages
from agentgym.office.warehouse.snowflake import Snowflake
from agentgym.text.tools import ToolError, tools_of

NAME = ("DB.PUBLIC", "T")


@pytest.fixture
def server() -> Snowflake:
    made = Snowflake()
    made.load("DB.PUBLIC.T", {"ID": "INTEGER", "NAME": "VARCHAR"}, [(1, "a"), (2, "b"), (3, None)])
    return made


def write(server: Snowflake, query: str) -> str:
    return str(tools_of(server)["write_query"]({"query": query}))


def ask(server: Snowflake, query: str) -> list[tuple[str, ...]]:
    answer = tools_of(server)["read_query"]({"query": query})
    return [tuple(row.values()) for row in data_rows(answer)]


def count(server: Snowflake) -> int:
    return int(ask(server, "SELECT COUNT(*) FROM t")[0][0])


def committed(server: Snowflake) -> int:
    table = server.engine.committed_table(NAME)
    return -1 if table is None else table.rows


@pytest.mark.parametrize(
    "begin", ["BEGIN", "BEGIN TRANSACTION", "begin work;", "START TRANSACTION"]
)
def test_a_transaction_is_kept_or_undone_whole(server: Snowflake, begin: str) -> None:
    write(server, begin)
    write(server, "DELETE FROM t WHERE id = 1")
    write(server, "INSERT INTO t (id) VALUES (8), (9)")
    assert (count(server), committed(server)) == (4, 3)
    write(server, "ROLLBACK")
    assert (count(server), committed(server)) == (3, 3)
    write(server, begin)
    write(server, "DELETE FROM t WHERE id = 1")
    write(server, "COMMIT")
    write(server, "ROLLBACK")  # no transaction is open
    assert (count(server), committed(server)) == (2, 2)
    assert ask(server, "SELECT id FROM t ORDER BY id") == [("2",), ("3",)]


def test_a_transaction_goes_on_in_copies(server: Snowflake) -> None:
    write(server, "BEGIN")
    write(server, "DELETE FROM t WHERE id > 1")
    for other in (copy.deepcopy(server), pickle.loads(pickle.dumps(server))):
        assert pickle.dumps(other.engine) == pickle.dumps(server.engine)
        assert (count(other), committed(other)) == (1, 3)
        write(other, "ROLLBACK")
        assert (count(other), committed(other)) == (3, 3)
    assert (count(server), committed(server)) == (1, 3)


def test_a_statement_that_fails_leaves_its_transaction_as_it_was(server: Snowflake) -> None:
    write(server, "BEGIN")
    write(server, "DELETE FROM t WHERE id = 1")
    before = pickle.dumps(server)
    for wrong in (
        "INSERT INTO nope VALUES (1)",
        "INSERT INTO t SELECT 1 / 0, 'x'",
        "CREATE TABLE t (a INT)",
    ):
        with pytest.raises(ToolError):
            write(server, wrong)
        assert pickle.dumps(server) == before, wrong
    write(server, "ROLLBACK")
    assert count(server) == 3


def test_a_definition_commits(server: Snowflake) -> None:
    write(server, "BEGIN")
    write(server, "DELETE FROM t WHERE id = 1")
    write(server, "CREATE TABLE u (a INT)")
    write(server, "ROLLBACK")
    assert (count(server), committed(server)) == (2, 2)


def test_transactions_survive_a_process_that_ends(server: Snowflake) -> None:
    write(server, "INSERT INTO t (id) VALUES (4)")
    write(server, "BEGIN")
    write(server, "DELETE FROM t WHERE id < 3")
    server.close()
    assert (count(server), committed(server)) == (2, 4)
    write(server, "ROLLBACK")
    assert count(server) == 4


@pytest.mark.parametrize(
    "block", ["BEGIN DELETE FROM t; END;", "DECLARE x INT; BEGIN RETURN 1; END", "EXECUTE IMMEDIATE 'SELECT 1'", "LET x := 1"]
)  # fmt: skip
def test_scripting_is_refused_with_a_way_out(server: Snowflake, block: str) -> None:
    with pytest.raises(
        ToolError, match="Scripting is not supported; send each statement in a call"
    ):
        write(server, block)


def test_files_go_through_a_stage_into_a_table_and_back(server: Snowflake) -> None:
    server.context.files.write("in.csv", 'id,name\n7,"x, ""y"""\n8,\n')
    server.context.files.write("more.json", '{"id": 9, "NAME": "z"}\n{"id": 10}\n')
    write(server, "CREATE STAGE s")
    assert "in.csv uploaded" in write(server, "PUT file:///workspace/in.csv @s")
    write(server, "PUT file:///workspace/more.json @s/sub AUTO_COMPRESS=FALSE OVERWRITE=TRUE")
    assert [row[:2] for row in ask(server, "LIST @s")] == [
        ("in.csv", "24"),
        ("sub/more.json", "34"),
    ]
    assert [row[1:] for row in ask(server, "SHOW STAGES")] == [("S", "DB", "PUBLIC")]
    form = "FILE_FORMAT = (TYPE = CSV SKIP_HEADER = 1 FIELD_OPTIONALLY_ENCLOSED_BY = '\"')"
    assert "2 inserted" in write(server, f"COPY INTO t FROM @s/in.csv {form}")
    query = "COPY INTO t (name, id) FROM @db.public.s FILES = ('more.json') FILE_FORMAT = (TYPE = 'JSON')"
    assert "2 inserted" in write(server, query)
    rows = [("7", 'x, "y"'), ("8", "null"), ("9", "z"), ("10", "null")]
    assert ask(server, "SELECT * FROM t WHERE id > 3 ORDER BY id") == rows
    query = "COPY INTO @s/out.csv FROM (SELECT * FROM t WHERE id IN (7, 8) ORDER BY id) HEADER = TRUE SINGLE = TRUE"
    assert "2 unloaded" in write(server, query)
    assert "1 files downloaded" in write(server, "GET @s/out.csv file:///workspace/down/")
    assert "1 files downloaded" in write(server, "GET @s/in.csv 'file:///workspace/my files/'")
    assert server.context.files.is_file("my files/in.csv")
    assert server.context.files.read_text("down/out.csv") == 'ID,NAME\n7,"x, ""y"""\n8,\n'
    assert "7 unloaded" in write(server, "COPY INTO @s/all FROM t FILE_FORMAT = (TYPE = JSON)")
    other = pickle.loads(pickle.dumps(server))
    write(other, "REMOVE @s/all")
    names = ["all_0_0_0.json", "in.csv", "out.csv", "sub/more.json"]
    assert [row[0] for row in ask(server, "LIST @s")] == names
    assert [row[0] for row in ask(other, "LIST @s")] == names[1:]
    write(other, "DROP STAGE s")
    assert other.store.find("stage_files") == []


REFUSED = {
    "CREATE STAGE s": "conflict: the stage DB.PUBLIC.S already exists",
    "DROP STAGE nope": "not found: the stage DB.PUBLIC.NOPE",
    "PUT file:///etc/passwd @s": "permission denied",
    "PUT file:///workspace/nope.csv @s": "not found",
    "PUT 'in.csv' @s": "write file:///workspace/name",
    "GET @s file:///tmp/": "permission denied",
    "GET @s": "syntax error",
    "GET @s 'x'": "write file:///workspace/name",
    "COPY INTO t FROM @s/in.csv": "a row of the file has 2 fields|Could not convert",
    "COPY INTO t FROM @s/in.csv PATTERN = '.*'": 'the option "PATTERN" is not supported',
    "COPY INTO t FROM @s FILE_FORMAT = (TYPE = PARQUET)": "files are CSV .* or JSON",
    "COPY INTO t FROM @s FILE_FORMAT = (TYPE = CSV ESCAPE = 'x')": 'option "ESCAPE" is not supported',
    "COPY INTO t FROM @s FILE_FORMAT = (TYPE = JSON)": "the file is no JSON",
    "COPY INTO t FROM 's3://bucket/x'": "COPY INTO needs a stage",
    "COPY INTO nope FROM @s": "not found: there is no table",
    "COPY INTO @s/in FROM (DELETE FROM t)": "invalid argument|permission denied",
    "LIST @s": "run it with read_query",
}  # fmt: skip


@pytest.mark.parametrize("query", REFUSED)
def test_what_a_stage_refuses_changes_nothing(server: Snowflake, query: str) -> None:
    server.context.files.write("in.csv", "x,1\n")
    write(server, "CREATE STAGE s")
    write(server, "PUT file:///workspace/in.csv @s")
    before = pickle.dumps(server)
    with pytest.raises(ToolError, match=REFUSED[query]):
        write(server, query)
    assert pickle.dumps(server) == before
    with pytest.raises(ToolError, match="cannot be queried; load them with COPY INTO"):
        ask(server, "SELECT $1 FROM @s")


def test_a_stage_with_dots_in_its_name_is_shown_whole(server: Snowflake) -> None:
    write(server, 'CREATE STAGE "a.b"')
    assert [row[1:] for row in ask(server, "SHOW STAGES")] == [("a.b", "DB", "PUBLIC")]


def test_a_copy_is_refused_by_its_name(server: Snowflake) -> None:
    with pytest.raises(ToolError, match=r"can be run here, not COPY$"):
        server.read_query("COPY INTO t FROM @s")


def test_stages_have_a_quota(server: Snowflake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MAX_BYTES", 10)
    server.context.files.write("a", "123456")
    write(server, "PUT file:///workspace/a @~")
    write(server, "PUT file:///workspace/a @~")  # replaces the first
    with pytest.raises(ToolError, match="limit exceeded: the files of all stages"):
        write(server, "PUT file:///workspace/a @~/b")
    assert [row[0] for row in ask(server, "LIST @~")] == ["a"]


def test_random_words_never_do_harm(server: Snowflake) -> None:
    rng = random.Random(4)
    words = (
        "CREATE DROP STAGE PUT GET LIST REMOVE COPY INTO FROM @s @~ @%t @s/in.csv @ '@s' @\"s file:///workspace/in.csv 'file:///workspace/in.csv' "
        "FILE_FORMAT = ( TYPE CSV JSON SKIP_HEADER 1 ) FILES 'in.csv' HEADER TRUE t SELECT * . , ; BEGIN COMMIT ROLLBACK"
    ).split()
    server.context.files.write("in.csv", "1,x\n")
    write(server, "CREATE STAGE s")
    starts = ("COPY INTO", "PUT", "GET", "LIST", "REMOVE", "CREATE STAGE", "DROP STAGE", "")
    for _ in range(300):
        query = f"{rng.choice(starts)} {' '.join(rng.choices(words, k=rng.randrange(1, 12)))}"
        before = pickle.dumps(server)
        for tool in ("write_query", "read_query"):
            try:
                tools_of(server)[tool]({"query": query})
            except ToolError:
                assert pickle.dumps(server) == before, query
            before = pickle.dumps(server)
