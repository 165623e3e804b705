"""`ToolEnv` cuts long tool results in one place, with a notice for the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import agentgym
from agentgym import Content, Image, ToolCall, ToolError, World, render, tool, tool_env
from tests.helpers import forgotten_worlds


@dataclass(frozen=True)
class Config:
    pass


class LetterWorld(World[Config]):
    """Repeat a letter."""

    Config = Config

    def generate(self) -> None:
        pass

    def rules(self) -> str:
        return "Call the tools."

    def task(self) -> str:
        return "Repeat."

    @tool
    def repeat(self, letter: str, times: int) -> str:
        """Repeat a letter.

        Args:
            letter: The letter.
            times: How often.
        """
        return letter * times

    @tool
    def show(self, times: int) -> Content:
        """Show a picture with a caption.

        Args:
            times: The length of the caption.
        """
        return Content("c" * times, (Image("AAAA", "image/png"),))

    @tool
    def fail(self, times: int) -> str:
        """Fail.

        Args:
            times: The length of the message.
        """
        raise ToolError("e" * times)

    @tool(final=True)
    def finish(self, times: int) -> str:
        """End the episode.

        Args:
            times: The length of the result.
        """
        self.done = True
        return "f" * times

    def score(self) -> float:
        return float(self.done)


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    with forgotten_worlds():
        yield


def play(limit: int, *calls: ToolCall) -> list[str]:
    env = tool_env(agentgym.make(f"{__name__}:LetterWorld", max_result_chars=limit))
    env.reset(seed=0)
    chat, *_ = env.step("\n".join(render(call) for call in calls))
    return [message.text for message in chat.messages[-len(calls) :]]


def notice(limit: int, total: int) -> str:
    return f"\n[result cut: this is the first {limit:,} of {total:,} characters; ask for less at a time]"


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600"])
@pytest.mark.parametrize("excess", [-1, 0, 1, 5_000])
def test_a_result_is_cut_beyond_the_limit_only(letter: str, excess: int) -> None:
    (text,) = play(1_000, ToolCall("repeat", {"letter": letter, "times": 1_000 + excess}))
    cut = letter * 1_000 + notice(1_000, 1_000 + excess)
    assert text == (cut if excess > 0 else letter * (1_000 + excess))


def test_each_result_of_a_reply_has_the_whole_limit() -> None:
    calls = [ToolCall("repeat", {"letter": "a", "times": n}) for n in (9, 11, 10)]
    assert play(10, *calls) == ["a" * 9, "a" * 10 + notice(10, 11), "a" * 10]


def test_captions_and_last_results_are_cut_and_pictures_stay() -> None:
    env = tool_env(agentgym.make(f"{__name__}:LetterWorld", max_result_chars=10))
    env.reset(seed=0)
    chat, *_ = env.step(render(ToolCall("show", {"times": 20})))
    assert chat.messages[-1].text == "c" * 10 + notice(10, 20)
    assert len(chat.messages[-1].images) == 1
    chat, reward, terminated, *_ = env.step(render(ToolCall("finish", {"times": 20})))
    assert (chat.messages[-1].text, reward, terminated) == ("f" * 10 + notice(10, 20), 1.0, True)


def test_errors_are_cut_too() -> None:
    (text,) = play(10, ToolCall("fail", {"times": 20}))
    assert text == "error: eee" + notice(10, 27)


def test_calls_outside_a_chat_are_cut_and_calls_from_code_are_not() -> None:
    env = tool_env(agentgym.make(f"{__name__}:LetterWorld", max_result_chars=10))
    env.reset(seed=0)
    arguments = {"letter": "a", "times": 20}
    assert env.call("repeat", arguments).text == "a" * 10 + notice(10, 20)
    assert env.call("repeat", arguments, nested=True).text == "a" * 20


def test_agents_of_teams_have_the_limit() -> None:
    env: Any = agentgym.make("ListWorld-team", items=40, removals=1, max_result_chars=5)
    chat, _ = env.reset(seed=0)
    results: list[str] = []
    for _ in range(4):
        chat, *_ = env.step(render(ToolCall("pop", {"id": 0})))
        results += [message.text for message in chat.messages if message.role == "tool"]
    assert any("[result cut: this is the first 5 of" in text for text in results)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "many"])
def test_a_wrong_limit_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="max_result_chars"):
        agentgym.make("ListWorld", max_result_chars=limit)
