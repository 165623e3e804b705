"""Write docs/loca_checks.md: the differences that the checks of the office tasks ignore."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import agentgym
from agentgym.envs.loca.protected_state import HARMLESS
from agentgym.envs.loca.task import OfficeTask

HEAD = """# The checks of the office tasks

<!-- Written by `make docs` from HARMLESS and from the attribute `harmless` of the tasks. -->

A task scores 1 if all outputs are right and nothing else has changed; otherwise the score is 0. The
checks ignore the differences that this page lists. Each difference has a name: `server.part.column`
for a changed record, `server.part+` for a new record, and `server.part-` for a deleted record. The
name of a file difference begins with the file's path. `output:` marks a file that the task
requires, and `own:` a record or file that the agent created; a pattern without `own:` covers all
records and files, whether or not the agent created them.

## What counts as right

| question | decision |
|---|---|
| blank rows | ignored anywhere in a CSV file, sheet or workbook; the header is the first row |
| numbers | compared by value: notation, further decimals and a % sign are free; a task may ask for real numbers |
| order of rows | free unless the task asks for an order |
| blanks around values | ignored in cells of files and sheets; a difference in a database, a title or a category |
| letter case | counts in subjects and values; free in mail addresses and in the exam schedule |
| white space in subjects and letters | free |
| names of files | whole names count: `X.pdf.exe` is not `X.pdf` |
| HTML mails | the HTML is read, with blanks between table cells; hidden or struck-out text fails |
| plain text beside HTML | must not contradict it |
| attachments | count |
| hidden rows, columns and sheets, formulas | fail in an output |
| titles of sheets | fail if changed, except in a new spreadsheet |
| columns of tables | type, nullability, key, default and comment count |
| `ALTER` in BigQuery | fails, even if a later one reverses its effect |
| dates and times of the exam schedule | leading zeros are optional, Excel dates and ISO dates count |
| short names of conferences | may be followed by the year: `ECIR2025` |

Hints adapt to the agent's own way of working. A call with the same effects as a planned call counts
as the planned call. After an unplanned change to an output, the next hint suggests inspecting the output. The plan then
adds the missing parts and corrects wrong rows, events and files, but does not send an email twice.

Two test suites verify the rules on this page
(`pytest tests/envs/loca/tasks/test_mutations.py tests/envs/loca/tasks/test_accepted_forms.py`).

The checks do not understand free text. If a task asks for a name, a number or a file in a mail or
title, a text that contains this item and then contradicts it also passes.

"""


def page() -> str:
    tasks = {
        entry.world.__name__: entry.world
        for entry in agentgym.worlds()
        if issubclass(entry.world, OfficeTask)
    }
    return (
        HEAD
        + f"## All tasks\n\n{table(HARMLESS)}"
        + "".join(section(name, tasks[name]) for name in sorted(tasks))
    )


def section(name: str, task: Any) -> str:
    if not (task.mutable_tables or task.harmless or task.forbidden):
        return ""
    text = f"\n## {name}\n"
    if task.mutable_tables:
        tables = ", ".join(f"`{table}`" for table in task.mutable_tables)
        text += f"\nA solution may change records in {tables}; the check compares each record.\n"
    if task.forbidden:
        parts = ", ".join(f"{HARMLESS[pattern]} (`{pattern}`)" for pattern in task.forbidden)
        text += f"\nIn this task, the check also rejects the following changes: {parts}.\n"
    return text + (f"\n{table(task.harmless)}" if task.harmless else "")


def table(differences: Mapping[str, str]) -> str:
    rows = [f"| `{pattern}` | {meaning} |\n" for pattern, meaning in differences.items()]
    return "| difference | what it is |\n|---|---|\n" + "".join(rows)


if __name__ == "__main__":
    (Path(__file__).parent / "loca_checks.md").write_text(page(), encoding="utf-8")
