"""Text policies that look for shortcuts: they see the task and the last result, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from agentgym import ToolCall, make, render, tool_env

Player = Callable[[str, str], ToolCall]
"""Chooses a call from the task and the last result."""

_VERDICT = re.compile(r"  - ([^:\n]+): ([^\n]+)")


def scores(env_id: str, player: Callable[[Random], Player], seeds: int, **options: Any) -> float:
    """The mean score of a player, one for each seed."""
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
    """The items that a task of a puzzle lists."""
    names: list[str] = json.loads(re.findall(r"^All items: (.*)$", task, re.MULTILINE)[0])
    return names


def guess(name: str) -> ToolCall:
    return ToolCall("guess", {"name": name})


def conditions(feedback: str) -> list[dict[str, Any]]:
    """What feedback says of the hidden item, as conditions."""
    parts: list[dict[str, Any]] = []
    for section, marks in _VERDICT.findall(feedback):
        for mark in marks.split("; "):
            value, _, verdict = mark.removesuffix(")").rpartition(" (")
            if value.lstrip("-").isdigit():
                sign = {"wrong, too low": ">", "wrong, too high": "<", "correct": "=="}[verdict]
                parts.append(
                    {
                        "type": "numeric",
                        "section": section,
                        "comparator": sign,
                        "threshold": int(value),
                    }
                )
            else:
                parts.append(
                    {
                        "type": "value",
                        "section": section,
                        "values": [value],
                        "exclude": verdict != "correct",
                    }
                )
    return parts


def blind(rng: Random) -> Player:
    """Guesses the items one after the other, a different one for the same hidden item each time."""
    order: list[str] = []
    turn = 0

    def choose(task: str, last: str) -> ToolCall:
        nonlocal turn
        if not order:
            order.extend(rng.sample(names_of(task), len(names_of(task))))
        number = re.findall(r"Round ([0-9]+): ", last)
        turn = max(turn, int(number[-1]) if number else 0)
        return guess(order[turn % len(order)])

    return choose


def carrier(rng: Random) -> Player:
    """Finds one hidden item after the other by its last feedback alone: what that leaves is carried
    past the guesses of all others as the name that is guessed, which the last result shows.

    Which item it looks for is all that it remembers besides, more than the last result.
    """
    favourite = 1

    def choose(task: str, last: str) -> ToolCall:
        nonlocal favourite
        if last.startswith("{"):
            names = json.loads(last)["intersection"]
            return guess(rng.choice(names or names_of(task)))
        text = re.search(r"Hidden item ([0-9]+)\.\nRound [0-9]+: Guess (\S+)\n", last)
        following = re.search(r"Next: hidden item ([0-9]+)\.", last)
        if text is None or following is None:
            return guess(rng.choice(names_of(task)))
        if int(text[1]) == favourite:
            if "Result: wrong" in last:
                return ToolCall("query_items", {"conditions": conditions(last)})
            favourite = int(following[1])
            return guess(rng.choice(names_of(task)))
        return guess(text[2])

    return choose
