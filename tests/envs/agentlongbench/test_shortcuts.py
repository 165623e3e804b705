from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from agentgym import ToolCall, make, render, tool_env, worlds
from agentgym.envs.agentlongbench import TASKS
from agentgym.envs.agentlongbench.config import ItemsConfig, PuzzleConfig, QAConfig
from agentgym.envs.agentlongbench.engine import read_feedback, read_verdicts, to_conditions
from agentgym.envs.agentlongbench.logs import LARGEST, Peak, largest_section, within
from agentgym.envs.agentlongbench.puzzle_world import PuzzleWorld
from agentgym.envs.agentlongbench.qa_world import LongContextQA
from agentgym.envs.agentlongbench.reference import count_turns
from agentgym.envs.agentlongbench.rows import make_log
from agentgym.envs.agentlongbench.scoring import form, score
from agentgym.envs.agentlongbench.tasks import as_json
from agentgym.oracles import OraclePolicy
from agentgym.text.tokens import counter
from agentgym.training.rollout import rollout
from tests.helpers import play_optimally, start

# Function that chooses a call from the task and the last result.
Player = Callable[[str, str], ToolCall]


def scores(env_id: str, player: Callable[[Random], Player], seeds: int, **options: Any) -> float:
    env, total = make(env_id, **options), 0.0
    for seed in range(seeds):
        chat, _ = env.reset(seed=seed)
        task, choose = chat.messages[1].text, player(Random(seed))
        while not tool_env(env).over:
            last = chat.messages[-1].text if len(chat.messages) > 2 else ""
            chat, reward, *_ = env.step(render(choose(task, last)))
        total += float(reward)
    return total / seeds


def names_of(task: str) -> list[str]:
    names: list[str] = json.loads(re.findall(r"^All items: (.*)$", task, re.MULTILINE)[0])
    return names


def guess(name: str) -> ToolCall:
    return ToolCall("guess", {"name": name})


def carrier(rng: Random) -> Player:
    """Player that uses only the last feedback, the guessed name and the current item's number."""
    favourite = 1

    def choose(task: str, last: str) -> ToolCall:
        nonlocal favourite
        if last.startswith("{"):
            return guess(rng.choice(json.loads(last)["intersection"] or names_of(task)))
        text = re.search(r"Hidden item ([0-9]+)\.\nRound [0-9]+: Guess (\S+)\n", last)
        following = re.search(r"Next: hidden item ([0-9]+)\.", last)
        if text is None or following is None:
            return guess(rng.choice(names_of(task)))
        if int(text[1]) == favourite:
            if "Result: wrong" in last:
                return ToolCall("query_items", {"conditions": to_conditions(read_verdicts(last))})
            favourite = int(following[1])
            return guess(rng.choice(names_of(task)))
        return guess(text[2])

    return choose


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
    puzzles = [puzzle(seed, **options) for seed in range(4)]
    openings = {each.task().partition(" The sections")[0] for each in puzzles}
    budgets = {each.max_turns for each in puzzles}
    assert len(openings) == len(budgets) == 1


@pytest.mark.rotation
@pytest.mark.parametrize("hidden", [1, 4])
def test_the_order_of_candidates_says_nothing_of_the_target(hidden: int) -> None:
    """The target is equally likely to be in the first or second half of the candidate list."""
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


@pytest.mark.parametrize("style", ["concise", "verbose"])
def test_the_reference_player_takes_the_turns_of_the_scripted_one(style: str) -> None:
    for seed in range(40):
        env = start("PuzzleWorld", hidden=1, items=12, style=style, seed=seed)
        world: Any = env.world
        (opening,) = read_feedback(world.task())
        counts = count_turns(world.table, world.table.find(opening.name))
        assert play_optimally(env).turn == counts.turns[world.target]
        assert counts.rounds[world.target] >= 2


@pytest.mark.parametrize(
    ("env_id", "seeds"),
    [("PuzzleWorld", 40), pytest.param("PuzzleWorld-extreme", 2, marks=pytest.mark.exhaustive)],
)
def test_the_last_result_is_not_enough(env_id: str, seeds: int) -> None:
    everything = [rollout(OraclePolicy(env_id), make(env_id), seed).reward for seed in range(2)]
    assert everything == [1.0, 1.0]
    assert scores(env_id, carrier, seeds) <= 0.5


@pytest.mark.rotation(task=sorted(TASKS), style=["concise", "verbose"])
def test_no_constant_answer_earns_more_than_the_chance_that_is_stated(
    task: str, style: str
) -> None:
    """Answers are selected with some seeds and scored with other seeds."""
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
        total += 1 / len(left)
    assert total / seeds <= 0.25


def numbers_of(world: LongContextQA) -> list[int]:
    text = "\n".join(world.read_page(page + 1) for page in range(world._count))
    section = re.escape(world.question.spec.section)
    found = re.findall(
        rf"^Round ([0-9]+): Guess .*?\n  - {section}: (-?[0-9]+) ", text, re.S | re.M
    )
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1))
    return [int(value) for _, value in found]


def by_hand(numbers: list[int]) -> int:
    best = 0
    for k, number in enumerate(numbers):
        if number > numbers[best]:
            best = k
    return best + 1


@pytest.mark.rotation(
    options=[
        {"rounds": 4},
        {"rounds": 4, "style": "verbose"},
        {"rounds": 4, "knowledge": "intensive"},
        {"rounds": 24, "items": 10, "min_list": 3},
        {"rounds": 24, "items": 10, "min_list": 3, "style": "verbose"},
    ]
)
def test_each_round_has_the_largest_number_equally_often(options: dict[str, Any]) -> None:
    seeds, counts = 120, np.zeros(4)
    for seed in range(1000, 1000 + seeds):
        world = log_world(seed, task=LARGEST, **options)
        numbers = numbers_of(world)
        assert world.question.answer == by_hand(numbers)
        assert world.question.chance == 1 / len(numbers) == 1 / options["rounds"]
        counts[(world.question.answer - 1) * 4 // len(numbers)] += 1
    chi_square = ((counts - seeds / 4) ** 2 / (seeds / 4)).sum()
    assert chi_square < 16.3, "1 in 1,000 by chance"


@pytest.mark.rotation
def test_the_log_that_all_tasks_share_asks_for_a_round_that_was_drawn() -> None:
    late = 0
    for sample in range(3):
        log = make_log("ki-c", 16_384, sample, 0, counter("heuristic"))
        column = log.table.columns[largest_section(log.table)]
        late += by_hand([int(column[each.guess][0]) for each in log.rounds]) > len(log.rounds) / 2
        assert (
            within([places for each in log.rounds for places in each.lists], len(log.table)).sum()
            == 1
        )
    assert late


def test_a_peak_leaves_smaller_numbers_before_it_and_none_larger_after_it() -> None:
    table = ItemsConfig(items=30).table(np.random.default_rng(0))
    numbers = np.array([value for (value,) in table.columns[largest_section(table)]])
    largest = 0
    for seed in range(40):
        peak = Peak.draw(table, 4, 3, np.random.default_rng(seed))
        assert peak is not None
        assert not peak.before[4]
        assert not peak.after[4]
        assert (numbers[peak.allowed(1)] < numbers[peak.item]).all()
        assert peak.allowed(3).nonzero()[0].tolist() == [peak.item]
        assert (numbers[peak.allowed(4)] <= numbers[peak.item]).all()
        largest += numbers[peak.item] == np.delete(numbers, 4).max()
    assert 5 < largest < 35, (
        "a reader who meets the largest of all may stop, so it is not always it"
    )


def test_the_chance_of_a_configuration_is_that_of_its_instances() -> None:
    assert LongContextQA.chance(QAConfig(task=LARGEST, rounds=8)) == 1 / 8
    assert LongContextQA.chance(QAConfig(task="find_duplicates_tool")) == 0.5
    assert 0.12 < LongContextQA.chance(QAConfig(task="count_frequency_env")) < 0.26
