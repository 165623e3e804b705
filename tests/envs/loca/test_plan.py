from __future__ import annotations

import copy
import json
import pickle
from datetime import date
from typing import Any

import pytest

from agentgym import ToolCall
from agentgym.envs.loca.checks import (
    CsvTable,
    as_number,
    csv_rows,
    exact,
    file_failures,
    file_state,
    loose,
    number,
    row_failures,
    set_failures,
)
from agentgym.envs.loca.plan import CLAIM, Plan, read, write
from agentgym.envs.loca.progress import Progress, steps_of
from agentgym.office import Workspace


def script() -> Plan:
    names = yield read("List.", json.loads, "ls")
    sizes = yield [read(f"Read {name}.", len, "cat", path=name) for name in names]
    yield []
    yield [
        write(
            f"Mail {name} => {size}.", "mails", "send_email", same=("to",), to=name, body=str(size)
        )
        for name, size in zip(names, sizes, strict=True)
    ]
    yield write("Note.", "note", "write_file", path="n", content=str(sum(sizes)))


CALLS = {
    "ls": ToolCall("ls", {}),
    "a": ToolCall("cat", {"path": "a"}),
    "b": ToolCall("cat", {"path": "b"}),
    "mail a": ToolCall("send_email", {"to": "a", "body": "another text"}),
    "mail b": ToolCall("send_email", {"to": "b", "body": "3"}),
    "mail c": ToolCall("send_email", {"to": "c", "body": ""}),
    "note": ToolCall("write_file", {"path": "n", "content": "5"}),
    "claim": CLAIM.call,
}
RESULTS = {"ls": '["a", "b"]', "a": "xx", "b": "xxx"}


def play(progress: Progress, *names: str) -> list[str]:
    for name in names:
        progress.record(CALLS[name], RESULTS.get(name, "ok"), lasting=name.startswith("mail"))
    return [step.label for step in progress.pending()]


def test_a_plan_goes_on_when_its_steps_are_taken_in_any_order() -> None:
    progress = Progress(script)
    assert play(progress) == ["List."]
    assert play(progress, "note", "claim") == ["List."], (
        "changes that the plan has not come to are not counted"
    )
    assert play(progress, "ls") == ["Read a.", "Read b."]
    assert play(progress, "b") == ["Read a."]
    assert play(progress, "a", "a") == ["Mail a => 2.", "Mail b => 3."]
    assert play(progress, "mail b", "mail a") == ["Note."]
    assert play(progress, "note") == ["Say that the task is done."]
    assert play(progress, "claim") == []
    assert [step.label for step in progress.completed()][:3] == ["List.", "Read a.", "Read b."]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_what_was_read_too_early_is_known_once_the_plan_comes_to_it(copied: Any) -> None:
    progress = Progress(script)
    assert play(progress, "a", "b") == ["List."]
    assert progress.lines() == []
    progress = copied(progress)
    assert play(progress, "ls") == ["Mail a => 2.", "Mail b => 3."]
    assert [step.label for step in progress.completed()] == ["List.", "Read a.", "Read b."]
    cut = Progress(script)
    cut.record(CALLS["ls"], '["a", ', lasting=False)
    cut.record(CALLS["a"], "xx", lasting=False)
    assert play(cut, "ls") == ["Read b."]


def test_what_was_done_too_early_counts_once_the_plan_asks_for_it() -> None:
    progress = Progress(script)
    assert play(progress, "mail b", "mail c", "ls", "a", "b") == ["Mail a => 2."]
    assert [call.arguments["to"] for call in progress.off_plan_calls] == ["c"]


@pytest.mark.parametrize("count", range(8))
def test_lines_copies_and_pickles_tell_all(count: int) -> None:
    progress = Progress(script)
    play(progress, *["ls", "mail c", "b", "a", "mail a", "mail b", "note", "claim"][:count])
    again = Progress(script)
    again.restore(progress.lines())
    for other in (again, copy.deepcopy(progress), pickle.loads(pickle.dumps(progress))):
        assert other.lines() == progress.lines()
        assert other.pending() == progress.pending() or [s.label for s in other.pending()] == [
            s.label for s in progress.pending()
        ]
        assert [step.label for step in other.completed()] == [
            step.label for step in progress.completed()
        ]


def test_a_result_that_was_cut_tells_nothing() -> None:
    progress = Progress(script)
    progress.record(CALLS["ls"], '["a", ', lasting=False)
    assert progress.pending()[0].label == "List."
    with pytest.raises(ValueError, match="expected LABEL => FACT, got 'hm'"):
        progress.restore(["hm"])


def test_all_steps_are_played_and_nonsense_is_named() -> None:
    results = {"ls": '["a"]', "cat": "xx", "send_email": "", "write_file": ""}
    assert [step.label for step, _ in steps_of(script, lambda step: results[step.call.name])][
        -1
    ] == "Note."
    with pytest.raises(ValueError, match=r"'List\.' cannot interpret its result: no"):
        list(steps_of(script, lambda step: "no"))


ROWS = [
    {"id": "1", "name": "Ann", "rate": 1.5},
    {"id": "2", "name": "Bo", "rate": 2.0},
    {"id": "2", "name": "Bo", "rate": 3.0},
]
COLUMNS = {"name": exact, "rate": number(0.01, "%")}


def task_failures(found: list[dict[str, Any]], ordered: bool = True) -> list[str]:
    return list(row_failures("t", found, ROWS, COLUMNS, ["id"], ordered))


def test_rows_are_compared_in_both_directions() -> None:
    assert (
        task_failures(ROWS)
        == task_failures([{**row, "rate": f"{row['rate']}%"} for row in ROWS])
        == task_failures([*ROWS[:1], ROWS[2], ROWS[1]])
        == []
    )
    assert task_failures(ROWS[::-1], ordered=False) == []
    assert task_failures(ROWS[::-1]) == ["t: the rows are not in the required order"]
    assert task_failures(ROWS[1:]) == ['t: "1" is missing']
    assert task_failures([*ROWS, ROWS[1]]) == ['t: "2" should not be there']
    assert task_failures([{**ROWS[0], "rate": 1.52}, *ROWS[1:]]) == [
        't: rate of 1 is "1.52", expected "1.5"'
    ]
    assert len(task_failures([{"id": "1"}, *ROWS[1:]])) == 2
    assert list(set_failures("s", [1, 1, 2], [1, 2, 2])) == [
        "s: 2 is missing",
        "s: 1 should not be there",
    ]


def test_cells() -> None:
    assert loose(" a  B", "A b")
    assert not exact("a b", "A b")
    assert exact(date(2025, 1, 2), "2025-01-02")
    assert exact(3.0, "3")
    assert [as_number(cell, "%") for cell in ("1,234.5", "5 %", "", None, True, "nan", "1,2", "0x1", "٣", 7)] == [
        1234.5, 5.0, None, None, None, None, None, None, None, 7.0
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a,c\n1,2\n", "has the columns"),
        ("", "has the columns"),
        ("b,a\n1,2\n", "has the columns"),
        ("a,b\n1\n", "has 1 cells in row 2"),
        ('a,b\n"1,2\n', "is not valid CSV"),
    ],
)
def test_a_csv_file_that_is_none(text: str, fault: str) -> None:
    rows, found = csv_rows(text, "t.csv", ["a", "b"])
    assert rows == []
    assert fault in found[0]


def test_a_csv_file_is_read_as_programs_write_it() -> None:
    text = '\ufeffa, b\r\n , \r\n\r\n1,"x, ""y""\n"\r\n\r\n,,,\r\n'
    assert csv_rows(text, "t.csv", ["a", "b"]) == ([{"a": "1", "b": 'x, "y"\n'}], [])


def test_every_row_of_a_missing_file_is_missing() -> None:
    table = CsvTable("t.csv", ["a", "b"], {"b": number()}, key=["a"])
    found = list(table.failures(Workspace(), [{"a": "1", "b": 2}]))
    assert "there is no file" in found[0]
    assert found[1:] == ['t.csv: "1" is missing']
    assert table.matches("a,b\n1,2.0\n", [{"a": "1", "b": 2}])


def test_files_that_were_not_to_be_changed() -> None:
    files = Workspace()
    for name in ("keep", "edit", "gone", "d/x"):
        files.write(name, "1")
    before = file_state(files)
    assert list(file_failures(files, before, [])) == []
    for name in ("keep", "edit", "d/x"):
        files.write(name, "2")
    files.remove("gone")
    found = list(file_failures(files, before, ["edit", "d/x"]))
    assert found == ["the file /workspace/gone is gone", "the file /workspace/keep was changed"]
