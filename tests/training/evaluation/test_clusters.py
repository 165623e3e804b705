from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from agentgym import Chat, make, worlds
from agentgym.training.evaluation import Result, comparison_tables, differences, summarize, wilson
from agentgym.training.evaluation.intervals import effects
from agentgym.training.evaluation.scoring import hash_prompt, score
from agentgym.training.rollout import rollout
from tests.sampling import is_office
from tests.training.evaluation.test_provenance import play

STEPS, CHANCE = 4, 0.8


def uniform(text: str) -> float:
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest()) / 2**48


def null_study(agent: int, openings: int, told: bool, seeds: int = 20) -> list[Result]:
    """Return episodes with and without oracle S; errors depend only on the prompt's text.

    If `told`, each episode with S has a unique first prompt; otherwise, first prompts recur.
    """
    rows = []
    for arm in ("", "S"):
        for seed in range(seeds):
            opening = f"{arm} {seed if told and arm else seed % openings}"
            texts = [opening, *(f"{arm} {seed} {step}" for step in range(1, STEPS))]
            draws = [uniform(f"{agent} {text}") for text in texts]
            won = float(max(draws) < CHANCE)
            counts = (STEPS, STEPS, STEPS, STEPS)
            rows.append(Result("W", arm, 8, seed, won, *counts, opening=f"{opening} {draws[0]}"))
    return rows


@pytest.mark.parametrize("openings", [1, 5, 20])
@pytest.mark.parametrize("told", [False, True])
def test_an_agent_that_draws_by_text_shows_no_effect(openings: int, told: bool) -> None:
    held = {"effect": [], "rate": [], "hinted": []}
    for agent in range(150):
        rows = null_study(agent, openings, told)
        change = effects(rows, (), "success")["S",]
        rates = summarize(rows, ("arm",), "success")
        held["effect"].append(change.low <= 0 <= change.high)
        assert (change.p_value >= 0.05) == held["effect"][-1]
        for name, arm in (("rate", ""), ("hinted", "S")):
            held[name].append(rates[arm,].low <= CHANCE**STEPS <= rates[arm,].high)
    for name, hits in held.items():
        assert np.mean(hits) >= 0.93, name


def test_equal_openings_of_all_seeds_are_one_draw() -> None:
    rows = [Result("W", "", 8, seed, 0.0, 4, 4, 4, 4, opening="same") for seed in range(20)]
    assert summarize(rows, (), "success")[()] == wilson(0, 1)
    hinted = [replace(row, arm="S", success=1.0, opening=str(row.seed)) for row in rows]
    change = differences([*rows, *hinted], (), "success")["S",]
    assert change.low <= 0 < change.value == 1.0
    apart = [replace(row, opening="") for row in [*rows, *hinted]]
    assert differences(apart, (), "success")["S",].low > 0.7


def text_of(chat: Chat) -> Any:
    return [(m.role, m.text, m.thinking, m.images) for m in chat.messages], chat.tools


@pytest.mark.parametrize(
    "world", [entry.id for entry in worlds() if not is_office(entry.id.split("/")[1][:-3])]
)
def test_the_digest_of_a_prompt_is_that_of_its_text(world: str) -> None:
    env = make(world)
    chats = [env.reset(seed=seed)[0] for seed in (*range(4), 0)]
    for one in chats:
        for two in chats:
            assert (hash_prompt(one) == hash_prompt(two)) == (text_of(one) == text_of(two))
    moved = [replace(m, moment="other:9", id=f"x{m.id}") for m in chats[0].messages]
    assert hash_prompt(Chat(tuple(moved), chats[0].tools)) == hash_prompt(chats[0])


def test_openings_are_those_of_text_and_reply_unless_the_policy_draws_by_instance() -> None:
    env = make("ListWorld", labels=True)
    labels = {"world": "ListWorld", "arm": "", "horizon": 4}
    played = rollout(play, env, 3, labels)
    first = played.steps[0]
    answered = replace(first, reply=replace(first.reply, text="hm"))
    other = replace(played, steps=(answered, *played.steps[1:]), seed=4)
    assert len({score(t).opening for t in (played, replace(played, seed=9), other)}) == 2
    scripted = {**labels, "provenance": {"policy": "noisy:p=0.1"}}
    assert score(replace(played, labels=scripted)).opening == ""


@pytest.mark.parametrize(
    ("wanted", "solved", "seeds", "near"),
    [
        *((0.3, 0, seeds, "no") for seeds in (1, 3, 5, 8, 20, 100)),
        *((0.75, seeds, seeds, "no") for seeds in (1, 3, 5, 8, 20, 100)),
        *((0.3, 1, 3, "no"), (0.3, 2, 24, "no"), (0.75, 14, 24, "no"), (0.3, 3, 10, "no")),
        *((0.3, 6, 20, "yes"), (0.75, 15, 20, "yes"), (0.3, 30, 100, "yes"), (0.3, 60, 100, "no")),
    ],
)
def test_a_size_is_near_only_if_its_interval_is_narrow(
    wanted: float, solved: int, seeds: int, near: str
) -> None:
    rows = [
        Result("W", arm, size, seed, float(seed < solved), 4, 4, 4, 4, policy=policy)
        for policy in ("a", "b")
        for arm in ("", "S")
        for size in (4, 8)
        for seed in range(seeds)
    ]
    _, header, lines = next(t for t in comparison_tables(rows, {"W": wanted}) if "Sizes" in t[0])
    assert {line[header.index("near")].split(":")[0] for line in lines} == {near}
