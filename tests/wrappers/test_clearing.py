"""Clearing of tool results and thinking, in cases small enough to count by hand."""

from __future__ import annotations

from typing import Any

from agentgym.wrappers import (
    ClearThinking,
    ClearToolResults,
    ToolUses,
    Trim,
    WindowFraction,
)
from agentgym.wrappers.clearing import PLACEHOLDER
from tests.wrappers.context_checks import Checked, episode
from tests.wrappers.context_worlds import call, read


def cleared(checked: Checked) -> list[str]:
    return [message.id for message in checked.chat.messages if message.text == PLACEHOLDER]


# Clearing tool results.


def test_the_oldest_results_go_and_the_newest_stay() -> None:
    checked = episode((ClearToolResults, {"trigger": ToolUses(6), "keep": 2}))
    for page in range(5):
        assert not cleared(checked.play([read(page)]))
    checked.play([read(5)])  # the sixth: down to 8/15 of six, which is three
    assert cleared(checked) == ["1:1", "2:1", "3:1"]
    checked.play([read(6), read(7)])
    assert cleared(checked) == ["1:1", "2:1", "3:1"], "five are left: not yet"
    checked.play([read(8)])
    assert cleared(checked) == [f"{turn}:1" for turn in range(1, 7)]


def test_the_ratio_of_the_paper_clears_half_of_what_is_there() -> None:
    checked = episode(
        (ClearToolResults, {"trigger": ToolUses(8), "ratio": 0.5, "keep": 1, "clear_inputs": True})
    )
    checked.play([read(page) for page in range(8)])
    assert cleared(checked) == ["1:1", "2:1", "3:1", "4:1"]
    inputs = [call.arguments for message in checked.chat.messages for call in message.calls]
    assert inputs[:4] == [{}] * 4
    assert inputs[4] == {"page": 4, "size": 30}
    two = episode((ClearToolResults, {"trigger": ToolUses(2), "ratio": 0.5, "keep": 1})).play(
        [read(0), read(1)]
    )
    assert cleared(two) == ["1:1"], "a half of two is one, and not none"


def test_a_gain_that_is_too_small_is_left() -> None:
    options: dict[str, Any] = {"trigger": ToolUses(3), "keep": 1, "target": ToolUses(1)}
    pages = [read(page, 30) for page in range(3)]
    gain = episode((ClearToolResults, options)).play(pages).info["context"]
    assert gain.removed > gain.inserted
    for least, edits in ((gain.removed - gain.inserted, 1), (gain.removed - gain.inserted + 1, 0)):
        again = episode((ClearToolResults, {**options, "clear_at_least": least})).play(pages)
        assert len(again.info["context"].edits) == edits


def test_a_thousand_calls_in_one_reply_have_a_result_each() -> None:
    checked = episode(
        (ClearToolResults, {"trigger": WindowFraction(0.5)}), (Trim, {}), window=20_000
    )
    checked.play([read(0, 5) * 300, read(1), read(2)])
    assert len([message for message in checked.log if message.id.startswith("1:")]) == 301
    assert "at most 128 calls" in checked.log[-5].text
    assert checked.info["context"].tokens <= 20_000


# Clearing thinking.


def thinking(checked: Checked) -> list[str]:
    return [message.id for message in checked.chat.messages if message.thinking]


def test_replies_that_have_thinking_are_counted_and_no_others() -> None:
    thought = f"<think>{'a thought ' * 20}</think>"
    checked = episode((ClearThinking, {"keep": 2}))
    checked.play(
        [thought + read(0), thought + read(1), read(2), thought + read(3), read(4), read(5)]
    )
    assert thinking(checked) == ["2:0", "4:0"]
    assert [call.name for call in checked.chat.messages[2].calls] == ["read"]
    every = episode((ClearThinking, {"keep": "all"})).play(
        [thought + read(page) for page in range(9)]
    )
    assert len(thinking(every)) == 9


# The memory tool's warning.


def test_a_policy_with_a_memory_is_warned_and_has_one_turn() -> None:
    checked = episode((ClearToolResults, {"trigger": ToolUses(4), "keep": 1}), memory=True)
    checked.play([read(page) for page in range(4)])
    assert not cleared(checked)
    assert "<context_warning>" in checked.chat.messages[-1].text
    checked.play([call("memory", command="create", path="/memories/a", file_text="what I need")])
    assert cleared(checked)
    assert sum("<context_warning>" in message.text for message in checked.chat.messages) <= 1
    checked.play([call("memory", command="view", path="/memories/a")])
    assert "what I need" in checked.chat.messages[-1].text, "the memory outlives the edit"
    chat, _ = checked.env.reset(seed=0)
    chat, *_ = checked.env.step(call("memory", command="view", path="/memories"))
    assert "empty" in chat.messages[-1].text, "and not the episode"


def test_without_room_for_a_warning_the_edit_comes_at_once() -> None:
    checked = episode((ClearToolResults, {"keep": 1}), (Trim, {}), window=1_600, memory=True)
    checked.play([read(0, 20)])  # the newest result stays, so there is nothing to warn of
    assert "<context_warning>" not in checked.chat.messages[-1].text
    checked.play([read(2, 5_000)])
    assert checked.info["context"].edits
    assert checked.info["context"].tokens <= 1_600
