from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import pytest
from gymnasium.error import ResetNeeded

import agentgym
from agentgym import Content, Image, ToolCall, ToolEnv, ToolError, World, render, tool
from agentgym.play.env import MAX_CALLS, MAX_ERROR_CHARS
from agentgym.world.world import load_world

PICTURE = Image(b"\x89PNG", "a picture")


class Clock:
    @tool
    def now(self) -> dict[str, int]:
        """Tell the time."""
        return {"hour": 12}


class Note:
    def __init__(self) -> None:
        self.notes: list[str] = []

    @tool
    def write(self, text: str) -> str:
        """Keep a note.

        Args:
            text: What to keep.
        """
        self.notes.append(text)
        return f"{len(self.notes)} notes"


@dataclass(frozen=True)
class CounterConfig:
    goal: int = 3
    turns: int | None = 6
    clock: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.goal <= 9:
            raise ValueError(f"goal must be in [1, 9], got {self.goal}")


class CounterWorld(World[CounterConfig]):
    """Count to a goal and stop."""

    Config = CounterConfig

    def generate(self) -> None:
        self.count = int(self.rng.integers(2))
        self.max_turns = self.config.turns

    def rules(self) -> str:
        return "Count."

    def task(self) -> str | Content:
        return Content(f"Count from {self.count} to {self.config.goal}.", (PICTURE,))

    def toolsets(self) -> Sequence[object]:
        return (self, Clock()) if self.config.clock else (self,)

    @tool
    def add(self, number: int) -> Content:
        """Add a number.

        Args:
            number: From 1 to 3.
        """
        if not 1 <= number <= 3:
            raise ToolError(f"number must be from 1 to 3, got {number}" + "!" * 5_000)
        self.count += number
        return Content(f"count is {self.count}", (PICTURE,))

    @tool(final=True)
    def stop(self) -> str:
        """Stop counting."""
        return "stopped"

    def final_answer(self, text: str) -> ToolCall | None:
        return ToolCall("stop", {}) if "#### stop" in text else None

    def score(self) -> float:
        return (
            1.0 if self.count == self.config.goal else 0.5 if self.count > self.config.goal else 0.0
        )


def add(number: Any) -> str:
    return render(ToolCall("add", {"number": number}))


STOP = render(ToolCall("stop", {}))


def started(**options: Any) -> ToolEnv:
    env = ToolEnv(CounterWorld, **options)
    env.reset(seed=1)
    world: Any = env.world
    world.count = 0
    return env


def test_an_episode() -> None:
    env = ToolEnv(CounterWorld)
    chat, info = env.reset(seed=1)
    assert [(m.role, m.id) for m in chat.messages] == [("system", "0:0"), ("user", "0:1")]
    assert chat.messages[0].text.startswith("Count.\n\n# Tools\n")
    assert chat.messages[1].images == (PICTURE,)
    assert [tool.name for tool in chat.tools] == ["add", "stop"]
    assert (info["turn"], info["valid"], info["success"]) == (0, True, False)
    before = chat
    env = started()
    chat, reward, terminated, truncated, info = env.step("Let me see. " + add(2) + add(1))
    assert [(m.role, m.id, m.call_id) for m in chat.messages[2:]] == [
        ("assistant", "1:0", ""),
        ("tool", "1:1", "call_1_0"),
        ("tool", "1:2", "call_1_1"),
    ]
    assert [m.text for m in chat.messages[2:]] == ["Let me see.", "count is 2", "count is 3"]
    assert chat.messages[3].images == (PICTURE,)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert (info["turn"], info["valid"], info["detail"].calls) == (1, True, 2)
    assert len(before.messages) == 2, "an observation never changes"
    chat, reward, terminated, truncated, info = env.step(STOP)
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert (info["detail"].ended, info["detail"].score) == ("world", 1.0)


def test_misuse_by_the_caller_raises_and_harms_nothing() -> None:
    env = ToolEnv(CounterWorld)
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(add(1))
    with pytest.raises(ResetNeeded, match="call reset"):
        _ = env.world
    with pytest.raises(ResetNeeded, match="call reset"):
        env.call("add", {"number": 1})
    env = started()
    for action in (None, b"x", ["x"], 3):
        with pytest.raises(TypeError, match="an action must be the policy's reply"):
            env.step(action)  # type: ignore[arg-type]
    assert env.world.turn == 0
    env.step(STOP)
    for _ in range(2):
        with pytest.raises(ResetNeeded, match="no running episode"):
            env.step(STOP)
    with pytest.raises(ResetNeeded, match="no running episode"):
        env.call("add", {"number": 1})
    env.reset()
    env.step(add(1))
    env.close()


def test_the_last_allowed_turn_may_succeed() -> None:
    env = started(turns=2, goal=1)
    env.step(add(1))
    _, reward, terminated, truncated, info = env.step(STOP)
    assert (reward, terminated, truncated, info["detail"].ended) == (1.0, True, False, "world")
    env = started(turns=2, goal=2)
    env.step(add(1))
    _, reward, terminated, truncated, info = env.step(add(1))
    assert (terminated, truncated, info["detail"].ended) == (False, True, "max_turns")
    assert reward == 1.0, "the score is read at any end"


def test_each_call_of_a_reply_gets_one_result_in_order() -> None:
    chat, *_, info = started().step(add(1) + add(7) + render(ToolCall("fly", {})) + add(2))
    results = [m.text.rstrip("!") for m in chat.messages[3:]]
    assert results[0] == "count is 1"
    assert results[1].startswith("error: number must be from 1 to 3, got 7")
    assert results[2] == 'error: there is no tool "fly"; tools: add, stop'
    assert results[3] == "count is 3"
    error, _, _ = results[1].partition("\n[error cut: ")
    assert len(error) == MAX_ERROR_CHARS + len("error: ")
    assert (info["valid"], info["detail"].calls, info["detail"].errors) == (False, 4, 2)


def test_calls_after_the_end_and_beyond_the_cap_are_not_run() -> None:
    env = started()
    chat, reward, terminated, *_ = env.step(add(3) + STOP + add(1))
    assert terminated
    assert reward == 1.0
    assert "episode has ended" in chat.messages[-1].text
    env = started(turns=None)
    chat, *_ = env.step(add(1) * (MAX_CALLS + 5))
    world: Any = env.world
    assert world.count == MAX_CALLS
    assert len(chat.messages) == 3 + MAX_CALLS + 5
    assert all("at most 128 calls" in m.text for m in chat.messages[-5:])


def test_a_world_may_read_an_answer_from_prose() -> None:
    env = started(goal=1)
    env.step(add(1))
    chat, reward, terminated, *_ = env.step("I am there.\n#### stop")
    assert (reward, terminated) == (1.0, True)
    assert chat.messages[-2].calls == (ToolCall("stop", {}),)
    assert chat.messages[-1].call_id == chat.messages[-2].calls[0].id


def test_toolsets_of_a_world_and_mounted_ones() -> None:
    assert [t.name for t in started(clock=True).tools] == ["add", "stop", "now"]
    env = ToolEnv(CounterWorld, clock=True)
    note = Note()
    env.mount(note)
    with pytest.raises(ValueError, match="a tool named write already exists; rename it in Note"):
        env.mount(Note())
    chat, _ = env.reset(seed=0)
    assert [t.name for t in chat.tools] == ["add", "stop", "now", "write"]
    assert "write" in chat.messages[0].text
    assert "write" in repr(env.action_space)
    chat, *_ = env.step(render(ToolCall("write", {"text": "x"})) + render(ToolCall("now", {})))
    assert [m.text for m in chat.messages[-2:]] == ["1 notes", '{"hour": 12}']
    assert note.notes == ["x"]


def test_tools_can_be_called_without_a_chat() -> None:
    env = started()
    assert env.call("add", {"number": 2}) == Content("count is 2", (PICTURE,))
    assert env.call("stop", {}) == Content("stopped")
    env = started()
    for name, arguments, why in [
        ("add", {"number": "2"}, "valid integer"),
        ("fly", {}, "no tool"),
        ("add", {"number": float("nan")}, "JSON"),
        ("add", {"number": object()}, "JSON"),
        ("add", {"number": 9}, "from 1 to 3"),
    ]:
        with pytest.raises(ToolError, match=why):
            env.call(name, arguments)
    world: Any = env.world
    assert (world.count, world.turn) == (0, 0)


def test_snapshots_can_be_restored_any_number_of_times() -> None:
    env = started()
    env.step(add(1))
    moment = env.snapshot()
    first = [env.step(add(1)), env.step(STOP), env.reset()]
    for snapshot in (moment, pickle.loads(pickle.dumps(moment)), moment):
        env.restore(snapshot)
        assert not env.over
        assert [env.step(add(1)), env.step(STOP), env.reset()] == first
    other = ToolEnv(CounterWorld)
    other.restore(moment)
    assert [other.step(add(1)), other.step(STOP), other.reset()] == first


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"gaol": 3},
            "CounterWorld has no option 'gaol'; did you mean 'goal'\\? options: goal, turns, clock",
        ),
        ({"goal": 0}, r"goal must be in \[1, 9\], got 0"),
        ({"dialect": "xml"}, "dialect must be one of auto, json, python, got 'xml'"),
        ({"parallel_calls": 1}, "parallel_calls must be True or False, got 1"),
        (
            {"max_failed_rounds": 0},
            r"max_failed_rounds must be an integer in \[1, 1000000\], got 0",
        ),
        ({"render_mode": "human"}, "render_mode must be one of ansi, rgb_array, got 'human'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ToolEnv(CounterWorld, **options)


def test_worlds_can_be_named_by_their_path() -> None:
    assert load_world("agentgym.envs.lumina.list_world:ListWorld").__name__ == "ListWorld"
    for name in ("no.module:World", "agentgym:NoWorld", "agentgym", ""):
        with pytest.raises(ValueError, match="cannot be imported"):
            load_world(name)
    with pytest.raises(ValueError, match=r"must be a subclass of agentgym\.World"):
        load_world("agentgym:Chat")
    for other in (gymnasium.make("CartPole-v1"), agentgym.make("ListWorld-team")):
        name = type(other.unwrapped).__name__
        with pytest.raises(TypeError, match=f"with one agent, got {name}; .* play teams"):
            agentgym.tool_env(other)


def test_ids_can_be_short() -> None:
    for name in ("ListWorld", "agentgym/ListWorld"):
        assert agentgym.resolve(name) == "agentgym/ListWorld-v0"
    assert agentgym.resolve("ListWorld-easy") == "agentgym/ListWorld-easy-v0"
    why = (
        r"there is no world 'Listworld'; did you mean 'ListWorld'\? worlds: .*GridWorld, ListWorld"
    )
    with pytest.raises(ValueError, match=why):
        agentgym.make("Listworld")
