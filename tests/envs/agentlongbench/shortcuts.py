"""Text policies that search for shortcuts; they see only the task and the last result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from agentgym import ToolCall, make, render, tool_env

# Function that chooses a call from the task and the last result.
Player = Callable[[str, str], ToolCall]

_VERDICT = re.compile(r"  - ([^:\n]+): ([^\n]+)")


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


def conditions(feedback: str) -> list[dict[str, Any]]:
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
    """Guesses the items in turn, without repeats per hidden item."""
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
    """Finds hidden items one by one from their last feedback alone.

    It carries the remaining candidate past all other guesses as the guessed name, which the last
    result shows. Its only other memory is the item it searches for.
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
