"""Clearing of tool results and thinking, and the warning before it, in cases small enough to count
by hand.
"""

from __future__ import annotations

from typing import Any

from agentgym.wrappers import (
    ClearThinking,
    ClearToolResults,
    Tokens,
    ToolUses,
    Trim,
    Turns,
    WindowFraction,
)
from agentgym.wrappers.clearing import PLACEHOLDER
from tests.wrappers.context_checks import Checked, episode
from tests.wrappers.context_worlds import call, read


def cleared(checked: Checked) -> list[str]:
    """Return the ids of the results that show the placeholder."""
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


def test_clearing_stops_as_soon_as_the_target_is_reached() -> None:
    pages = [read(page, 20 + 7 * page) for page in range(12)]
    free = episode((ClearToolResults, {"trigger": Tokens(10**6)})).play(pages)
    target = free.info["context"].tokens * 3 // 4
    checked = episode(
        (
            ClearToolResults,
            {"trigger": Tokens(free.info["context"].tokens), "target": Tokens(target), "keep": 0},
        )
    )
    checked.play(pages)
    gone = len(cleared(checked))
    assert checked.info["context"].tokens <= target
    results = [message for message in free.chat.messages if message.role == "tool"]
    count = checked.view.counter.length
    saved = [count(message.text) - count(PLACEHOLDER) for message in results]
    assert free.info["context"].tokens - sum(saved[: gone - 1]) > target, (
        "one less would not have done"
    )


def test_keep_does_not_count_the_results_of_excluded_tools() -> None:
    checked = episode(
        (
            ClearToolResults,
            {"trigger": ToolUses(8), "target": ToolUses(1), "keep": 2, "exclude": ["say"]},
        )
    )
    checked.play(
        [
            read(page) + call("say", text="a text that is long enough to be worth it")
            for page in range(4)
        ]
    )
    assert cleared(checked) == ["1:1", "2:1"]


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


def test_results_of_the_newest_reply_are_not_cleared_before_they_were_read() -> None:
    checked = episode(
        (ClearToolResults, {"trigger": ToolUses(4), "target": ToolUses(1), "keep": 0})
    )
    checked.play([read(0), read(1) + read(2) + read(3)])
    assert cleared(checked) == ["1:1"]
    checked.play([read(4)])
    assert cleared(checked) == ["1:1", "2:1", "2:2", "2:3"]


def test_errors_are_cleared_and_what_is_shorter_than_the_placeholder_is_not() -> None:
    checked = episode(
        (ClearToolResults, {"trigger": ToolUses(5), "target": ToolUses(1), "keep": 0})
    )
    checked.play([call("fail"), call("say", text="ok"), call("nothing"), read(1, 0), read(2)])
    assert cleared(checked) == ["1:1", "3:1"]


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


def test_thinking_goes_only_when_it_is_triggered() -> None:
    checked = episode((ClearThinking, {"trigger": Tokens(900)}))
    while checked.info["context"].tokens < 800:
        checked.play([f"<think>{'a thought ' * 20}</think>" + read(0)])
        assert len(thinking(checked)) == checked.base.world.turn
    checked.play([f"<think>{'a thought ' * 60}</think>" + read(0)])
    assert len(thinking(checked)) == 1


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


def test_a_reply_that_another_strategy_has_edited_is_cleared_as_it_is_now() -> None:
    checked = episode(
        (ClearThinking, {"trigger": Turns(4)}),
        (ClearToolResults, {"trigger": ToolUses(2), "keep": 0, "clear_inputs": True}),
    )
    checked.play(
        [f"<think>{'a thought ' * 30}</think>" + call("say", text="word " * 30) for _ in range(8)]
    )
    assert len(thinking(checked)) < 8
    for reply in [
        message
        for message in checked.chat.messages
        if message.role == "assistant" and not message.thinking
    ]:
        assert reply.calls[0].arguments == {}, "what was cleared does not come back"
