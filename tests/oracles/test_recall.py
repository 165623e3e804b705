from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from agentgym import ToolCall, ToolEnv, clone, render
from agentgym.envs.lumina.list_world import ListWorld
from agentgym.oracles import HistoryOracle, OraclePolicy, PlanOracle, StateOracle, StepOptimality
from agentgym.oracles.hints import split_hints
from agentgym.oracles.policies import ThinkingPolicy
from agentgym.oracles.recall import PAGE_CHARS, TOOL, read_pages
from tests import sampling


def whole_state(hint: str) -> str:
    return read_pages(hint)[0]


def missing_pages(hint: str) -> Sequence[int]:
    return read_pages(hint)[1]


class LongListWorld(ListWorld):
    """A world with a state that is too long for a hint."""

    def state(self) -> str:
        return f"{super().state()}\n{'All that was ever said. ' * 1_300}"

    def brief_state(self) -> str:
        return super().state()[:100]


def long_env(prune: bool = True, scope: str = "persistent", **options: Any) -> Any:
    env: Any = ToolEnv(LongListWorld, items=6, removals=3, **options)
    env = StateOracle(PlanOracle(StepOptimality(env), scope), scope)
    return HistoryOracle(env) if prune else env


def hint_of(chat: Any) -> str:
    return split_hints(chat.messages[-1].text)[1]["state"]


def ask(*pages: Any) -> str:
    return render(ToolCall(TOOL, {"pages": [*pages]}), "json")


@pytest.mark.parametrize("prune", [True, False])
@pytest.mark.parametrize("scope", ["persistent", "ephemeral"])
def test_pages_are_shown_on_request_until_the_next_turn(prune: bool, scope: str) -> None:
    env = long_env(prune, scope)
    chat, first = env.reset(seed=3)
    world = env.unwrapped.world
    brief = hint_of(chat)
    assert TOOL in {tool.name for tool in chat.tools}
    assert TOOL in chat.messages[0].text
    assert brief.startswith(world.brief_state())
    assert len(brief) < len(world.brief_state()) + 200
    assert missing_pages(brief) == [1, 2, 3]
    chat, reward, terminated, truncated, info = env.step(ask(2))
    assert (reward, terminated, truncated, info["turn"]) == (0.0, False, False, 0)
    assert info.keys() == first.keys()
    assert info["optimal"] is None
    assert missing_pages(hint_of(chat)) == [1, 3]
    assert whole_state(hint_of(chat)) == world.state()[PAGE_CHARS : 2 * PAGE_CHARS]
    chat, _, _, _, info = env.step(ask(1, 3))
    assert info["turn"] == 0
    assert missing_pages(hint_of(chat)) == []
    assert whole_state(hint_of(chat)) == world.state()
    assert "plan" in split_hints(chat.messages[-1].text)[1]
    chat, _, _, _, info = env.step(render(world.optimal_calls()[0], "json"))
    assert info["turn"] == 1
    assert info["optimal"]
    assert missing_pages(hint_of(chat)) == [1, 2, 3]


def test_a_reply_that_shows_nothing_new_is_a_turn() -> None:
    env = long_env()
    env.reset(seed=3)
    mixed = f"{ask(1)}\n{ask('2')}"
    for reply in (ask(), ask(0), ask(4), ask(True), ask(1.0), ask(1, 4), mixed, TOOL, f"<{TOOL}>"):
        turn = env.unwrapped.world.turn
        chat, *_, info = env.step(reply)
        if info["detail"].ended:
            env.reset(seed=3)
            continue
        assert info["turn"] == turn + 1, reply
        assert not info["valid"]
        assert missing_pages(hint_of(chat)) == [1, 2, 3]
    env.reset(seed=3)
    assert env.step(ask(1))[-1]["turn"] == 0
    *_, info = env.step(ask(1))
    assert info["turn"] == 1, "a page that is shown already"
    assert "pages from 1 to 3" in env.unwrapped.chat.messages[-1].text
    call = env.unwrapped.world.optimal_calls()[0]
    *_, info = env.step(f"{ask(1)}\n{render(call, 'json')}")
    assert info["turn"] == 2, "a reply that also acts"


@pytest.mark.parametrize("dialect", ["json", "python", "auto"])
def test_requests_are_read_as_other_calls_are(dialect: Any) -> None:
    env = long_env(dialect=dialect, parallel_calls=False)
    env.reset(seed=0)
    chat, *_, info = env.step(render(ToolCall(TOOL, {"pages": [1, 2, 3]}), dialect))
    assert info["turn"] == 0
    assert whole_state(hint_of(chat)) == env.unwrapped.world.state()
    env.reset(seed=0)
    *_, info = env.step("\n".join([render(ToolCall(TOOL, {"pages": [1]}), "json")] * 2))
    assert info["turn"] == 1, "more calls than a reply may have"


def test_pages_go_with_copies_and_are_gone_after_a_reset() -> None:
    env = long_env()
    env.reset(seed=3)
    chat, *_ = env.step(ask(1))
    for copy in (clone(env), pickle.loads(pickle.dumps(env))):
        assert missing_pages(hint_of(copy.step(ask(2))[0])) == [3]
        assert missing_pages(hint_of(env.step(ask(2))[0])) == [3]
        env.reset(seed=3)
        assert env.step(ask(1))[0] == chat
    assert missing_pages(hint_of(env.reset(seed=3)[0])) == [1, 2, 3]


def test_a_state_that_is_whole_has_no_pages() -> None:
    env = HistoryOracle(StateOracle(ToolEnv(ListWorld, items=6, removals=3)))
    chat, _ = env.reset(seed=3)
    assert TOOL not in {tool.name for tool in chat.tools}
    assert hint_of(chat) == whole_state(hint_of(chat)) == env.unwrapped.world.state()  # type: ignore[attr-defined]


@pytest.mark.parametrize("accuracy", [0.0, 0.5])
def test_wrong_states_have_pages_too(accuracy: float) -> None:
    env: Any = HistoryOracle(
        StateOracle(ToolEnv(LongListWorld, items=6, removals=3), accuracy=accuracy)
    )
    for seed in range(4 if sampling.current.whole else 2):
        chat, _ = env.reset(seed=seed)
        brief = hint_of(chat)
        shown = whole_state(hint_of(env.step(ask(*missing_pages(brief)))[0]))
        assert brief.startswith(shown[:100])
        assert shown.endswith("All that was ever said. ")


@pytest.mark.parametrize("wrap", [lambda policy: policy, ThinkingPolicy])
def test_scripted_policies_request_all_pages_before_they_act(wrap: Any) -> None:
    env = HistoryOracle(StateOracle(ToolEnv(LongListWorld, items=6, removals=3)))
    policy = wrap(OraclePolicy("ListWorld"))
    chat, _ = env.reset(seed=3)
    asks: list[bool] = []
    reward, terminated = 0.0, False
    while not terminated:
        reply = policy([chat])[0].text
        asks.append(TOOL in reply)
        chat, reward, terminated, *_ = env.step(reply)  # type: ignore[assignment]
    assert asks == [True, False] * 4
    assert reward == 1.0


def test_a_text_that_looks_like_pages_does_not_break_a_reader() -> None:
    for text in ("", "\n# Page 1 of 2\n", "pages 1 to 9."):
        assert whole_state(text) == text
        assert missing_pages(text) == ()
    notice = f"x\nThis is a part of the state; {TOOL} shows the whole, in pages 1 to 2."
    assert missing_pages(notice) == [1, 2]
    assert missing_pages(f"{notice}\n# Page 2 of 2\nrest") == [1]
    assert whole_state(f"{notice}\n# Page 2 of 2\nrest") == "rest"
