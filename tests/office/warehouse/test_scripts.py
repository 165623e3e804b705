"""BigQuery scripts (control flow, variables, temporary objects, transactions) against hand-computed
results and a model in Python.
"""

from __future__ import annotations

import copy
import os
import pickle
import random
import signal
from typing import Any

import pytest

from agentgym.envs.loca.plan import query_rows
from agentgym.office.gcloud.cloud import PROJECT
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.warehouse import database
from agentgym.office.warehouse.scripting import interpreter as scripts
from agentgym.text.tools import HostLimitError, ToolError, tools_of

ROWS = [(1, "a"), (2, "b"), (3, None)]


@pytest.fixture
def server() -> GoogleCloud:
    made = GoogleCloud()
    made.bigquery.load("ds", "t", {"id": "INT64", "name": "STRING"}, ROWS)
    return made


def ask(server: GoogleCloud, query: str) -> list[tuple[Any, ...]]:
    answer = tools_of(server)["bigquery_run_query"]({"query": query})
    return [tuple(row.values()) for row in query_rows(answer)]


SCRIPTS: dict[str, list[tuple[Any, ...]]] = {
    # The result is the last statement's.
    "SELECT 1; SELECT 2 AS b; -- the end": [(2,)],
    "SELECT ';' AS a; SELECT '''it's; \"x\"''' AS b, r'\\;' AS c /* ; */ ; # END": [("it's; \"x\"", "\\;")],
    # Block-scoped variables; a column with the same name hides one.
    "DECLARE x INT64 DEFAULT 5; DECLARE y, z STRING; SET y = 'it\\'s'; SET x = x * 2; "
    "SELECT x, y, z, id + x FROM ds.t ORDER BY id LIMIT 1": [(10, "it's", None, 11)],
    "DECLARE id INT64 DEFAULT 2; SELECT COUNT(*) FROM ds.t WHERE id = id": [(3,)],
    "DECLARE id INT64 DEFAULT 2; INSERT INTO ds.t (id) VALUES (id + 7); SELECT MAX(t.id) FROM ds.t AS t": [(9,)],
    "DECLARE x INT64 DEFAULT 1; BEGIN DECLARE x INT64 DEFAULT 2; SET x = 3; END; SELECT x": [(1,)],
    "DECLARE x INT64 DEFAULT 1; BEGIN DECLARE y INT64 DEFAULT 2; SET x = y; END; SELECT x": [(2,)],
    "DECLARE x DEFAULT DATE '2025-01-31'; SELECT x, DATE_ADD(x, INTERVAL 1 MONTH)": [("2025-01-31", "2025-02-28")],
    "DECLARE n NUMERIC DEFAULT 1.25; DECLARE l ARRAY<INT64> DEFAULT [3, 4]; DECLARE t TIMESTAMP DEFAULT TIMESTAMP '2025-01-01'; "
    "SELECT n, t, v FROM UNNEST(l) AS v ORDER BY v DESC": [(1.25, "2025-01-01T00:00:00Z", 4), (1.25, "2025-01-01T00:00:00Z", 3)],
    "DECLARE s STRUCT<p INT64, q STRING> DEFAULT STRUCT(1, 'it\\'s \"q\"'); SELECT s.q, s.p + 1": [('it\'s "q"', 2)],
    "DECLARE a INT64; DECLARE b STRING; SET (a, b) = (1, 'x'); SELECT a, b": [(1, "x")],
    "DECLARE a INT64; DECLARE b STRING; SET (a, b) = (SELECT AS STRUCT MAX(id), MIN(name) FROM ds.t); SELECT a, b": [(3, "a")],
    "DECLARE x INT64; SET x = (SELECT SUM(id) FROM ds.t); SELECT x": [(6,)],
    "DECLARE x FLOAT64; SET x = 3; SELECT x": [(3.0,)],
    # Control flow; SQL's own CASE and IF are unaffected.
    "DECLARE x INT64 DEFAULT 0; WHILE x < 5 DO SET x = x + 1; IF MOD(x, 2) = 1 THEN CONTINUE; END IF; INSERT ds.t (id) VALUES (x * 10); "
    "END WHILE; SELECT STRING_AGG(CAST(id AS STRING), ',' ORDER BY id) FROM ds.t": [("1,2,3,20,40",)],
    "DECLARE x INT64 DEFAULT 0; LOOP SET x = x + 1; IF x >= 4 THEN BREAK; END IF; END LOOP; SELECT x": [(4,)],
    "DECLARE x INT64 DEFAULT 0; REPEAT SET x = x + 3; UNTIL x > 7 END REPEAT; SELECT x": [(9,)],
    "DECLARE x INT64 DEFAULT 0; outer: LOOP LOOP SET x = x + 1; IF x > 2 THEN LEAVE outer; END IF; END LOOP; END LOOP outer; SELECT x": [(3,)],
    "IF (SELECT COUNT(*) FROM ds.t) = 2 THEN SELECT 'two'; ELSEIF CASE WHEN TRUE THEN FALSE END THEN SELECT 'no'; "
    "ELSE SELECT IF(TRUE, 'other', 'no') AS a; END IF": [("other",)],
    "DECLARE x INT64 DEFAULT 2; CASE x WHEN 1 THEN SELECT 'one'; WHEN 2 THEN SELECT 'two' AS a; END CASE": [("two",)],
    "CASE WHEN NULL THEN SELECT 1; ELSE SELECT 2 AS a; END CASE": [(2,)],
    "FOR r IN (SELECT id, name FROM ds.t WHERE name IS NOT NULL ORDER BY id) DO INSERT INTO ds.t VALUES (r.id + 100, CONCAT(r.name, '!')); "
    "END FOR; SELECT * FROM ds.t WHERE id > 100 ORDER BY id": [(101, "a!"), (102, "b!")],
    "SELECT 1 AS a; RETURN; SELECT 2": [(1,)],
    # Temporary objects.
    "CREATE TEMP TABLE tt AS SELECT 1 AS a UNION ALL SELECT 2; INSERT tt VALUES (3); SELECT SUM(a), (SELECT COUNT(*) FROM _SESSION.tt) FROM tt": [
        (6, 3),
    ],
    "CREATE TEMP TABLE x (a INT64); CREATE OR REPLACE TEMP TABLE x AS SELECT 7 AS a; SELECT a FROM x JOIN ds.t ON t.id = 1": [(7,)],
    "CREATE TEMP FUNCTION f(x INT64) RETURNS FLOAT64 AS (x / 2); CREATE TEMP FUNCTION g(y ANY TYPE) AS (f(y) + 1); "
    "SELECT id, g(id) FROM ds.t WHERE f(id) > 1 ORDER BY id": [(3, 2.5)],
    "CREATE TEMP FUNCTION f() AS ((SELECT COUNT(*) FROM ds.t)); SELECT f() + f()": [(6,)],
    # Dynamic SQL.
    "EXECUTE IMMEDIATE 'SELECT id, ? AS a, @b AS b FROM ds.t WHERE id = @b' USING 'x', 2 AS b": [(2, "x", 2)],
    "DECLARE n INT64; DECLARE m STRING; EXECUTE IMMEDIATE CONCAT('SELECT COUNT(*), MAX(name) FROM ds.', 't') INTO n, m; SELECT n, m": [(3, "b")],
    "DECLARE n INT64 DEFAULT 1; EXECUTE IMMEDIATE 'SELECT id FROM ds.t WHERE FALSE' INTO n; SELECT n": [(None,)],
    # Transactions and errors.
    "BEGIN TRANSACTION; DELETE FROM ds.t WHERE TRUE; CREATE TABLE ds.u (a INT64); ROLLBACK TRANSACTION; SELECT COUNT(*) FROM ds.t": [(3,)],
    "BEGIN TRANSACTION; DELETE FROM ds.t WHERE id = 1; COMMIT TRANSACTION; SELECT COUNT(*), 1 FROM ds.t": [(2, 1)],
    "BEGIN DELETE FROM ds.t WHERE id = 3; SELECT 1 / 0; EXCEPTION WHEN ERROR THEN SELECT @@error.message, COUNT(*) FROM ds.t; END": [
        ("invalid argument: division by zero", 2),
    ],
    "BEGIN RAISE USING MESSAGE = 'mine'; EXCEPTION WHEN ERROR THEN SELECT @@error.message AS m; END": [("invalid argument: mine",)],
    "BEGIN BEGIN SELECT 1 / 0; EXCEPTION WHEN ERROR THEN RAISE; END; EXCEPTION WHEN ERROR THEN SELECT 'outer' AS a; END": [("outer",)],
    "BEGIN SELECT 1 / 0; EXCEPTION WHEN ERROR THEN BEGIN SELECT 1 / 0; EXCEPTION WHEN ERROR THEN SELECT 'twice' AS a; END; END": [("twice",)],
    "BEGIN TRANSACTION; BEGIN DELETE FROM ds.t WHERE id = 1; SELECT 1 / 0; EXCEPTION WHEN ERROR THEN ROLLBACK TRANSACTION; END; "
    "SELECT COUNT(*) FROM ds.t": [(3,)],
    "UPDATE ds.t SET name = 'z' WHERE id > 1; SELECT @@row_count": [(2,)],
    "ASSERT (SELECT COUNT(*) FROM ds.t) = 3 AS 'three'; SELECT 1 AS a": [(1,)],
}  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts(server: GoogleCloud, script: str) -> None:
    assert ask(server, script) == SCRIPTS[script]
    assert list(server.engine.schemas) == ["ds"]
    assert "_SESSION" not in {schema for schema, _ in server.engine.tables}


REFUSED = {
    "": "invalid argument: the statement is empty",
    " ; ;": "invalid argument: the statement is empty",
    "SELECT 1 / 0; SELECT 2": "division by zero",
    "DELETE FROM ds.t WHERE TRUE; SELECT nope FROM ds.t": '"nope" not found',
    "CREATE TEMP TABLE x (a INT64); SELECT nope": "nope",
    "CREATE TEMP TABLE x (a INT64)": "lasts as long as its script",
    "CREATE TEMP FUNCTION f(x INT64) AS (x)": "lasts as long as its script",
    "CREATE FUNCTION f(x INT64) AS (x)": "has a dataset; write CREATE FUNCTION dataset.f",
    "CREATE FUNCTION no.f(x INT64) AS (x)": "not found",
    "CREATE FUNCTION other.ds.f(x INT64) AS (x)": "no access to project",
    "CREATE FUNCTION ds.f(x INT64) AS (y)": "y",
    "CREATE FUNCTION ds.f(x INT64) AS (ds.f(x))": "function not found",
    "CREATE FUNCTION ds.f(x ANY TYPE) AS (getenv(x))": "function not found",
    "CREATE FUNCTION ds.f(x INT64) AS (x); CREATE FUNCTION ds.f(x INT64) AS (x)": "already exists",
    "CREATE FUNCTION ds.f(x INT64) AS (x); SELECT f(1)": "function not found",
    "CREATE FUNCTION ds.f(x INT64) AS (x); SELECT ds.f(1, 2)": "f takes 1 arguments, got 2",
    "CREATE FUNCTION ds.f(x INT64) AS (x); CREATE FUNCTION ds.g(x INT64) AS (ds.f(x)); "
    "CREATE OR REPLACE FUNCTION ds.f(x INT64) AS (ds.g(x)); SELECT ds.f(1)": "expand to more than",
    "CREATE FUNCTION ds.f(s STRING) RETURNS STRING LANGUAGE js AS 'return s'": "only functions in SQL",
    "DROP FUNCTION ds.f": "there is no function",
    "CREATE SCHEMA s; CREATE FUNCTION s.f() AS (1); DROP SCHEMA s": "it has 0 tables and 1 functions",
    "CREATE TEMP FUNCTION f(s STRING) RETURNS STRING LANGUAGE js AS 'return s'; SELECT f('a')": "only functions in SQL",
    "CREATE TEMP FUNCTION f(x INT64) AS (x); SELECT f()": "f takes 1 arguments, got 0",
    "CREATE TEMP FUNCTION f(x INT64) AS (f(x)); SELECT f(1)": "expand to more than",
    "CREATE TEMP FUNCTION f(x INT64) AS (getenv('HOME')); SELECT f(1)": "function not found",
    "CREATE PROCEDURE ds.p() BEGIN SELECT 1; END": "procedures are not supported",
    "CALL ds.p()": "procedures are not supported",
    "SET x = 1": 'the variable "x" is not declared',
    "SET @@dataset_id = 'ds'": "system variables cannot be set; write names in full",
    "EXPORT DATA OPTIONS(uri='gs://b/x.csv', format='CSV') AS SELECT 1": "use bigquery_export_table",
    "LOAD DATA INTO ds.t FROM FILES (format='CSV', uris=['gs://b/a.csv'])": "use bigquery_load_csv_data",
    "VACUUM": "not supported; queries, INSERT, UPDATE|syntax error",
    "DECLARE x INT64; DECLARE x INT64": 'the variable "x" is declared already',
    "DECLARE x INT64 DEFAULT 'a'": "Bad int64 value|Could not convert|cannot be converted",
    "DECLARE x STRING DEFAULT getenv('HOME'); SELECT x": "function not found",
    "DECLARE x INT64; SELECT @y": "cannot be used here",
    "SELECT 1; SELECT ?": "cannot be used here|more \\? than values",
    "COMMIT": "COMMIT needs a transaction; begin it in the same script",
    "BEGIN TRANSACTION; BEGIN TRANSACTION": "a transaction is under way",
    "BREAK": "BREAK stands outside of its loop",
    "IF TRUE THEN SELECT 1;": "expected ELSEIF or ELSE or END at the end",
    "IF 1 THEN SELECT 1; END IF": "is no BOOL",
    "WHILE TRUE SELECT 1; END WHILE": "expected DO",
    "SELECT 1; END": "syntax error|invalid argument",
    "LOOP SELECT 1; END": "expected LOOP at the end",
    "SET (a, b) = (1, 2, 3)": "needs a struct of 2 fields, got 3",
    "EXECUTE IMMEDIATE 'SELECT 1; SELECT 2'": "runs one statement",
    "EXECUTE IMMEDIATE NULL": "needs a text, got NULL",
    "EXECUTE IMMEDIATE \"SELECT * FROM read_csv('/etc/passwd')\"": "is not a table|function not found",
    "DECLARE a INT64; EXECUTE IMMEDIATE 'SELECT id FROM ds.t' INTO a": "more than one row",
    "ASSERT 1 = 2 AS 'never'": "assertion failed: never",
    "RAISE USING MESSAGE = 'bad'": "invalid argument: bad",
    "LOOP SELECT 1; END LOOP": "a script takes at most 1000 steps",
    "BEGIN LOOP SELECT 1; END LOOP; EXCEPTION WHEN ERROR THEN LOOP SELECT 2; END LOOP; END": "at most 1000 steps",
    "BEGIN " * 40 + "SELECT 1; " + "END; " * 40: "nested at most 30 deep",
}  # fmt: skip


@pytest.mark.parametrize("script", REFUSED)
def test_what_fails_changes_nothing_and_says_why(server: GoogleCloud, script: str) -> None:
    before = pickle.dumps(server)
    with pytest.raises(ToolError, match=REFUSED[script]) as caught:
        ask(server, script)
    assert not isinstance(caught.value, HostLimitError)
    assert pickle.dumps(server) == before
    assert ask(server, "SELECT COUNT(*) FROM ds.t") == [(3,)]


def test_functions_of_a_dataset_last(server: GoogleCloud) -> None:
    """The first is an example from BigQuery's documentation."""
    ask(
        server,
        "CREATE FUNCTION ds.AddFourAndDivide(x INT64, y INT64) RETURNS FLOAT64 AS ((x + 4) / y)",
    )
    query = "SELECT val, ds.AddFourAndDivide(val, 2) FROM UNNEST([2, 3, 5, 8]) AS val ORDER BY val"
    assert ask(server, query) == [(2, 3.0), (3, 3.5), (5, 4.5), (8, 6.0)]
    ask(server, f"CREATE FUNCTION `{PROJECT}.ds.twice`(x ANY TYPE) AS (x + x)")
    for name in ("ds.twice", "`ds.twice`", f"`{PROJECT}`.ds.twice", f"`{PROJECT}.ds.twice`"):
        assert ask(server, f"SELECT {name}(ds.twice(id)) FROM ds.t ORDER BY id") == [
            (4,),
            (8,),
            (12,),
        ]
    ask(server, "CREATE FUNCTION ds.many() AS ((SELECT COUNT(*) FROM ds.t))")
    ask(server, "CREATE VIEW ds.v AS SELECT ds.many() + id AS n FROM ds.t")
    assert ask(server, "SELECT n FROM ds.v ORDER BY n") == [(4,), (5,), (6,)]
    assert ask(server, "DECLARE x INT64 DEFAULT 7; SELECT ds.twice(x)") == [(14,)]
    ask(server, "CREATE FUNCTION IF NOT EXISTS ds.twice(x INT64) AS (0)")
    for other in (server, copy.deepcopy(server), pickle.loads(pickle.dumps(server))):
        assert ask(other, "SELECT ds.twice(1), ds.many()") == [(2, 3)]
    ask(server, "CREATE OR REPLACE FUNCTION ds.twice(x INT64) AS (x * 2 + 1)")
    assert ask(server, "SELECT ds.twice(1)") == [(3,)]
    ask(server, "DROP FUNCTION ds.twice; DROP FUNCTION IF EXISTS ds.twice")
    with pytest.raises(ToolError, match="function not found"):
        ask(server, "SELECT ds.twice(1)")
    ask(server, "BEGIN TRANSACTION; CREATE FUNCTION ds.once() AS (1); ROLLBACK TRANSACTION")
    with pytest.raises(ToolError, match="function not found"):
        ask(server, "SELECT ds.once()")


def test_functions_that_expand_to_too_much_are_refused(server: GoogleCloud) -> None:
    doubling = "".join(
        f"CREATE TEMP FUNCTION f{k + 1}(x INT64) AS (f{k}(x) + f{k}(x)); " for k in range(40)
    )
    with pytest.raises(ToolError, match="expand to more than 20000 parts"):
        ask(server, f"CREATE TEMP FUNCTION f0(x INT64) AS (x); {doubling} SELECT f40(1)")


def test_a_dry_run_checks_and_runs_nothing(server: GoogleCloud) -> None:
    run = tools_of(server)["bigquery_run_query"]
    before = pickle.dumps(server)
    script = "DECLARE x INT64 DEFAULT 1; IF x = 1 THEN DELETE FROM ds.t WHERE TRUE; END IF"
    assert "(SCRIPT) and runs nothing" in run({"query": script, "dry_run": True})
    with pytest.raises(ToolError, match="syntax error"):
        run({"query": script.replace("WHERE TRUE", "WHERE WHERE"), "dry_run": True})
    assert pickle.dumps(server) == before


def test_the_time_of_a_script_is_limited_as_a_whole(
    server: GoogleCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "SCRIPT_SECONDS", 0.3)
    heavy = "SELECT COUNT(*) FROM UNNEST(GENERATE_ARRAY(1, 100000)) a, UNNEST(GENERATE_ARRAY(1, 100)) b WHERE MOD(a * b, 7) = 3; "
    ask(server, "INSERT INTO ds.t (id) VALUES (4)")
    with pytest.raises(HostLimitError, match=r"the script ran for more than 0\.3 seconds"):
        ask(server, f"DELETE FROM ds.t WHERE TRUE; LOOP {heavy} END LOOP")
    monkeypatch.undo()
    assert ask(server, "SELECT COUNT(*) FROM ds.t") == [(4,)]


def test_a_process_that_is_killed_after_scripts_is_made_again(server: GoogleCloud) -> None:
    script = (
        "CREATE TEMP TABLE tt AS SELECT id FROM ds.t; BEGIN TRANSACTION; DELETE FROM ds.t WHERE id = 1; ROLLBACK TRANSACTION; "
        "INSERT ds.t (id) SELECT id + 10 FROM tt; SELECT 1"
    )
    ask(server, script)
    live = server.engine._live
    assert live is not None
    os.kill(live.pid, signal.SIGKILL)
    with pytest.raises(HostLimitError):
        ask(server, script)
    assert ask(server, "SELECT COUNT(*), SUM(id) FROM ds.t") == [(6, 42)]


def test_copies_after_scripts_agree(server: GoogleCloud) -> None:
    script = (
        "BEGIN TRANSACTION; CREATE TEMP TABLE tt AS SELECT id FROM ds.t; INSERT ds.t (id) SELECT id + 10 FROM tt; "
        "COMMIT TRANSACTION; BEGIN TRANSACTION; DELETE FROM ds.t WHERE id < 5; ROLLBACK TRANSACTION; SELECT 1"
    )
    twin = copy.deepcopy(server)
    for each in (server, twin):
        ask(each, script)
    expected = [(1,), (2,), (3,), (11,), (12,), (13,)]
    query = "SELECT id FROM ds.t ORDER BY id"
    for other in (server, twin, copy.deepcopy(server), pickle.loads(pickle.dumps(twin))):
        assert ask(other, query) == expected
    assert pickle.dumps(server.engine) == pickle.dumps(twin.engine)


def test_random_loops_agree_with_python() -> None:
    """The same arithmetic with nested loops and branches, as a script and in Python."""
    rng = random.Random(6)
    server = GoogleCloud()
    for _ in range(20):
        stop, step, modulus, limit = (rng.randrange(1, 7) for _ in range(4))
        script = f"""
            DECLARE i INT64 DEFAULT 0; DECLARE total INT64 DEFAULT 0; DECLARE j INT64;
            WHILE i < {stop} DO
                SET i = i + 1; SET j = 0;
                LOOP
                    SET j = j + {step};
                    IF j > {limit} THEN BREAK; ELSEIF MOD(i + j, {modulus}) = 0 THEN CONTINUE; END IF;
                    SET total = total + i * j;
                END LOOP;
            END WHILE;
            SELECT total"""
        total = sum(
            i * j
            for i in range(1, stop + 1)
            for j in range(step, limit + 1, step)
            if (i + j) % modulus
        )
        assert ask(server, script) == [(total,)], script


def test_random_words_never_do_harm(server: GoogleCloud) -> None:
    rng = random.Random(2)
    words = (
        "BEGIN END IF THEN ELSE ELSEIF CASE WHEN LOOP WHILE DO REPEAT UNTIL FOR IN BREAK CONTINUE RETURN DECLARE SET DEFAULT x y INT64 = 1 "
        "TRUE ( ) ; ; ; , ' \" ` /* -- EXECUTE IMMEDIATE 'SELECT' INTO USING AS RAISE ASSERT TRANSACTION COMMIT ROLLBACK SELECT FROM ds.t "
        "EXCEPTION ERROR MESSAGE : @x ? @@row_count CREATE TEMP TABLE FUNCTION DELETE WHERE"
    ).split()
    before = pickle.dumps(server)
    for _ in range(300):
        script = " ".join(rng.choices(words, k=rng.randrange(1, 25)))
        try:
            ask(server, script)
        except ToolError:
            assert pickle.dumps(server) == before, script
        before = pickle.dumps(server)


def test_steps_are_counted_alike_everywhere(
    server: GoogleCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "MAX_STEPS", 10)
    with pytest.raises(ToolError, match="at most 10 steps"):
        ask(server, "SELECT 1; " * 11)
    assert ask(server, "SELECT 1; " * 10) == [(1,)]
