"""Helpers for tests of office tasks, such as solved tasks and changes to the final state."""

from __future__ import annotations

import csv
import functools
import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import agentgym
from agentgym import worlds
from agentgym.envs.loca import LENGTHS
from agentgym.envs.loca.plan import CLAIM
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email

Rows = list[list[Any]]
"""A table whose first row is the header."""
Change = Callable[[Any], object]
"""Function that changes a task."""
TASKS = {
    entry.world.__name__: entry.world for entry in worlds() if issubclass(entry.world, OfficeTask)
}


def fresh(task: str, length: int = LENGTHS["8k"], seed: int = 0, **knobs: Any) -> Any:
    env = agentgym.tool_env(agentgym.make(task, length=length, **knobs))
    env.reset(seed=seed)
    return env.world


def carry_out(world: Any) -> Any:
    """Play the reference plan without the final `claim_done`, and check that each call completes a step."""
    while (steps := world.progress.pending()) != [CLAIM]:
        step = steps[0]
        world.read_result(step.call, world.office.call(step.call.name, step.call.arguments))
        assert step.label in world.progress.facts, step
    world.done = True
    return world


@functools.cache
def _solved(task: str, length: int, seed: int, knobs: tuple[tuple[str, Any], ...]) -> bytes:
    return pickle.dumps(carry_out(fresh(task, length, seed, **dict(knobs))))


def solved(task: str, length: int = LENGTHS["8k"], seed: int = 0, **knobs: Any) -> Any:
    """Return a new copy of a task after playing the reference plan."""
    return pickle.loads(_solved(task, length, seed, tuple(sorted(knobs.items()))))


def faults_after(task: str, change: Callable[[Any], object], **options: Any) -> list[str]:
    """Play the reference plan, change the final state, and return the failures."""
    world = solved(task, **options)
    assert list(world.all_failures()) == []
    change(world)
    assert world.score() == float(not list(world.all_failures()))
    return list(world.all_failures())


def final_state_tests(
    task: str,
    near_misses: Mapping[str, tuple[Change, str]],
    equivalents: Mapping[str, Change],
    **options: Any,
) -> tuple[Change, Change]:
    """Return two functions that change the final state and then check it.

    Args:
        task: The task.
        near_misses: Changes that must fail, with words that the failures must contain.
        equivalents: Changes that must pass.
        **options: Options of `solved`.
    """

    @pytest.mark.parametrize("name", near_misses)
    def near_misses_fail(name: str) -> None:
        change, words = near_misses[name]
        assert words in " ".join(faults_after(task, change, **options))

    @pytest.mark.parametrize("name", equivalents)
    def equivalents_pass(name: str) -> None:
        assert faults_after(task, equivalents[name], **options) == []

    return near_misses_fail, equivalents_pass


def call(tool: str, **arguments: Any) -> Change:
    return lambda world: world.office.call(tool, arguments)


def sql(query: str) -> Change:
    return call("bigquery_run_query", query=query)


def file_of(path: str, data: bytes | str) -> Change:
    return lambda world: world.office.context.files.write(path, data)


def no_file(path: str) -> Change:
    return lambda world: world.office.context.files.remove(path)


def folder_at(path: str) -> Change:
    return lambda world: (
        world.office.context.files.remove(path),
        world.office.context.files.mkdir(path),
    )


def table_of(world: Any, path: str) -> Rows:
    return list(csv.reader(io.StringIO(world.office.context.files.read_text(path))))


def csv_rows_of(data: bytes) -> Rows:
    text = data.decode("utf-8-sig", errors="replace")
    rows = csv.reader(io.StringIO(text, newline=""))
    return [[cell.strip() for cell in row] for row in rows if row]


def csv_text(rows: Rows, **form: Any) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, **form).writerows(rows)
    return text.getvalue()


def in_csv(path: str, change: Callable[[Rows], Rows], **form: Any) -> Change:
    return lambda world: world.office.context.files.write(
        path, csv_text(change(table_of(world, path)), **form)
    )


def one_cell(row: int, column: int, change: Callable[[Any], Any]) -> Callable[[Rows], Rows]:
    def edit(rows: Rows) -> Rows:
        rows[row][column] = change(rows[row][column])
        return rows

    return edit


def each_cell(column: int, change: Callable[[Any], Any]) -> Callable[[Rows], Rows]:
    return lambda rows: [
        rows[0],
        *([*row[:column], change(row[column]), *row[column + 1 :]] for row in rows[1:]),
    ]


def enter(world: Any, spreadsheet: str, sheet: str, area: str, data: Rows) -> None:
    world.office.call(
        "update_cells", {"spreadsheet_id": spreadsheet, "sheet": sheet, "range": area, "data": data}
    )


def update_product(world: Any, product: int, **fields: Any) -> None:
    world.office.call("woo_products_update", {"productId": product, "productData": fields})


def unsent(world: Any, mail: Mail | None = None) -> Mail:
    """Remove and return a sent email, by default the last email."""
    email = world.office.get(Email)
    gone: Mail = mail or email.sent()[-1]
    email.store.delete("mails", message=int(gone.id))
    email.store.delete("messages", id=int(gone.id))
    return gone


def resend(world: Any, mail: Mail, **changes: Any) -> None:
    """Resend an email with changes and without attachments."""
    world.office.call(
        "send_email", {"to": mail.to, "subject": mail.subject, "body": mail.body, **changes}
    )
