from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator, Sequence
from itertools import count
from statistics import fmean
from typing import Any

import pytest

import agentgym
from agentgym import Chat, ToolCall, tool_env
from agentgym.envs.loca import LENGTHS
from agentgym.envs.loca.belief import LIMIT, OfficeBelief, split_fact, words_of
from agentgym.envs.loca.plan import CLAIM
from agentgym.oracles import OraclePolicy, TeamPolicy
from agentgym.oracles.hints import split_hints
from agentgym.oracles.recall import TOOL, read_pages
from agentgym.play.policy import Reply
from agentgym.training.rollout import rollout
from tests.envs.loca.office import TASKS, fresh
from tests.helpers import calls_of

# Tasks whose next step needs all records, such as the sum over all games.
SUMS = {"NhlB2bAnalysis"}
SMALL = 1_000  # maximum length of calls whose arguments the brief state should contain


def play_and_look(name: str, length: int, every: int) -> tuple[list[int], list[float]]:
    """Return the lengths of brief states, and the shares of the needed words that the states contain."""
    world = fresh(name, length, seed=1)
    sizes, shares, known = [], [], frozenset[str]()
    k = 0
    while (steps := world.progress.pending()) and steps != [CLAIM]:
        step = steps[0]
        arguments = json.dumps(step.call.arguments, ensure_ascii=False)
        k += 1
        if k % every == 0:
            brief = world.brief_state()
            sizes.append(len(brief))
            needed = words_of(arguments) & known
            if needed and len(arguments) <= SMALL:
                shares.append(len(needed & words_of(brief)) / len(needed))
        world.read_result(step.call, world.office.call(step.call.name, step.call.arguments))
        known |= words_of(json.dumps(world.progress.facts[step.label], ensure_ascii=False))
    return sizes, shares


def check_brevity(name: str, length: str, every: int) -> None:
    sizes, shares = play_and_look(name, LENGTHS[length], every)
    assert max(sizes) <= LIMIT
    if name not in SUMS:
        assert fmean(shares) >= 0.95
        assert min(shares) >= 0.6


@pytest.mark.parametrize("name", TASKS)
def test_a_belief_is_brief_and_has_what_the_next_step_needs(name: str) -> None:
    check_brevity(name, "64k", every=5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", TASKS)
def test_a_belief_is_brief_at_every_length(name: str, length: str) -> None:
    check_brevity(name, length, every=7)


def test_a_short_belief_is_whole_and_a_long_one_says_that_it_is_not() -> None:
    world = fresh("ApplyPhDEmail", LENGTHS["64k"], seed=0)
    assert world.brief_state() == world.state()
    while len(world.state()) <= LIMIT:
        call = world.optimal_calls()[0]
        world.read_result(call, world.office.call(call.name, call.arguments))
    brief = world.brief_state()
    assert brief.startswith("The known facts that concern the next steps:\n- ")
    assert brief.splitlines()[-1] == world.state().splitlines()[-1]
    with pytest.raises(ValueError, match="must come from an office task"):
        fresh("ApplyPhDEmail").read_state(brief)
    assert pickle.loads(pickle.dumps(world)).brief_state() == brief
    other = fresh("ApplyPhDEmail")
    other.read_state(world.state())
    assert other.state() == world.state()
    assert other.brief_state() == brief


class Watching(OraclePolicy):
    def __init__(self, env_id: str) -> None:
        super().__init__(env_id)
        self.hints: list[str] = []
        self.asked = 0

    def write(self, parsed: Any) -> str:
        hint = parsed.hints["state"]
        if "\n# Page " in hint:
            self.asked += 1
        else:
            self.hints.append(hint)
        return super().write(parsed)


@pytest.mark.rotation(name=TASKS, oracles=["S", "SP", "SH", "SPH"])
def test_play_with_the_belief_is_optimal(name: str, oracles: str) -> None:
    env = agentgym.make(name, oracles=oracles, length=LENGTHS["128k"])
    policy = Watching(name)
    trajectory = rollout(policy, env, seed=3)
    world = tool_env(env).world
    assert trajectory.reward == 1.0
    assert not world.progress.off_plan_calls
    assert world.progress.pending() == []
    assert world.turn == len(world.progress.completed()), "a turn for each step of the plan"
    assert max(map(len, policy.hints)) <= LIMIT
    long = any(read_pages(hint)[1] for hint in policy.hints)
    assert bool(policy.asked) == long == ("H" in oracles and world.state_chars() > LIMIT)


class WatchingTeam(TeamPolicy):
    def __init__(self, env_id: str) -> None:
        super().__init__(env_id, patience=1_000)
        self.longest = self.asked = 0

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        for chat in chats:
            hint = split_hints(chat.messages[-1].text)[1].get("state", "")
            if "\n# Page " not in hint:
                self.longest = max(self.longest, len(hint))
        replies = super().__call__(chats)
        self.asked += sum(f'"{TOOL}"' in reply.text for reply in replies)
        return replies


def check_team(name: str, length: str, oracles: str, kind: str) -> None:
    options: dict[str, Any] = {"oracles": oracles, "length": LENGTHS[length]}
    env: Any = agentgym.make(f"{name}-{kind}", max_message=131_072, **options)
    policy = WatchingTeam(f"{name}-{kind}")
    trajectory = rollout(policy, env, seed=3)
    assert trajectory.reward == 1.0
    world = next(iter(env.unwrapped.game.team.worlds.values()))
    assert world.turn == len(world.progress.completed()), "a turn for each step of the plan"
    assert 0 < policy.longest <= LIMIT
    assert bool(policy.asked) == ("H" in oracles and world.state_chars() > LIMIT)


@pytest.mark.parametrize("oracles", ["S", "SPH"])
@pytest.mark.parametrize("kind", ["team", "manager"])
def test_a_team_is_shown_a_belief_as_brief(oracles: str, kind: str) -> None:
    check_team("AcademicWarning", "128k", oracles, kind)


@pytest.mark.rotation(name=TASKS)
def test_a_team_plays_with_a_brief_belief(name: str) -> None:
    check_team(name, "64k", "SPH", "team")


def play_beside(world: Any, other: Any) -> Iterator[int]:
    for k in count():
        steps = world.progress.pending()
        if steps in ([], [CLAIM]):
            return
        yield k
        call = steps[0].call
        result = world.office.call(call.name, call.arguments)
        for each in (world, other):
            each.read_result(call, result)


@pytest.mark.rotation(name=TASKS, length=["8k", "64k", "256k"])
def test_a_belief_is_of_what_was_shown(name: str, length: str) -> None:
    world = fresh(name, LENGTHS[length], seed=2)
    reader = type(world).read_task(world.task())
    step = 1 if length == "8k" else 7
    for k in play_beside(world, reader):
        if k % step:
            continue
        if k == 10 * step:  # pickling drops the word index
            world = pickle.loads(pickle.dumps(world))
            break
        assert world.brief_state() == reader.brief_state()
        assert world.state_chars() == len(world.state()) == reader.state_chars()
    restored = type(world).read_task(world.task())
    restored.read_state(world.state())
    assert world.brief_state() == reader.brief_state() == restored.brief_state()


@pytest.mark.rotation
def test_the_work_for_a_belief_is_that_for_its_text() -> None:
    def cost(size: int) -> int:
        belief = OfficeBelief()
        for page in range(size // 20):
            belief.learn(
                f"Read page {page}.", [{"id": 20 * page + k, "in": "x"} for k in range(20)]
            )
            belief.change(f"Write {page}.")
        needed = words_of(f"id {size // 2} in {size // 3}")
        return calls_of(belief.brief, needed, LIMIT, [])

    assert cost(32_000) <= 1.2 * cost(4_000)


def test_a_fact_is_split_into_records() -> None:
    assert split_fact(None) == split_fact([]) == split_fact({}) == split_fact("") == []
    (small,) = split_fact({"id": 5, "name": "Ada"})
    assert small == '{"id": 5, "name": "Ada"}'
    assert words_of(small) == {"id", "5", "name", "ada"}
    assert split_fact(0) == ["0"]
    roster = {"S1": ["Ada", 1.5], "S2": ["Bob " * 80, 2], "rows": [["a", "b"] * 100] * 2}
    texts = split_fact(roster)
    assert texts[0] == 'S1: ["Ada", 1.5]'
    assert texts[1].startswith('S2: ["Bob Bob')
    assert texts[2:] == [json.dumps(row) for row in roster["rows"]]
    belief = OfficeBelief()
    belief.learn("Read a.", "x" * 9_000)
    (line,) = belief.brief(frozenset(), LIMIT, [])
    assert len(line) < 1_600


def test_what_is_rare_and_needed_comes_first() -> None:
    belief = OfficeBelief()
    belief.learn("Read a.", [{"id": k, "year": 2025, "note": "x" * 90} for k in range(50)])
    belief.learn("Read b.", {"id": 1, "year": 2025})
    belief.learn("Read c.", None)
    belief.change("One.")
    belief.change("Two.")
    calls = [ToolCall("send_email", {"to": "a@b.c"})] * 7
    lines = belief.brief(words_of("id 31, year 2025"), 900, calls)
    assert sum(len(line) + 1 for line in lines) <= 900
    assert lines[0] == "- done: 2 changes; the newest: One.; Two."
    assert lines[1:6] == ['- also done: send_email {"to": "a@b.c"}'] * 5
    assert lines[6:8] == [
        "- also done: 2 more such calls, before these",
        "- reads without a result: 1",
    ]
    assert '"id": 31' in lines[8]
    assert lines[-1].startswith("- Read b. =>"), "one read that is shown in part says so itself"
    for page in range(1, 4):
        belief.learn(f"Read page {page}.", [{"id": 100 * page + k} for k in range(90)])
    *_, rest = belief.brief(frozenset(), 900, [])
    assert re.fullmatch("- in part: [0-9]+ of 270 records of 3 reads; .*: Read page 3.", rest)
