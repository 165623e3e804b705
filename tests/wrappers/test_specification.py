"""Compare every view of every strategy with a simulation of the specification."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pytest

import agentgym
from agentgym import Chat, ToolCall, ToolEnv, render, tool_env
from agentgym.wrappers import ClearToolResults, EditMessages, ToolUses, Trim
from tests.wrappers.context_checks import episode
from tests.wrappers.context_worlds import read
from tests.wrappers.specification import Line, Results, Simulation, Summaries, Thinking, read_line

PLAIN = "tests.wrappers.specification:letters"
WORLDS: dict[str, dict[str, Any]] = {
    "TreeWorld": {"nodes": 60, "budget_slack": 500},
    "ListWorld": {"items": 40, "removals": 30, "budget_slack": 500},
    "DocumentWorld": {},
    "NhlB2bAnalysis": {"size": 4},
}
# Tokens that a few turns add to the opening messages; every trigger is within this range.
ROOM = {"TreeWorld": 900, "ListWorld": 900, "DocumentWorld": 900, "NhlB2bAnalysis": 9_000}


@dataclass(frozen=True)
class Case:
    """A stack of context strategies. `{n}` in a trigger becomes n % of the world's `ROOM`."""

    thinking: Thinking | None = None
    results: Results | None = None
    summaries: Summaries | None = None
    awareness: str = ""
    memory: bool = False
    programmatic: bool = False
    window: float = 3.0  # in units of `ROOM`
    counter: str = PLAIN


CASES = {
    "keep as many as the trigger": Case(results=Results("5uses", keep=5)),
    "keep nearly the trigger": Case(results=Results("6uses", keep=5)),
    "keep more than the trigger": Case(results=Results("3uses", keep=6)),
    "pinned text above the trigger": Case(results=Results("1", keep=3)),
    "pinned text above the trigger, keep none": Case(results=Results("1", keep=0)),
    "kept results above the trigger": Case(results=Results("{30}", keep=4)),
    "tokens": Case(results=Results("{80}", keep=2)),
    "tokens with a target": Case(results=Results("{80}", target="{40}", keep=1)),
    "uses with a target": Case(results=Results("8uses", target="3uses", keep=1)),
    "ratio": Case(results=Results("6uses", ratio="0.5", keep=2, clear_inputs=True)),
    "small ratio": Case(results=Results("{50}", ratio="0.3", keep=1)),
    "share of the window": Case(results=Results("0.75", keep=2), window=1.2),
    "turns or uses": Case(results=Results("9turns|4uses", keep=3)),
    "turns": Case(results=Results("6turns", keep=2)),
    "inputs too": Case(results=Results("{60}", keep=2, clear_inputs=True)),
    "minimum gain": Case(results=Results("{40}", keep=2, clear_at_least=200)),
    "minimum gain without end": Case(results=Results("2uses", keep=1, clear_at_least=150)),
    "long placeholder": Case(results=Results("3uses", keep=2, placeholder="gone " * 12)),
    "large window": Case(results=Results("{60}", keep=1), window=300),
    "vocabulary": Case(results=Results("{60}", keep=1), counter="cl100k_base"),
    "thinking": Case(thinking=Thinking()),
    "three thoughts": Case(thinking=Thinking(keep=3)),
    "thinking by tokens": Case(thinking=Thinking("{60}", keep=2)),
    "thinking by turns": Case(thinking=Thinking("7turns", keep=1)),
    "summaries of four turns, four kept": Case(summaries=Summaries("4turns", keep_last_turns=4)),
    "summaries of four turns, three kept": Case(summaries=Summaries("4turns", keep_last_turns=3)),
    "summaries of six turns, two kept": Case(summaries=Summaries("6turns", keep_last_turns=2)),
    "summaries below the pinned text": Case(summaries=Summaries("1", keep_last_turns=1)),
    "summaries by tokens": Case(summaries=Summaries("{40}", keep_last_turns=1)),
    "summaries by uses": Case(summaries=Summaries("5uses", keep_last_turns=3)),
    "summaries in a large window": Case(summaries=Summaries("{30}"), window=300),
    "summaries by share": Case(summaries=Summaries(), window=1.5, counter="cl100k_base"),
    "awareness": Case(awareness="all"),
    "awareness, newest only": Case(awareness="latest", counter="cl100k_base"),
    "memory": Case(memory=True),
    "memory and results": Case(results=Results("5uses", keep=5), memory=True, window=4),
    "memory and tokens": Case(results=Results("{70}", keep=2), memory=True, window=4),
    "memory and summaries": Case(summaries=Summaries("5turns"), memory=True, window=4),
    "code": Case(programmatic=True),
    "code and results": Case(results=Results("3uses", keep=2), programmatic=True),
    "trimmed": Case(window=0.8),
    "trimmed with memory": Case(memory=True, window=1.2),
    "excluded tools": Case(
        results=Results("3uses", keep=1, exclude=("memory", "get_sheet_data")),
        memory=True,
        window=4,
    ),
    "clear, then summarise": Case(
        results=Results("{50}", keep=1),
        summaries=Summaries("{70}|16turns", keep_last_turns=2),
        awareness="all",
    ),
    "all six": Case(
        Thinking("4turns", keep=2),
        Results("4uses", keep=2, clear_inputs=True),
        Summaries("9turns", keep_last_turns=3),
        "all",
        memory=True,
        programmatic=True,
        window=4,
    ),
    "all six, newest report": Case(
        Thinking(),
        Results("{60}", keep=4),
        Summaries("{90}|16turns", keep_last_turns=1),
        "latest",
        memory=True,
        programmatic=True,
        window=4,
        counter="cl100k_base",
    ),
}


def make(case: Case, world: str, opening: int) -> tuple[Any, Simulation]:
    room = ROOM[world] // (1 if case.counter == PLAIN else 2)
    window = opening + int(case.window * room)

    def at(trigger: str) -> str:
        return re.sub(r"\{(\d+)\}", lambda m: str(opening + int(m[1]) * room // 100), trigger)

    names, options = [], {"budget": {"counter": case.counter}}
    thinking, results, summaries = case.thinking, case.results, case.summaries
    if thinking:
        thinking = Thinking(at(thinking.trigger), thinking.keep)
        names.append("clear_thinking")
        options["clear_thinking"] = asdict(thinking)
    if results:
        results = Results(
            **{**asdict(results), "trigger": at(results.trigger), "target": at(results.target)}
        )
        names.append("clear_results")
        given = {k: v for k, v in asdict(results).items() if v != ""}
        given |= {"ratio": float(results.ratio)} if results.ratio else {}
        options["clear_results"] = given
    if summaries:
        summaries = Summaries(at(summaries.trigger), summaries.keep_last_turns)
        names.append("compaction")
        options["compaction"] = {**asdict(summaries), "max_summary": 10**6}
    if case.awareness:
        names.append("awareness")
        options["awareness"] = {"latest_only": case.awareness == "latest"}
    names += ["memory"] * case.memory + ["programmatic"] * case.programmatic
    env = agentgym.make(
        world,
        context="+".join(names) or "none",
        window=window,
        context_options=options,
        **WORLDS[world],
    )
    simulation = Simulation(
        case.counter, window, thinking, results, summaries, case.awareness, case.memory
    )
    return env, simulation


class Driver:
    """An agent that continues to play without ending the episode."""

    def __init__(self, env: Any, case: Case, seed: int) -> None:
        self.env: ToolEnv = tool_env(env)
        self.case = case
        self.rng = random.Random(seed)
        self.final = {tool.name for tool in self.env.callable_tools if tool.final}
        self.past: list[ToolCall] = []

    def calls(self) -> Iterator[ToolCall]:
        planned = [
            call for call in self.env.world.optimal_calls() or () if call.name not in self.final
        ]
        if planned and (not self.past or self.rng.random() < 0.8):
            self.past.append(planned[0])
            yield planned[0]
        else:
            yield self.rng.choice(self.past)
        if self.env.most_calls == 1:
            return
        if self.rng.random() < 0.25:
            yield self.rng.choice(self.past)
        if self.case.memory and self.rng.random() < 0.3:
            text = "note " * self.rng.randrange(30)
            yield ToolCall(
                "memory", {"command": "create", "path": "/memories/a", "file_text": text}
            )
        if self.case.programmatic and self.rng.random() < 0.3:
            yield ToolCall("run_python", {"code": f"print('x' * {self.rng.randrange(200)})"})

    def reply(self) -> str:
        thought = f"<think>{'I wonder. ' * self.rng.randrange(12)}</think>"
        thought *= self.rng.random() < 0.6
        if self.rng.random() < 0.1:
            return f"{thought}No call this time."
        return thought + "".join(render(call, "json") for call in self.calls())

    def summary(self) -> str:
        return "Found so far: " + "all of it. " * self.rng.choice([0, 2, 5, 300])


def visible(chat: Chat) -> list[Line]:
    return [read_line(message) for message in chat.messages]


def compare(case: Case, world: str, seed: int, turns: int = 40) -> dict[str, int]:
    """Compare each view with the simulation, and return the number of edits by each strategy."""
    opening_env, _ = make(case, world, 10**6)
    opening = opening_env.reset(seed=seed)[1]["context"].tokens
    env, simulation = make(case, world, opening)
    driver = Driver(env, case, seed)
    chat, info = env.reset(seed=seed)
    simulation.begin(visible(driver.env.chat))
    for step in range(turns):
        assert visible(chat) == simulation.view(), step
        record = info["context"]
        assert record.tokens == simulation.tokens(simulation.view())
        hidden = [simulation.length(call.result) for call in info["detail"].nested]
        assert record.hidden == sum(hidden)
        assert {k: v for k, v in record.edit_counts.items() if v} == {
            **simulation.edits,
            **({"ContextAwareness": simulation.reports} if simulation.reports else {}),
        }
        known = len(driver.env.chat.messages)
        asked = simulation.asked
        reply = driver.summary() if asked else driver.reply()
        chat, _, terminated, truncated, info = env.step(reply)
        over = terminated or truncated
        if asked:
            simulation.summarize(reply)
        else:
            simulation.play(visible(driver.env.chat)[known:], over=over)
        simulation.report(chat.messages[-1].text)
        if over:
            break
    return simulation.edits


class Custom(ClearToolResults):
    """A context strategy defined in another package."""


class Renamed(EditMessages):
    def edit(self) -> None:
        turns = self.view.turns()
        self.view.apply("drop", {m.id: None for m in turns[0].answers} if turns[1:] else {})


def test_edits_are_counted_for_the_strategy_that_makes_them() -> None:
    checked = episode(
        (Custom, {"trigger": ToolUses(1), "keep": 0}), (Renamed, {"edit": list}), (Trim, {})
    )
    assert checked.info["context"].edit_counts == {"Custom": 0, "Renamed": 0, "Trim": 0}
    edits = []
    for page in range(9):
        checked.play([read(page)])
        edits += [edit.strategy for edit in checked.info["context"].edits]
    counts = checked.info["context"].edit_counts
    assert counts["Custom"] == edits.count("Custom") > 0
    assert counts["Renamed"] == edits.count("drop") > 0 == counts["Trim"]
    checked.env.reset(seed=1)
    assert not any(checked.view.edit_counts.values())


@pytest.mark.family(case=list(CASES), world=list(WORLDS))
def test_every_view_follows_the_specification(case: str, world: str) -> None:
    stack = CASES[case]
    edits = compare(stack, world, seed=1)
    strategies = {
        "ClearThinking": stack.thinking,
        "ClearToolResults": stack.results,
        "Compaction": stack.summaries,
    }
    assert {name for name, options in strategies.items() if options} <= edits.keys()


def random_trigger(rng: random.Random) -> str:
    share, count = rng.randrange(1, 120), rng.randrange(1, 10)
    kinds = [f"{{{share}}}", f"{count}uses", f"{count}turns", f"0.{rng.randrange(3, 99)}", "1"]
    return rng.choice(kinds) + rng.choice(["", "", "", f"|{count + 2}uses"])


def random_case(rng: random.Random) -> Case:
    target = rng.choice(["", "", f"{{{rng.randrange(1, 90)}}}", "2uses"])
    results = Results(
        random_trigger(rng),
        target,
        ratio=rng.choice(["", "0.1", "0.5", "0.7", "1.0"]) if not target else "",
        keep=rng.randrange(6),
        exclude=rng.choice([(), ("memory",), ("get_children",), ("read_document", "run_python")]),
        clear_inputs=rng.random() < 0.4,
        clear_at_least=rng.choice([0, 0, 30, 150]),
    )
    return Case(
        rng.choice([None, Thinking(random_trigger(rng), rng.randrange(1, 5))]),
        rng.choice([None, results, results]),
        rng.choice([None, Summaries(random_trigger(rng), rng.randrange(1, 6))]),
        rng.choice(["", "all", "latest"]),
        memory=rng.random() < 0.4,
        programmatic=rng.random() < 0.2,
        window=rng.choice([3, 4, 50]),
    )


@pytest.mark.rotation(seed=list(range(160)))
@pytest.mark.filterwarnings("ignore:.* cannot act on episodes like this one")
def test_views_of_random_stacks_follow_the_specification(seed: int) -> None:
    rng = random.Random(seed)
    compare(random_case(rng), rng.choice(list(WORLDS)), seed, turns=30)
