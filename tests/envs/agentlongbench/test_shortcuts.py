"""The configuration bounds the scores of blind and forgetful players."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from agentgym import make, worlds
from agentgym.envs.agentlongbench import TASKS
from agentgym.envs.agentlongbench.config import PuzzleConfig, QAConfig
from agentgym.envs.agentlongbench.puzzle_world import PuzzleWorld
from agentgym.envs.agentlongbench.qa_world import LongContextQA
from agentgym.envs.agentlongbench.reference import draw_reference
from agentgym.envs.agentlongbench.scoring import form, score
from agentgym.envs.agentlongbench.tasks import as_json
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import rollout
from tests.envs.agentlongbench.shortcuts import blind, carrier, scores

PUZZLES = [
    dict(entry.options) for entry in worlds(presets=True) if entry.world.__name__ == "PuzzleWorld"
]


def puzzle(seed: int, **options: Any) -> PuzzleWorld:
    world = PuzzleWorld(PuzzleConfig(**options), seed)
    world.generate()
    return world


@pytest.mark.parametrize("options", PUZZLES, ids=str)
def test_the_opening_text_of_a_puzzle_depends_on_the_configuration_but_for_names(
    options: dict[str, Any],
) -> None:
    openings = {
        puzzle(seed, **options).task().partition("\n\n")[0].partition(" The sections")[0]
        for seed in range(6)
    }
    budgets = {puzzle(seed, **options).max_turns for seed in range(6)}
    assert len(openings) == len(budgets) == 1


@pytest.mark.rotation
@pytest.mark.parametrize("hidden", [1, 4])
def test_the_order_of_candidates_says_nothing_of_the_target(hidden: int) -> None:
    """The target's rank in the first exact list is uniform, so each half has it equally often."""
    seeds, ranks = 400, []
    for seed in range(seeds):
        world = puzzle(seed, hidden=hidden)
        guesses = [] if hidden == 1 else [world.table.names[0]] * hidden
        for name in guesses:
            world.guess(name)
        world.query(world.belief.conditions())
        pool = world.belief.pool or []
        target = world.table.names[world.target]
        if len(pool) > 1 and target in pool:
            ranks.append((pool.index(target) + 0.5) / len(pool) - 0.5)
    spread = sum(rank * rank for rank in ranks) ** 0.5
    assert len(ranks) > seeds // 3
    assert abs(sum(ranks)) < 3.3 * spread, "1 in 1,000 by chance"


@pytest.mark.rotation
def test_reference_turns_are_those_of_play_item_by_item() -> None:
    for options in ({"hidden": 1}, {"hidden": 2}, {"hidden": 1, "style": "verbose"}):
        world = puzzle(3, items=40, **options)
        config: PuzzleConfig = world.config
        first, counts = draw_reference(config, world.table, np.random.default_rng(7))
        checked = 0
        for target in range(40):
            if target == first and config.hidden == 1:
                continue
            checked += 1
            assert turns_of(world, target, first) == counts.turns[target]
        assert checked >= 39


def turns_of(world: PuzzleWorld, target: int, first: int) -> int:
    table = world.table
    alike = [
        [table.feedback_atoms(guess, each) for each in range(len(table))]
        for guess in range(len(table))
    ]
    pool = list(range(len(table)))
    turns = 0 if world.config.hidden == 1 else 1
    guess, listed = (first if world.config.hidden == 1 else 0), world.config.hidden == 1
    if turns and guess == target:
        return 1
    while True:
        left = [each for each in pool if each != guess]
        turns += 1 + (len(left) > 1 or listed)
        listed = False
        pool = [each for each in left if alike[guess][each] == alike[guess][target]]
        guess = pool[0]
        if guess == target:
            return turns


@pytest.mark.parametrize("options", [{}, {"items": 30, "hidden": 3, "rounds": 6}])
def test_guessing_without_looking_finds_no_more_than_a_share_of_the_items(
    options: dict[str, Any],
) -> None:
    seeds = 100
    config = PuzzleConfig(**options)
    ceiling = config.rounds / config.items
    targets = seeds * config.hidden
    assert config.rounds <= 0.1 * config.items or options
    error = (ceiling * (1 - ceiling) / targets) ** 0.5
    assert scores("PuzzleWorld", blind, seeds, **options) <= ceiling + 2.6 * error


@pytest.mark.parametrize(
    ("env_id", "seeds"),
    [("PuzzleWorld", 40), pytest.param("PuzzleWorld-extreme", 2, marks=pytest.mark.exhaustive)],
)
def test_the_last_result_is_not_enough(env_id: str, seeds: int) -> None:
    everything = [rollout(make(env_id), OraclePolicy(env_id), seed).reward for seed in range(2)]
    assert everything == [1.0, 1.0]
    assert scores(env_id, carrier, seeds) <= 0.5


@pytest.mark.rotation(task=sorted(TASKS), style=["concise", "verbose"])
def test_no_constant_answer_earns_more_than_the_chance_that_is_stated(
    task: str, style: str
) -> None:
    """The seeds differ from those that select the answers."""
    worlds = [log_world(seed, task=task, style=style) for seed in range(60)]
    kind = form(task, style)
    chance = sum(world.question.chance for world in worlds) / len(worlds)
    answers = {as_json(world.question.answer): world.question.answer for world in worlds[:30]}
    totals = {
        text: [score(kind, world.question.answer, answer) for world in worlds[30:]]
        for text, answer in answers.items()
    }
    best = max(sum(each) / len(each) for each in totals.values())
    assert best <= chance + 3 * (chance * (1 - chance) / 30) ** 0.5 + 0.05
    assert worlds[0].report()["chance"] == worlds[0].question.chance


def log_world(seed: int, **options: Any) -> LongContextQA:
    world = LongContextQA(QAConfig(**options), seed)
    world.generate()
    return world


def test_the_last_page_alone_does_not_isolate_the_hidden_item() -> None:
    total, seeds = 0.0, 30
    for seed in range(seeds):
        world = log_world(seed, task="intersection")
        text = world.read_page(world._count)
        lists = [
            set(json.loads(line)["intersection"]) for line in re.findall(r"^\{.*$", text, re.M)
        ]
        left = set.intersection(*lists) - set(re.findall(r"<answer>(.*)</answer>", text))
        assert world.question.answer in left
        assert world.report()["last_page"] == 1 / len(left)
        total += 1 / len(left)
    assert total / seeds <= 0.25


def test_the_last_page_is_worth_what_its_reader_scores() -> None:
    task = "find_round_largest_value_env"
    for seed in range(12):
        world = log_world(seed, task=task)
        spec = world.question.spec
        text = world.read_page(world._count)
        rounds = re.findall(rf"Round ([0-9]+): .*?  - {spec.section}: ([0-9]+)", text, re.S)
        best = max(rounds, key=lambda each: int(each[1]))[0]
        assert world.report()["last_page"] == float(int(best) == world.question.answer)
