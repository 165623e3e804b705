"""Every round of a log is equally likely to have the largest number."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from agentgym.envs.agentlongbench.config import ItemsConfig, QAConfig
from agentgym.envs.agentlongbench.logs import LARGEST, Peak, largest_section, within
from agentgym.envs.agentlongbench.qa_world import LongContextQA
from agentgym.envs.agentlongbench.rows import make_log
from agentgym.text.tokens import counter


def drawn(seed: int, **options: Any) -> LongContextQA:
    world = LongContextQA(QAConfig(**{"task": LARGEST, **options}), seed)
    world.generate()
    return world


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
        world = drawn(seed, **options)
        numbers = numbers_of(world)
        assert world.question.answer == by_hand(numbers)
        assert world.question.chance == 1 / len(numbers) == 1 / options["rounds"]
        counts[(world.question.answer - 1) * 4 // len(numbers)] += 1
    chi_square = ((counts - seeds / 4) ** 2 / (seeds / 4)).sum()
    assert chi_square < 16.3, "1 in 1,000 by chance"


@pytest.mark.exhaustive
def test_a_log_of_a_length_is_balanced_too() -> None:
    """Its rounds are counted only after playing, so relative positions must be uniform."""
    places = []
    for seed in range(24):
        world = drawn(seed, length=5_000)
        numbers = numbers_of(world)
        assert world.question.answer == by_hand(numbers)
        places.append((world.question.answer - 0.5) / len(numbers) - 0.5)
    assert abs(np.mean(places)) < 3.3 / (12 * len(places)) ** 0.5  # 1 in 1,000 by chance


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
    mean = LongContextQA.chance(QAConfig(task="count_frequency_env"))
    assert 0.12 < mean < 0.26
