from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

import agentgym
from agentgym import Content, ToolCall, ToolEnv, ToolError, World, clone, render, tool, tool_env
from agentgym.sandboxes import SANDBOXES, make_sandbox
from agentgym.text.tools import Toolset
from agentgym.world.step_info import NestedCall
from agentgym.wrappers.programmatic import ProgrammaticTools


@dataclass(frozen=True)
class VaultConfig:
    goal: int = 3
    fail: bool = False
    awkward: bool = False


class Awkward:
    @tool(name="look-up")
    def look_up(self) -> str:
        """Look something up."""
        return "found"


class Vault(World[VaultConfig]):
    """World that counts, looks things up, and ends in two ways."""

    Config = VaultConfig

    def generate(self) -> None:
        self.count = 0
        self.code = str(self.rng.integers(1_000, 10_000))

    def rules(self) -> str:
        return "Count."

    def task(self) -> str:
        return "Count to the goal."

    def toolsets(self) -> Sequence[object]:
        return (self, Awkward()) if self.config.awkward else (self,)

    @tool
    def add(self, number: int, times: int = 1) -> Content:
        """Add a number.

        Args:
            number: From 1 to 3.
            times: How many times.
        """
        if not 1 <= number <= 3:
            raise ToolError(f"number must be from 1 to 3, got {number}")
        self.count += number * times
        return Content(f"count is {self.count}")

    @tool
    def peek(self, kind: Literal["count", "code"], tags: list[str] | None = None) -> dict[str, Any]:
        """Look at something.

        Args:
            kind: What to look at.
            tags: Words to repeat.
        """
        if self.config.fail:
            raise ValueError("a bug in the world")
        return {kind: getattr(self, kind), "tags": tags}

    @tool
    def leave(self) -> str:
        """Leave for good."""
        self.done = True
        return "gone"

    @tool(final=True)
    def stop(self) -> str:
        """Stop counting."""
        return "stopped"

    def score(self) -> float:
        return float(self.count == self.config.goal)


class Note(Toolset):
    """A toolset mounted by a wrapper."""

    @tool
    def note(self, text: str) -> str:
        """Keep a note."""
        return f"kept {text}"


@pytest.fixture(params=SANDBOXES, scope="module")
def sandbox(request: pytest.FixtureRequest) -> str:
    try:
        make_sandbox(request.param)
    except (ImportError, RuntimeError) as error:
        pytest.skip(str(error))
    return str(request.param)


def started(
    sandbox: str = "monty", world: dict[str, Any] | None = None, **options: Any
) -> ProgrammaticTools:
    inner = ToolEnv(Vault, **(world or {}))
    inner.mount(Note())
    env = ProgrammaticTools(inner, sandbox, **options)
    env.reset(seed=1)
    return env


def python(code: str) -> str:
    return render(ToolCall("run_python", {"code": code}))


def say(env: gymnasium.Env[Any, Any], code: str) -> tuple[str, dict[str, Any]]:
    chat, *_, info = env.step(python(code))
    return chat.messages[-1].text, info


def count(env: gymnasium.Env[Any, Any]) -> int:
    world: Any = tool_env(env).world
    return int(world.count)


def test_code_acts_once_and_shows_what_it_prints(sandbox: str) -> None:
    env = started(sandbox)
    text, info = say(env, "a = add(2)\nb = add(1, times=3)\nprint(b)")
    assert text == "count is 5\n"
    assert count(env) == 5
    assert (info["valid"], info["turn"], info["detail"].calls) == (True, 1, 1)
    assert info["detail"].nested == (
        NestedCall("add", {"number": 2}, "count is 2"),
        NestedCall("add", {"number": 1, "times": 3}, "count is 5"),
    )
    everything = "".join(message.text + message.raw for message in tool_env(env).chat.messages[3:])
    assert "count is 2" not in everything, "a result that was not printed is not in the chat"
    text, info = say(env, "add(1)")
    assert text == "(the code printed nothing)"
    assert info["detail"].nested == (NestedCall("add", {"number": 1}, "count is 6"),)
    assert env.step(render(ToolCall("add", {"number": 1})))[-1]["detail"].nested == ()
    assert count(env) == 7


def test_errors_of_tools_are_exceptions_in_code(sandbox: str) -> None:
    env = started(sandbox)
    text, info = say(
        env, "try:\n    add(9)\nexcept ToolError as error:\n    print('no:', error)\nprint(add(1))"
    )
    assert text == "no: number must be from 1 to 3, got 9\ncount is 1\n"
    assert info["valid"]
    assert info["detail"].nested[0].result == "error: number must be from 1 to 3, got 9"
    text, info = say(env, "print(add(1))\nadd(8)\nadd(1)")
    first, second, at = text.splitlines()
    assert first == "count is 2"
    assert second.startswith("exception: ")
    assert second.endswith("Error: number must be from 1 to 3, got 8")
    assert at == "  at line 2: add(8)"
    assert (info["valid"], count(env)) == (True, 2), "what ran has run"
    for call, why in [
        ("add('1')", "valid integer"),
        ("add()", "argument 'number' is missing"),
        (
            "add(1, 2, 3)",
            "add takes 2 arguments, got 3: add(number: integer, times: integer = 1)",
        ),
        ("add(1, number=2)", "add received the argument 'number' twice"),
        ("add(1, unknown=2)", "no argument is called 'unknown'"),
        ("add(1, env=2)", "no argument is called 'env'"),
        ("add(schema=2)", "arguments: number, times"),
        ("add(**{'self': 2, 'name': 3})", "arguments: number, times"),
        ("add(*range(400))", "add takes 2 arguments, got 400"),
        ("add('x' * 300_000)", "at most 262144 characters"),
        ("stop(schema=1)", "it ends the episode"),
    ]:
        assert why in say(env, call)[0]
    assert count(env) == 2


def test_what_does_not_parse_is_an_invalid_step(sandbox: str) -> None:
    env = started(sandbox)
    text, info = say(env, "add(1)\nprint(")
    assert text.startswith("error: the code was not run: SyntaxError")
    assert (info["valid"], info["detail"].errors, info["detail"].nested, count(env)) == (
        False,
        1,
        (),
        0,
    )
    text, info = say(env, "#" * 100_001)
    assert (
        text
        == "error: the code was not run: the code is 100001 characters long, at most 100000 are allowed"
    )
    assert not info["valid"]


def test_what_cannot_be_called_from_code(sandbox: str) -> None:
    env = started(sandbox, direct_only=["leave"])
    for call, why in [
        ("stop()", "stop cannot be called from code: it ends the episode; call it directly"),
        ("leave()", "leave cannot be called from code: it is not a function; call it directly"),
        ("note('x')", "note cannot be called from code"),
        ("run_python('print(1)')", "run_python cannot be called from code"),
        ("score()", "name 'score' is not defined"),
    ]:
        text, info = say(env, call)
        assert why in text
        assert (info["valid"], info["detail"].nested) == (True, ())
    assert not tool_env(env).world.done
    assert say(started(sandbox, also=["note"]), "print(note('x'))")[0] == "kept x\n"


def test_tools_for_code_only(sandbox: str) -> None:
    env = started(sandbox, code_only=["peek"])
    chat = tool_env(env).chat
    assert [each.name for each in chat.tools] == ["add", "leave", "stop", "note", "run_python"]
    notes = chat.messages[0].text.split("# Tools in code")[1]
    assert "- add(number: integer, times: integer = 1)\n- peek(kind:" in notes
    assert (
        '- peek(kind: "count" or "code", tags: array of string or null (optional))\n  Only code can call it. Look at'
        in notes
    )
    assert "  kind: What to look at." in notes
    assert "stop(" not in notes
    assert "note(" not in notes
    chat, *_, info = env.step(render(ToolCall("peek", {"kind": "count"})))
    assert chat.messages[-1].text.startswith("error: ")
    assert not info["valid"]
    assert say(env, "print(peek('count'))")[0] == '{"count": 0, "tags": null}\n'


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"code_only": ["stop"]}, "code_only names 'stop', which ends the episode"),
        ({"also": ["stop"]}, "also names 'stop', which ends the episode"),
        (
            {"code_only": ["fly"]},
            "code_only names 'fly', which is not a tool; tools: add, peek, leave, stop, note",
        ),
        ({"direct_only": ["run_python"]}, "direct_only names 'run_python', which is not a tool"),
        (
            {"code_only": ["add"], "direct_only": ["add"]},
            "code_only and direct_only must not both name 'add'",
        ),
        ({"seconds": -1}, "seconds must be a number in"),
        ({"calls": 1.5}, "calls must be an integer in"),
        ({"sandbox": "docker"}, "sandbox must be one of monty, bubblewrap, got 'docker'"),
        (
            {"world": {"awkward": True}},
            "the tool 'look-up' cannot be a function with this name; add the tool to direct_only",
        ),
    ],
)
def test_options_are_checked(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        started(**options)


def test_it_is_mounted_once_and_in_order() -> None:
    env = started(world={"awkward": True}, direct_only=["look-up"])
    with pytest.raises(ValueError, match="a tool named run_python already exists"):
        ProgrammaticTools(env, direct_only=["look-up"])
    with pytest.raises(ValueError, match=r"ProgrammaticTools \(tools\) must go inside"):
        ProgrammaticTools(agentgym.wrappers.Trim(ToolEnv(Vault)))  # type: ignore[attr-defined]


def test_limits_are_the_options(sandbox: str) -> None:
    env = started(sandbox, seconds=0.7, memory_mb=64, output_chars=100, calls=5)
    assert say(env, "for _ in range(9): print(add(1))")[0].splitlines()[-2:] == [
        "count is 5",
        "calls: the code made more than 5 calls and was stopped",
    ]
    assert count(env) == 5
    assert (
        say(env, "add(1)\nwhile True: pass")[0] == "timeout: the code was stopped after 0.7 seconds"
    )
    assert say(env, "print('a' * 99, 'b')")[0].endswith(
        " \noutput: the code printed more than 100 characters and was stopped"
    )
    text, info = say(env, "add(1)\nx = [0] * 10**10")
    assert text.startswith("memory: MemoryError")
    assert (info["valid"], count(env)) == (True, 7)
    assert (
        "0.7 seconds and 64 MB, make 5 calls and print 100 characters"
        in tool_env(env).chat.messages[0].text
    )


def test_the_world_may_end_during_code(sandbox: str) -> None:
    env = started(sandbox)
    code = "add(3)\nprint(leave())\ntry:\n    add(1)\nexcept ToolError as error:\n    print(error)"
    chat, reward, terminated, truncated, info = env.step(python(code))
    assert chat.messages[-1].text == "gone\nthe episode has ended; this call was not run\n"
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert [nested.name for nested in info["detail"].nested] == ["add", "leave", "add"]
    env.reset(seed=2)
    assert say(env, "print(add(1))")[0] == "count is 1\n"


def test_faults_of_the_world_are_not_hidden(sandbox: str) -> None:
    code = python("try:\n    peek('count')\nexcept BaseException:\n    pass")
    with pytest.raises(ValueError, match="a bug in the world"):
        started(sandbox, world={"fail": True, "on_fault": "raise"}).step(code)
    (fault,) = started(sandbox, world={"fail": True}).step(code)[4]["detail"].faults
    assert (fault.tool, fault.message) == ("peek", "a bug in the world")


def test_clones_and_snapshots_are_independent(sandbox: str) -> None:
    env = started(sandbox)
    say(env, "add(1)")
    other = clone(env)
    thawed = pickle.loads(pickle.dumps(env))
    inner = tool_env(env)
    moment = inner.snapshot()
    for each, number in [(other, 2), (thawed, 3), (env, 1)]:
        assert say(each, f"print(add({number}))")[0] == f"count is {1 + number}\n"
        assert len(tool_env(each).chat.messages) == 6
    assert [count(each) for each in (env, other, thawed)] == [2, 3, 4]
    inner.restore(moment)
    assert say(env, "print(add(3))")[0] == "count is 4\n"


def test_unseeded_randomness_follows_from_the_episode_and_the_turn(sandbox: str) -> None:
    code = "import random\nprint(random.random(), random.sample(range(1000), 3))"

    def episode(seed: int) -> list[str]:
        env = started(sandbox)
        env.reset(seed=seed)
        moment = tool_env(env).snapshot()
        first, copied = say(env, code)[0], clone(env)
        second = say(env, code)[0]
        assert say(copied, code)[0] == second
        tool_env(env).restore(moment)
        assert say(env, code)[0] == first
        return [first, second]

    drawn = [*episode(7), *episode(8)]
    assert episode(7) == drawn[:2]
    assert len(set(drawn)) == 4


def test_specs_are_json(sandbox: str) -> None:
    wrapper = ProgrammaticTools.wrapper_spec(sandbox=sandbox, direct_only=["pop"], calls=7)
    spec = agentgym.spec("ListWorld", wrappers=[wrapper])
    env = gymnasium.make(EnvSpec.from_json(spec.to_json()))
    chat, _ = env.reset(seed=0)
    assert "make 7 calls" in chat.messages[0].text
    assert "pop cannot be called from code" in say(env, "pop()")[0]
    assert env.spec is not None
    assert env.spec.additional_wrappers[0].kwargs["direct_only"] == ["pop"]
