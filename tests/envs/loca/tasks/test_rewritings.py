"""The plan follows the state: it does not repeat work done in another correct way."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import pytest

import agentgym
from agentgym import ToolCall, render
from agentgym.envs.loca.plan import CLAIM, PlanStep
from agentgym.envs.loca.task import OfficeTask
from agentgym.text.tools import ToolError
from tests.envs.loca.office import TASKS, fresh, solved
from tests.envs.loca.rewriting import merged, rewritten


def play(world: Any, calls: Sequence[ToolCall]) -> None:
    for call in calls:
        world.read_result(call, world.office.call(call.name, call.arguments))


def obey(world: Any) -> list[PlanStep]:
    changes = []
    limit = 3 * len(solved_steps(type(world).__name__)) + 10
    while (steps := world.progress.pending()) != [CLAIM]:
        assert world.optimal_calls(), world.progress.lost
        assert world.progress.facts.keys().isdisjoint({steps[0].label})
        play(world, [steps[0].call])
        assert steps[0].label in world.progress.facts, f"{steps[0].label} is ordered for ever"
        changes += [steps[0]] if steps[0].changes else []
        assert len(world.progress.facts) <= limit
    return changes


def solved_steps(name: str) -> list[PlanStep]:
    steps: list[PlanStep] = solved(name).progress.completed()
    return steps


def check_end(world: Any) -> None:
    assert list(world.all_failures()) == []
    assert world.optimal_calls() == [CLAIM.call]
    world.done = True
    assert world.score() == 1.0


@pytest.mark.family(name=list(TASKS), seed=range(8))
def test_steps_that_were_taken_in_another_way_are_not_ordered_again(name: str, seed: int) -> None:
    draw, world = random.Random(seed), fresh(name, seed=seed % 2)
    share, others = draw.choice((0.3, 1.0)), set[str]()
    while (steps := world.progress.pending()) != [CLAIM]:
        assert world.optimal_calls(), world.progress.lost
        chosen = draw.sample(steps, min(len(steps), draw.choice((1, 2, 5))))
        calls = []
        if not (steps[0].changes and draw.random() < share):
            chosen, calls = chosen[:1], [chosen[0].call]
        elif len(chosen) == 1 or not (calls := merged(chosen)):
            chosen, calls = chosen[:1], rewritten(chosen[0], draw)
        assert others.isdisjoint(step.label for step in chosen), "it was done in another way"
        if len(calls) > 1 and draw.random() < 0.2:
            play(world, calls[:1])
            break
        play(world, calls)
        if calls[0] != chosen[0].call:
            others |= {step.label for step in chosen}
        copied = pickle.loads(pickle.dumps(world.progress))
        assert copied.lines() == world.progress.lines()
        restored = type(world).read_task(world.task())
        restored.read_state(world.state())
        assert restored.optimal_calls() == world.optimal_calls()
        if draw.random() < 0.1:
            break
    again = obey(world)
    assert others.isdisjoint(step.label for step in again)
    check_end(world)


@pytest.mark.family(name=list(TASKS), seed=range(6))
def test_work_done_before_the_plan_has_read_anything_is_kept(name: str, seed: int) -> None:
    """An agent may read by calls outside the plan."""
    draw, world = random.Random(seed), fresh(name)
    changes = [step for step in solved_steps(name) if step.changes or step.call.name == "login"]
    calls = [
        call
        for step in changes
        for call in ([step.call] if draw.random() < 0.2 else rewritten(step, draw))
    ]
    for call in calls[: draw.choice((len(calls), draw.randint(1, len(calls))))]:
        with suppress(ToolError):  # one form of a step may include the next
            play(world, [call])
    obey(world)
    check_end(world)


@pytest.mark.family(name=list(TASKS), seed=range(3))
def test_labels_agree_with_the_plan(name: str, seed: int) -> None:
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
        assert step.label in world.progress.facts or step is CLAIM
        assert better or len(calls) > 1 or set(info["labels"]) == {"productive"}, calls
    assert reward == 1.0


WRONG_MAILS = {
    "CourseAssistant": {"body": "Please hand in your presentation."},
    "WoocommerceNewWelcome": {"body": "Welcome."},
    "WoocommerceStockAlert": {"body": "There is little left."},
    "FilterLowSellingProducts": {"attachments": []},
    "ApplyPhDEmail": {"attachments": []},
    "PayableInvoiceChecker": {"body": "Some invoices are not paid."},
}


@pytest.mark.parametrize("name", WRONG_MAILS)
def test_a_wrong_mail_counts_as_no_step(name: str) -> None:
    world = fresh(name)
    while (steps := world.progress.pending())[0].call.name != "send_email":
        play(world, [steps[0].call])
    mail = steps[0].call.arguments
    play(world, [ToolCall("send_email", {**mail, **WRONG_MAILS[name]})])
    assert steps[0].label in [step.label for step in world.progress.pending()]
    while (steps := world.progress.pending()) != [CLAIM]:
        play(world, [steps[0].call])
    assert list(world.all_failures())
    assert world.optimal_calls() == []
    assert world.subtask(True) == "The task can no longer be completed correctly."


SPOILED: dict[str, tuple[str, dict[str, Any]]] = {
    "UpdateMaterialInventory": ("update_cells", {"range": "C2", "data": [["-1"]]}),
    "NhlB2bAnalysis": ("update_cells", {"range": "B2", "data": [[99]]}),
    "CanvasArrangeExam": ("write_data_to_excel", {"start_cell": "A2", "data": [["?"]]}),
    "FilterLowSellingProducts": ("woo_products_batch_update", {}),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_change_that_was_undone_is_ordered_again(name: str) -> None:
    world, (tool, change) = solved(name), SPOILED[name]
    step = next(step for step in world.progress.completed() if step.call.name == tool)
    arguments = {**step.call.arguments, **change}
    if not change:
        arguments["update"] = [{"id": arguments["update"][0]["id"], "categories": [{"id": 1}]}]
    world.done = False
    play(world, [ToolCall(tool, arguments)])
    assert list(world.all_failures())
    assert world.progress.pending() == [step]
    restored = type(world).read_task(world.task())
    restored.read_state(world.state())
    assert restored.optimal_calls() == world.optimal_calls()
    assert obey(world) == [step]
    check_end(world)
