from __future__ import annotations

import random
import re
from dataclasses import fields
from typing import Any

import pytest

import agentgym
from agentgym import render
from agentgym.envs.loca import LENGTHS, task
from agentgym.envs.loca.drafts import draw_state
from tests.envs.loca.office import TASKS, carry_out, fresh, solved

# The servers of each task in table 7 of the paper, except claim_done and filesystem.
SHELL = "python_execute terminal"
SERVERS = {
    "CanvasArrangeExam": "canvas email excel memory python_execute",
    "CanvasListTest": "canvas memory python_execute",
    "CourseAssistant": f"email excel {SHELL}",
    "ABTesting": "google_cloud python_execute",
    "AcademicWarning": "google_cloud python_execute",
    "ApplyPhDEmail": "email memory pdf_tools terminal",
    "MachineOperating": "excel google_cloud python_execute",
    "SetConfCrDdl": "calendar email python_execute",
    "ExcelMarketResearch": f"excel {SHELL}",
    "FilterLowSellingProducts": "email python_execute woocommerce",
    "UpdateMaterialInventory": f"google_sheet woocommerce {SHELL}",
    "WoocommerceNewWelcome": "email google_cloud python_execute woocommerce",
    "WoocommerceStockAlert": "email google_sheet python_execute woocommerce",
    "NhlB2bAnalysis": f"google_sheet {SHELL}",
    "PayableInvoiceChecker": f"email pdf_tools snowflake {SHELL}",
}
SAMPLE = [
    (name, length)
    for k, name in enumerate(TASKS)
    for length in ("8k", ("16k", "32k", "64k")[k % 3])
]
WHOLE = [(name, length) for name in TASKS for length in LENGTHS]


@pytest.mark.parametrize("name", TASKS)
def test_doing_nothing_is_not_enough(name: str) -> None:
    for seed in range(2):
        world = fresh(name, seed=seed)
        assert list(world.task_failures())
        world.done = True
        assert world.score() == 0.0
        report = world.report()
        assert report["fault_count"] >= len(report["faults"]) > 0


@pytest.mark.parametrize("name", TASKS)
def test_the_ends_of_the_options_are_solved(name: str) -> None:
    rates = [each.name for each in fields(TASKS[name].Config) if each.name.endswith("_rate")]
    for rate in (*rates, ""):
        options = {other: float(other == rate) for other in rates}
        for size in (1, 4):
            assert solved(name, size=size, **options).score() == 1.0, (rate, size)


@pytest.mark.rotation
@pytest.mark.parametrize("steps", [16, 40])
@pytest.mark.parametrize("name", ["ApplyPhDEmail", "CanvasArrangeExam", "CourseAssistant"])
def test_a_horizon_is_about_the_length_of_the_plan(name: str, steps: int) -> None:
    """These plans read page by page, so the number of steps grows in jumps with the size."""
    sizes = TASKS[name].config_for_horizon(steps)
    lengths = [len(carry_out(fresh(name, seed=k, **sizes)).progress.facts) + 1 for k in range(6)]
    assert abs(sum(lengths) / len(lengths) - steps) <= steps / 4, lengths


def test_opaque_ids_belong_to_one_seed() -> None:
    texts = {}
    for seed in (0, 0, 1):
        world = fresh("WoocommerceStockAlert", seed=seed)
        ids = set(re.findall("[0-9a-f-]{24,}", world.office.call("list_spreadsheets", {})))
        assert ids
        assert texts.setdefault(seed, ids) == ids
    assert not texts[0] & texts[1]


@pytest.mark.parametrize(("name", "length"), SAMPLE)
def test_the_description_is_as_long_as_asked_and_the_plan_solves_the_task(
    name: str, length: str
) -> None:
    check(name, LENGTHS[length], seed=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("name", "length"), WHOLE)
def test_every_released_state_has_its_length_and_is_solved(
    name: str, length: str, seed: int
) -> None:
    check(name, LENGTHS[length], seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TASKS)
def test_states_of_a_million_tokens(name: str) -> None:
    check(name, 1_100_000, seed=0)


def check(name: str, length: int, seed: int) -> None:
    world = fresh(name, length, seed)
    assert abs(world.tokens - length) <= 0.1 * length
    carry_out(world)
    assert list(world.task_failures()) == []
    assert world.score() == 1.0
    world.done = False
    assert world.score() == 0.0, "the end has to be claimed"


@pytest.mark.parametrize("name", TASKS)
def test_an_opening_follows_from_the_seed_alone(name: str) -> None:
    """The task text must be the same for all lengths, so that it reveals nothing about the state."""
    texts = {fresh(name, length, seed=1).task() for length in (8_000, 20_000)}
    assert len(texts) == 1


@pytest.mark.parametrize("name", TASKS)
def test_openings_differ_between_seeds_but_not_in_their_rules(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = draw_state(TASKS[name], TASKS[name].Config(size=4), 0)
    monkeypatch.setattr(task, "draw_state", lambda *_: state)  # use the same state for all seeds
    openings = [fresh(name, seed=seed).task() for seed in range(30)]
    assert len(set(openings)) == 30
    rules = [re.escape(line) for line in TASKS[name].text.split("\n")]
    patterns = [re.sub(r"\\\[([^]]*\\\|[^]]*)\\\]", _either, line) for line in rules]
    for opening in openings:
        who, *lines = opening.split("\n")
        assert who not in rules
        assert not re.search(r"[|{}]|\[", who)
        for pattern in patterns:
            [line] = [line for line in lines if re.fullmatch(pattern, line)]
            lines.remove(line)
        assert not lines
    orders = {tuple(opening.split("\n")[2:]) for opening in openings}
    assert len(orders) > 2


def _either(match: re.Match[str]) -> str:
    return "(?:" + match[1].replace("\\|", "|") + ")"


@pytest.mark.parametrize("name", SERVERS)
def test_the_servers_are_those_of_the_paper(name: str) -> None:
    assert sorted(TASKS[name].servers) == sorted(
        ["claim_done", "filesystem", *SERVERS[name].split()]
    )


@pytest.mark.parametrize("name", TASKS)
def test_steps_are_judged(name: str) -> None:
    env: Any = agentgym.make(name, labels=True)
    env.reset(seed=1)
    world = agentgym.tool_env(env).world
    first = world.optimal_calls()[0]
    assert env.step(render(first))[4]["labels"] == ("productive",)
    if first in [step.call for step in world.progress.completed()]:
        assert env.step(render(first))[4]["labels"] == ("redundant",)
    assert env.step('<tool_call>\n{"name": "claim_done", "arguments": {}}\n</tool_call>')[4][
        "labels"
    ] == ("harmful",)


@pytest.mark.parametrize("name", TASKS)
def test_reads_may_come_in_any_order(name: str) -> None:
    draw = random.Random(3)
    world = fresh(name, seed=2)
    while calls := world.optimal_calls():
        call = draw.choice(calls)
        if call.name == "claim_done":
            break
        world.read_result(call, world.office.call(call.name, call.arguments))
    world.done = True
    assert world.score() == 1.0


def emptied(fact: Any, leaf: Any) -> Any:
    if isinstance(fact, dict):
        return {name: emptied(value, leaf) for name, value in fact.items()}
    if isinstance(fact, list):
        return [] if leaf == [] else [emptied(value, leaf) for value in fact]
    return "" if isinstance(fact, str) and leaf == [] else leaf


@pytest.mark.parametrize("leaf", ["", 0, None, []], ids=repr)
@pytest.mark.parametrize("name", TASKS)
def test_facts_that_no_state_gives_end_the_plan_and_nothing_else(name: str, leaf: Any) -> None:
    true = {step.label: step for step in solved(name).progress.completed()}
    facts = solved(name).progress.facts
    for label in [label for label in facts if true[label].learn is not None][:3]:
        world = fresh(name)
        progress = world.progress
        while steps := progress.pending():
            step = steps[0]
            if step.label not in facts:
                break
            fact = facts[step.label]
            progress.facts[step.label] = emptied(fact, leaf) if step.label == label else fact
            progress._pending.pop(step.label)
            if step.label == label:
                break
        assert isinstance(progress.pending(), list)
        assert world.subtask(True)
        assert world.state()
        assert world.legal_calls()
