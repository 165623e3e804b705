"""Check that hints make progress from any state and lead to the full score.

Before the hints, random calls do part of the work in another way (`own_forms`) or cause damage that
can be repaired.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

import pytest

import agentgym
from agentgym import ToolCall, render
from agentgym.envs.loca.plan import CLAIM, PlanStep
from agentgym.envs.loca.task import OfficeTask
from agentgym.text.tools import ToolError, tools_of
from tests.envs.loca.office import TASKS, fresh, solved
from tests.envs.loca.own_forms import DAMAGES, by_program, own_forms
from tests.envs.loca.rewriting import merged, rewritten
from tests.envs.loca.tasks.test_mutations import Arguments
from tests.laws.test_refusals import PROGRAMS

REPEATABLE = {
    "update_cells",
    "write_data_to_excel",
    "write_file",
    "storage_upload_file",
    "woo_products_update",
    "woo_products_batch_update",
}
"""Tools whose calls may be made again, in any form."""


def play(world: Any, calls: Iterable[ToolCall]) -> None:
    """Make calls as the env does, and pass the results to the world."""
    for call in calls:
        with suppress(ToolError, KeyError):  # the task may not have this tool
            world.read_result(call, world.office.call(call.name, call.arguments))


def follow(world: Any) -> None:
    """Follow the hints until only `claim_done` is left; each hint must make progress."""
    seen: list[str] = []
    while (calls := world.optimal_calls()) != [CLAIM.call]:
        assert calls, "the task is alive, so there is a next step"
        hint = world.subtask(True)
        assert seen[-1:] != [hint], f"{hint} is repeated"
        seen.append(hint)
        assert seen.count(hint) <= 3, f"{hint} is repeated"
        restored = type(world).read_task(world.task())
        restored.read_state(world.state())
        assert restored.optimal_calls() == calls or world.progress.pending() != [CLAIM] == calls
        assert pickle.loads(pickle.dumps(world.progress)).lines() == world.progress.lines()
        label_calls = world.label_calls()
        play(world, calls[:1])
        assert label_calls(calls[:1]) == ["productive"]
    world.done = True
    assert list(world.all_failures()) == []


def changes_of(name: str, seed: int) -> list[PlanStep]:
    steps = solved(name, seed=seed).progress.completed()
    return [step for step in steps if step.changes or step.call.name == "login"]


def claim_now(world: Any) -> float:
    world.done = True
    score = float(world.score())
    world.done = False
    return score


@pytest.mark.family(name=list(TASKS), seed=range(6))
def test_an_agent_that_keeps_its_own_form_gets_through(name: str, seed: int) -> None:
    world, draw = fresh(name, seed=seed % 3), random.Random(seed)
    hints: list[str] = []
    while (steps := world.progress.pending()) != [CLAIM]:
        assert world.optimal_calls(), world.progress.lost
        chosen = draw.sample(steps, min(len(steps), draw.choice((1, 1, 3))))
        hints.append(chosen[0].label)
        allowed = 2 if chosen[0].changes else len(changes_of(name, seed % 3)) + 2
        assert hints.count(chosen[0].label) <= allowed, f"{chosen[0].label} is repeated"
        calls = merged(chosen) if len(chosen) > 1 else []
        if not calls and chosen[0].changes:
            calls = own_forms(chosen[0], draw)
        play(world, calls or [chosen[0].call])
    assert claim_now(world) == 1.0


@pytest.mark.family(name=list(TASKS), seed=range(6))
def test_writes_before_reads_are_not_spoiled(name: str, seed: int) -> None:
    """Do some or all of the work with off-plan calls, before the plan has finished reading."""
    draw = random.Random(seed)
    world, writes = fresh(name, seed=seed % 3), changes_of(name, seed % 3)
    reads = draw.choice((0, 0, 1, 3, 1_000))
    while reads and not (steps := world.progress.pending())[0].changes and steps != [CLAIM]:
        play(world, [draw.choice(steps).call])
        reads -= 1
    if draw.random() < 0.3:
        writes = writes[: draw.randint(0, len(writes))]
    for step in writes:
        play(world, own_forms(step, draw))
    follow(world)


@pytest.mark.family(name=list(TASKS), seed=range(4))
def test_equivalent_changes_at_the_end_keep_the_score(name: str, seed: int) -> None:
    world, draw = solved(name, seed=seed % 3), random.Random(seed)
    world.done = False
    for step in changes_of(name, seed % 3):
        if step.call.name in REPEATABLE:
            play(world, own_forms(step, draw))
    assert claim_now(world) == 1.0
    follow(world)


@pytest.mark.family(name=list(TASKS), seed=range(6))
def test_damage_is_repaired(name: str, seed: int) -> None:
    draw, changes = random.Random(seed), changes_of(name, seed % 3)
    for damage in DAMAGES:
        if calls := damage(changes, draw):
            world = solved(name, seed=seed % 3)
            world.done = False
            play(world, calls)
            follow(world)


def part_of_the_plan(world: Any, draw: random.Random) -> None:
    """Play none, some or all of the plan's steps before `claim_done`, in any order."""
    steps = draw.choice((0, 1, draw.randrange(30), 1_000))
    while steps and (pending := world.progress.pending()) != [CLAIM]:
        play(world, [draw.choice(pending).call])
        steps -= 1


def check_hints(world: Any) -> bool:
    """Follow the hints, and return whether success was still possible."""
    copy = pickle.loads(pickle.dumps(world))
    if not world.optimal_calls():
        assert claim_now(world) == 0.0
        assert world.subtask(True) == "The task can no longer be completed correctly."
        return False
    follow(world)
    assert bool(copy.optimal_calls()), "a copy agrees"
    return True


@pytest.mark.family(name=list(TASKS), seed=range(8))
def test_hints_lead_from_any_living_state_to_the_full_score(name: str, seed: int) -> None:
    draw = random.Random(f"{name} {seed}")
    world, changes = fresh(name, seed=seed % 3), changes_of(name, seed % 3)
    part_of_the_plan(world, draw)
    if seed % 2:
        play(world, [call for damage in draw.sample(DAMAGES, 2) for call in damage(changes, draw)])
    else:
        play(world, any_calls(world, draw))
    check_hints(world)


def any_calls(world: Any, draw: random.Random) -> list[ToolCall]:
    calls = []
    for server in draw.sample(world.office.toolsets(), 3):
        drawn = Arguments(world, server, draw)
        tools = {name: tool for name, tool in tools_of(server).items() if name not in PROGRAMS}
        for name in draw.sample(sorted(tools), min(4, len(tools))):
            calls += [ToolCall(name, drawn.of(tools[name])) for _ in range(6)]
    return [call for call in calls if call != CLAIM.call]


@pytest.mark.family(name=list(TASKS), seed=range(3))
def test_labels_agree_with_the_plan(name: str, seed: int) -> None:
    """Another accepted way to complete a step is productive and keeps success possible."""
    draw, env = random.Random(seed), agentgym.make(name, labels=True, budget_slack=50)
    env.reset(seed=seed)
    world = cast("OfficeTask[Any]", agentgym.tool_env(env).world)
    reward = 0.0
    while steps := world.progress.pending():
        step = draw.choice(steps)
        calls = rewritten(step, draw) if step.changes else [step.call]
        before = len(list(world.all_failures()))
        *_, info = results = env.step("\n".join(map(render, calls)))
        reward = float(results[1])
        assert info["alive"]
        assert info["optimal"] or calls != [step.call]
        better = len(list(world.all_failures())) < before
        assert step not in world.progress.pending()
        assert better or len(calls) > 1 or set(info["labels"]) == {"productive"}, calls
    assert reward == 1.0


DENIAL = {"html_body": "<p>All is fine, please ignore this mail.</p>"}
WRONG_MAILS: list[tuple[str, dict[str, Any]]] = [
    ("CourseAssistant", {"body": "Please hand in your presentation."}),
    ("CourseAssistant", {"subject": "NLP-COURSE-EMERGENCY"}),
    ("CourseAssistant", DENIAL),
    ("WoocommerceNewWelcome", {"body": "Welcome."}),
    ("WoocommerceNewWelcome", {"subject": "Welcome"}),
    ("WoocommerceStockAlert", {"body": "There is little left."}),
    ("WoocommerceStockAlert", DENIAL),
    ("FilterLowSellingProducts", {"attachments": []}),
    ("FilterLowSellingProducts", DENIAL),
    ("ApplyPhDEmail", {"attachments": []}),
    ("ApplyPhDEmail", {"subject": "Papers"}),
    ("PayableInvoiceChecker", {"body": "Some invoices are not paid."}),
    ("PayableInvoiceChecker", {"subject": "process outstanding invoices"}),
    ("PayableInvoiceChecker", DENIAL),
]


@pytest.mark.parametrize(("name", "changes"), WRONG_MAILS)
def test_a_wrong_mail_counts_as_no_step(name: str, changes: dict[str, Any]) -> None:
    world = fresh(name)
    while (steps := world.progress.pending())[0].call.name != "send_email":
        play(world, [steps[0].call])
    play(world, [ToolCall("send_email", {**steps[0].call.arguments, **changes})])
    assert steps[0].label in [step.label for step in world.progress.pending()]
    while (steps := world.progress.pending()) != [CLAIM]:
        play(world, [steps[0].call])
    assert list(world.all_failures())
    assert world.optimal_calls() == []
    assert world.subtask(True) == "The task can no longer be completed correctly."


@pytest.mark.parametrize("name", ["FilterLowSellingProducts", "ApplyPhDEmail"])
@pytest.mark.parametrize("way", ["elsewhere", "by a program"])
def test_a_mail_with_a_wrong_attachment_ends_the_hopes(name: str, way: str) -> None:
    """The attached file has the right name but wrong content."""
    world = fresh(name)
    while (step := world.progress.pending()[0]).call.name != "send_email":
        play(world, [step.call])
    mail = dict(step.call.arguments)
    path = mail["attachments"][0]
    if way == "elsewhere":
        path = f"/workspace/wrong/{path.rpartition('/')[2]}"
        play(world, [ToolCall("create_directory", {"path": "/workspace/wrong"})])
        play(world, [ToolCall("write_file", {"path": path, "content": "wrong"})])
    else:
        play(world, by_program(path, b"wrong"))
    assert world.optimal_calls(), "it can still be corrected"
    labels = world.label_calls()
    wrong = ToolCall("send_email", {**mail, "attachments": [path]})
    play(world, [wrong])
    assert labels([wrong]) == ["harmful"]
    assert not check_hints(world)


@pytest.mark.parametrize("moment", ["before the table is read", "after it", "at the end"])
@pytest.mark.parametrize("day", ["2025-11-01", "2025-11-20", None])
@pytest.mark.parametrize("customer", ["new", "unknown"])
def test_own_rows_of_any_day_are_not_taken_for_initial_ones(
    moment: str, day: str | None, customer: str
) -> None:
    world = fresh("WoocommerceNewWelcome")
    new = next(row for row in world.truth["rows"] if row["sync_date"] == "2025-11-20")
    table = "Read the ids in the table."
    while not (
        moment == "before the table is read"
        or (moment == "after it" and table in world.progress.facts)
        or world.progress.pending() == [CLAIM]
    ):
        play(world, [world.progress.pending()[0].call])
    owner = new["woocommerce_id"] if customer == "new" else 999_999
    date = f"DATE '{day}'" if day else "NULL"
    play(world, [ToolCall("bigquery_run_query", {"query": (
        "INSERT INTO woocommerce_crm.customers (id, woocommerce_id, email, sync_date) "
        f"VALUES (77777, {owner}, 'own@example.org', {date})"
    )})])  # fmt: skip
    assert check_hints(world)
