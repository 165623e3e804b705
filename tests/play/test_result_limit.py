from __future__ import annotations

from typing import Any

import pytest

import agentgym
from agentgym import ToolCall, ToolEnv, render
from agentgym.play.env import MAX_ERROR_CHARS
from agentgym.testing.checks import _faults_of_message
from agentgym.text.tools import ToolError, tool
from tests.play.test_env import PICTURE, STOP, add, started
from tests.wrappers.context_worlds import ToolBox


class FailingBox(ToolBox):
    @tool
    def refuse(self, size: int) -> str:
        """Always refused."""
        raise ToolError("é" * size)


def box(limit: int) -> ToolEnv:
    env = ToolEnv(FailingBox, max_result_chars=limit)
    env.reset(seed=0)
    return env


def say(text: str) -> str:
    return render(ToolCall("say", {"text": text}))


def notice(limit: int, total: int) -> str:
    return f"\n[result cut: this is the first {limit:,} of {total:,} characters; ask for less at a time]"


def error_notice(limit: int, total: int) -> str:
    return f"\n[error cut: this is the first {limit:,} of {total:,} characters]"


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600"])
@pytest.mark.parametrize("excess", [-1, 0, 1, 5_000])
def test_a_result_is_cut_beyond_the_limit_only(letter: str, excess: int) -> None:
    chat, *_ = box(1_000).step(say(letter * (1_000 + excess)))
    cut = letter * 1_000 + notice(1_000, 1_000 + excess)
    assert chat.messages[-1].text == (cut if excess > 0 else letter * (1_000 + excess))


def test_each_result_of_a_reply_has_the_whole_limit_and_errors_too() -> None:
    reply = say("a" * 9) + say("a" * 11) + render(ToolCall("fail", {}))
    chat, *_ = box(10).step(reply)
    error = len("this never works, however often it is tried")
    expected = ["a" * 9, "a" * 10 + notice(10, 11), "error: this never" + error_notice(10, error)]
    assert [message.text for message in chat.messages[-3:]] == expected


@pytest.mark.parametrize("limit", [1, 10, MAX_ERROR_CHARS - 1, MAX_ERROR_CHARS, 10**6])
@pytest.mark.parametrize("excess", [-1, 0, 1, 50_000])
def test_errors_are_cut_with_a_notice_in_chats_calls_and_code(limit: int, excess: int) -> None:
    def cut(text: str, most: int) -> str:
        return text if len(text) <= most else text[:most] + error_notice(most, len(text))

    env, shown = box(limit), min(limit, MAX_ERROR_CHARS)
    chat, *_ = env.step(render(ToolCall("refuse", {"size": shown + excess})))
    assert chat.messages[-1].text == "error: " + cut("é" * (shown + excess), shown)
    assert not list(_faults_of_message(chat.messages[-1])) or shown + excess == 0
    for nested, most in {False: shown, True: MAX_ERROR_CHARS}.items():
        with pytest.raises(ToolError) as caught:
            env.call("refuse", {"size": most + excess}, nested=nested)
        assert str(caught.value) == cut("é" * (most + excess), most)


def test_captions_and_last_results_are_cut_and_pictures_stay() -> None:
    env = started(max_result_chars=5)
    chat, *_ = env.step(add(1))
    assert chat.messages[-1].text == "count" + notice(5, 10)
    assert chat.messages[-1].images == (PICTURE,)
    chat, _, terminated, *_ = env.step(STOP)
    assert (chat.messages[-1].text, terminated) == ("stopp" + notice(5, 7), True)


def test_calls_outside_a_chat_are_cut_and_calls_from_code_are_not() -> None:
    env, arguments = box(10), {"text": "a" * 20}
    assert env.call("say", arguments).text == "a" * 10 + notice(10, 20)
    assert env.call("say", arguments, nested=True).text == "a" * 20


def test_agents_of_teams_have_the_limit() -> None:
    env: Any = agentgym.make("ListWorld-team", items=40, removals=1, max_result_chars=5)
    env.reset(seed=0)
    env.step(render(ToolCall("pop", {"id": 0})))
    agent = env.unwrapped.game.agent_envs["actor_0"]
    assert "[result cut: this is the first 5 of" in agent.chat.messages[-1].text
    assert env.unwrapped.game.team.actions[0].result == agent.chat.messages[-1].text


@pytest.mark.parametrize("limit", [0, -1, 1.5, "many"])
def test_a_wrong_limit_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="max_result_chars"):
        agentgym.make("ListWorld", max_result_chars=limit)
