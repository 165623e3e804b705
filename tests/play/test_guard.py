from __future__ import annotations

import errno
import json
import math
import pickle
from dataclasses import dataclass
from typing import Any

import gymnasium
import pytest

from agentgym import Config, ToolEnv, World, clone
from agentgym.play.guard import FAULT
from agentgym.play.policy import Reply
from agentgym.text.messages import ToolCall
from agentgym.text.parsing import render
from agentgym.text.tools import HostLimitError, Toolset, tool
from agentgym.training.evaluation.scoring import success_rate, without_failures
from agentgym.training.rollout import Trajectory, TrajectoryLog, collect
from agentgym.world.step_info import StepInfo
from tests.helpers import public_state


class Panic(BaseException):
    """An exception that does not inherit from `Exception`, such as a Rust library's panic."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def cannot_start(why: OSError) -> None:
    try:
        raise_(why)
    except OSError as error:
        raise RuntimeError("programs cannot run on this host") from error


def recurse() -> int:
    return 1 + recurse()


# Tool failures, by the argument that selects them.
RAISES: dict[str, Any] = {
    "zero": lambda: 1 // 0,
    "recursion": recurse,
    "memory": lambda: bytearray(2**62),
    "panic": lambda: raise_(Panic("a panic")),
    "overflow": lambda: math.exp(10**6),
    "disk": lambda: raise_(OSError(errno.ENOSPC, "no space")),
    "long path": lambda: raise_(OSError(errno.ENAMETOOLONG, "a path of the policy")),
    "long command": lambda: cannot_start(OSError(errno.E2BIG, "a command of the policy")),
    "process": lambda: cannot_start(FileNotFoundError("bwrap")),
    "key": lambda: {}["secret"],
    "stop": lambda: next(iter(())),
    "assertion": lambda: raise_(AssertionError("secret")),
    "unspeakable": lambda: raise_(Unspeakable()),
    "group": lambda: raise_(ExceptionGroup("secret", [ValueError("secret")])),
}


def raise_(error: BaseException) -> None:
    raise error


@dataclass(frozen=True)
class DeskConfig(Config):
    """No options."""


class Desk(World[DeskConfig]):
    """A world whose tools change its state and may then fail."""

    Config = DeskConfig

    def generate(self) -> None:
        self.drawn = [int(number) for number in self.rng.integers(100, size=5)]
        self.notes: list[dict[str, Any]] = []
        self.scored: Any = 0.5
        self.max_turns = 50

    def rules(self) -> str:
        return "Note things."

    def task(self) -> str:
        return f"Note {self.drawn}."

    def score(self) -> float:
        if callable(self.scored):
            self.scored()
        return self.scored  # type: ignore[no-any-return]

    def final_answer(self, text: str) -> ToolCall | None:
        if text == "answer":
            raise ValueError("secret")
        return None

    @tool
    def note(self, text: str) -> str:
        """Note a text.

        Args:
            text: The text.
        """
        self.notes.append({"text": text, "at": self.turn, "draw": float(self.rng.random())})
        self.drawn[0] += 1
        return f"{len(self.notes)} notes"

    @tool
    def fail(self, how: str) -> str:
        """Change everything, then fail.

        Args:
            how: The way.
        """
        self.notes.append({"half": "done"})
        self.drawn.clear()
        self.rng.random()
        self.done = True
        RAISES[how]()
        return "this is not reached"

    @tool
    def answer_with(self, what: str) -> Any:
        """Change the state, then return a value that a chat cannot contain.

        Args:
            what: The kind.
        """
        self.notes.append({"half": "done"})
        return {"set": {1, 2}, "bytes": b"x", "object": object()}[what]

    @tool
    def be_slow(self) -> str:
        """Fail because a limit of the host is exceeded."""
        raise HostLimitError("limit exceeded: the process was killed")

    @tool(final=True)
    def finish(self, score: str) -> str:
        """End with a score.

        Args:
            score: The score.
        """
        self.scored = RAISES.get(score) or float(score)
        return "ended"


class Box(Toolset):
    """A toolset whose state cannot be restored."""

    def __init__(self) -> None:
        self.items: list[str] = []

    episode_state = ("items",)

    @tool
    def spill(self) -> str:
        """Fail in the middle."""
        self.items.append("half")
        raise LookupError("spilt")


def write(name: str, **arguments: Any) -> str:
    return render(ToolCall(name, arguments), "json")


def begun(**options: Any) -> ToolEnv:
    env = ToolEnv(Desk, **options)
    env.reset(seed=3)
    for k in range(3):
        env.step(write("note", text=f"note {k}"))
    return env


def step(env: Any, text: str) -> tuple[str, float, bool, StepInfo]:
    chat, reward, terminated, truncated, info = env.step(text)
    return chat.messages[-1].text, reward, terminated or truncated, info["detail"]


@pytest.mark.parametrize("how", RAISES)
def test_a_tool_that_fails_is_undone_and_reported(how: str) -> None:
    env, twin = begun(), begun()
    for each in (env, twin):
        each.step("no call")  # brings both envs to the same turn
    before = pickle.dumps(public_state(env.world))
    text, reward, over, detail = step(env, write("fail", how=how))
    assert (text, reward, over, detail.errors) == (f"error: {FAULT}", 0.0, False, 1)
    assert pickle.dumps(public_state(env.world)) == before
    (fault,) = detail.faults
    assert fault.tool == "fail"
    assert "in fail" in fault.traceback or how == "recursion"
    assert bool(detail.invalid) == (how in ("memory", "disk", "process")), "another host has more"
    assert "secret" not in text
    twin.step("no call")
    for each in (env, twin):
        each.step(write("note", text="on"))
    assert pickle.dumps(public_state(env.world)) == pickle.dumps(public_state(twin.world))
    json.dumps(fault.message + fault.traceback)


@pytest.mark.parametrize("what", ["set", "bytes", "object"])
def test_a_result_that_no_chat_can_hold_is_a_fault(what: str) -> None:
    env = begun()
    before = pickle.dumps(public_state(env.world))
    text, _, over, detail = step(env, write("answer_with", what=what))
    assert (text, over, [fault.exception for fault in detail.faults]) == (
        f"error: {FAULT}",
        False,
        ["TypeError"],
    )
    assert pickle.dumps(public_state(env.world)) == before


def test_the_calls_beside_one_that_fails_are_kept() -> None:
    env = begun()
    reply = write("note", text="a") + write("fail", how="zero") + write("note", text="b")
    chat, *_, info = env.step(reply)
    assert [m.text for m in chat.messages[-3:]] == ["4 notes", f"error: {FAULT}", "5 notes"]
    assert [note.get("text") for note in env.world.notes[-2:]] == ["a", "b"]  # type: ignore[attr-defined]
    assert len(info["detail"].faults) == 1


def test_faults_do_not_count_as_failures_of_the_policy() -> None:
    env = begun(max_failed_rounds=2)
    for _ in range(4):
        _, _, over, detail = step(env, write("fail", how="zero"))
        assert (over, detail.failed_rounds) == (False, 0)
    for rounds in (1, 2):
        _, _, over, detail = step(env, write("no_such_tool"))
        assert (over, detail.failed_rounds) == (rounds == 2, rounds)


def test_a_researcher_may_ask_to_raise() -> None:
    env = begun(on_fault="raise")
    before = pickle.dumps(env.world.notes)  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError):
        env.step(write("fail", how="zero"))
    assert pickle.dumps(env.world.notes) == before  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="must return a number in"):
        env.step(write("finish", score="2"))
    with pytest.raises(ValueError, match="on_fault must be one of"):
        ToolEnv(Desk, on_fault="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_what_stops_a_program_is_no_fault(
    signal: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RAISES, "signal", lambda: raise_(signal()))
    with pytest.raises(signal):
        begun().step(write("fail", how="signal"))


@pytest.mark.parametrize(
    "score", ["nan", "inf", "-inf", "1.5", "-0.1", "zero", "panic", "recursion"]
)
def test_a_scorer_that_breaks_makes_the_episode_invalid(score: str) -> None:
    env = begun()
    _, reward, terminated, truncated, info = env.step(write("finish", score=score))
    detail = info["detail"]
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False)
    assert detail.score is None
    assert detail.invalid.startswith(f"the scorer broke ({detail.faults[0].exception}: ")
    assert [fault.tool for fault in detail.faults] == ["score"]
    _, info = env.reset(seed=4)
    assert (info["detail"].invalid, info["detail"].faults) == ("", ())


def test_a_limit_of_the_host_makes_the_episode_invalid_and_it_goes_on() -> None:
    env = begun(on_fault="raise")
    text, _, over, detail = step(env, write("be_slow"))
    assert (text, over) == ("error: limit exceeded: the process was killed", False)
    assert (
        detail.invalid == "be_slow was stopped by the host: limit exceeded: the process was killed"
    )
    for each in (env, clone(env)):
        _, reward, over, detail = step(each, write("finish", score="1"))
        assert (reward, over, bool(detail.invalid)) == (1.0, True, True), "the mark stays"


def test_a_hook_that_reads_prose_may_fail() -> None:
    text, _, over, detail = step(begun(), "answer")
    assert (text.startswith("error: "), over) == (True, False)
    assert [fault.tool for fault in detail.faults] == ["final_answer"]


def test_an_episode_that_cannot_be_restored_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    env = begun()
    monkeypatch.setattr(Desk, "task", lambda self: "")
    monkeypatch.setattr(Desk, "generate", lambda self: raise_(RuntimeError("gone")))
    reply = write("fail", how="zero") + write("note", text="after")
    chat, reward, terminated, truncated, info = env.step(reply)
    detail = info["detail"]
    assert (reward, terminated, truncated, detail.ended) == (0.0, False, True, "fault")
    assert detail.score is None
    assert detail.invalid == "the state before a call could not be restored (RuntimeError: gone)"
    assert [fault.exception for fault in detail.faults] == ["RuntimeError", "ZeroDivisionError"]
    assert chat.messages[-1].text == "error: the episode has ended; this call was not run"


@pytest.mark.parametrize("length", [1, 80, 81, 100_000])
def test_a_result_of_any_length_that_is_not_repeated_shows(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The log stores enough of each result to distinguish it from others.
    env = begun()
    monkeypatch.setattr(env._direct["note"], "method", lambda text: "x" * length)
    env.step(write("note", text="it is answered by other code"))
    assert len(pickle.dumps(env.world.call_log)) < 1_000
    _, _, over, detail = step(env, write("fail", how="zero"))
    assert (over, detail.ended, detail.faults[0].exception) == (True, "fault", "RollbackError")


def test_a_mounted_toolset_without_transactions_ends_the_episode() -> None:
    env = ToolEnv(Desk)
    env.mount(Box())
    env.reset(seed=1)
    _, _, over, detail = step(env, write("spill"))
    assert (over, detail.ended, bool(detail.invalid)) == (True, "fault", True)


def test_calls_without_a_chat_are_guarded_too() -> None:
    env = begun()
    before = pickle.dumps(public_state(env.world))
    with pytest.raises(Exception, match=FAULT):
        env.call("fail", {"how": "recursion"})
    assert pickle.dumps(public_state(env.world)) == before
    *_, detail = step(env, write("note", text="x"))
    assert [fault.tool for fault in detail.faults] == ["fail"], "told with the next step"


def test_restoring_works_after_a_snapshot_and_in_a_copy() -> None:
    env = begun()
    saved = env.snapshot()
    env.step(write("note", text="later"))
    env.restore(saved)
    for each in (env, clone(env), pickle.loads(pickle.dumps(env))):
        before = pickle.dumps(public_state(each.world))
        *_, detail = step(each, write("fail", how="key"))
        assert detail.faults
        assert pickle.dumps(public_state(each.world)) == before


class Scripted:
    def __init__(self, scores: list[str]) -> None:
        self.scores = iter(scores)

    def __call__(self, chats: Any) -> Any:
        return [Reply(write("finish", score=next(self.scores))) for _ in chats]


def test_invalid_episodes_are_left_out_of_everything(tmp_path: Any) -> None:
    gymnasium.register(
        "tests/Desk-v0",
        entry_point="agentgym.play.env:ToolEnv",
        kwargs={"world": Desk},
        order_enforce=False,
    )
    env = gymnasium.spec("tests/Desk-v0")
    env.kwargs["world"] = f"{__name__}:Desk"
    log = tmp_path / "log.jsonl"
    scores = ["1", "nan", "0", "zero", "1"]
    played = list(collect(Scripted(scores), env, range(5), 1, log=log))
    assert [bool(each.failure) for each in played] == [False, True, False, True, False]
    assert "the scorer broke (ValueError: Desk.score must return a number" in played[1].failure
    assert success_rate(without_failures(played)) == pytest.approx(2 / 3)
    again = [Trajectory.from_json(each.to_json()) for each in played]
    assert [each.failure for each in again] == [each.failure for each in played]
    (fault,) = list(TrajectoryLog(log))[1].steps[-1].info["detail"].faults
    assert fault.exception == "ValueError"
