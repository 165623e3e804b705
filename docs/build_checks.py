"""Write docs/loca_checks.md: what the checks of the office tasks overlook, from the tasks.

`make docs` runs it, and a test compares the committed page with what it would write.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import agentgym
from agentgym.envs.loca.protected_state import HARMLESS
from agentgym.envs.loca.task import OfficeTask

HEAD = """# The checks of the office tasks

<!-- Written by `make docs` from HARMLESS and from the attribute `harmless` of the tasks. -->

A task scores 1 if the final state is right, and 0 otherwise. A state is right if the outputs are and
nothing else differs from the start, apart from the differences on this page. They have names:
`server.part.column` of a record that was changed, `server.part+` of a new one, `server.part-` of one
that is gone; the name of a file begins with its path. `output:` stands before a file that the task
asks for, and `own:` before the name where the agent made the record or file; a pattern without
`own:` is for both.

Of a mail with HTML, what mail programs show counts: the HTML. A plain text beside it must not say
another thing, HTML must not hide text, and attachments count. Rows, columns and sheets of an output
that are hidden count, too.

Two laws hold this (`pytest tests/envs/loca/tasks/test_mutations.py` and `test_accepted_forms.py`
beside it; a run takes a sample of the first, `--sample 1` all). From the right final state every tool of
every server, but for those that run programs, is called with arguments drawn from its schema and
from the state: a difference that is not listed scores 0, and one that is listed keeps the score. The
same calls of the plan are made with another argument (HTML, attachments, copies, further fields): an
unlisted difference scores 0 there, too. And at least 20 other forms of each right state that a
careful person would accept (names before addresses, HTML beside the text, other line ends and
quotes, formats of workbooks, drafts, looking around) keep the score, one by one and all together.

What no check sees: whether the free text of a mail or of a title says the contrary in other words,
where a task asks for a name, a number or a file in it and not for exact words.

"""


def page() -> str:
    """Return the page: the list of all tasks, then what each adds."""
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
    """Return the section of a task; empty if it adds nothing to what holds for all."""
    if not (task.mutable_tables or task.harmless or task.forbidden):
        return ""
    text = f"\n## {name}\n"
    if task.mutable_tables:
        tables = ", ".join(f"`{table}`" for table in task.mutable_tables)
        text += f"\nThe work changes {tables}, whose records the task checks one by one.\n"
    if task.forbidden:
        parts = ", ".join(f"{HARMLESS[pattern]} (`{pattern}`)" for pattern in task.forbidden)
        text += f"\nHere these count as changes: {parts}.\n"
    return text + (f"\n{table(task.harmless)}" if task.harmless else "")


def table(differences: Mapping[str, str]) -> str:
    """Return differences with their meanings as a table."""
    rows = [f"| `{pattern}` | {meaning} |\n" for pattern, meaning in differences.items()]
    return "| difference | what it is |\n|---|---|\n" + "".join(rows)


if __name__ == "__main__":
    (Path(__file__).parent / "loca_checks.md").write_text(page(), encoding="utf-8")
