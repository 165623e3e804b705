"""What each context strategy does, in cases small enough to count by hand."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym import Chat, ToolEnv
from agentgym.prompts import SUMMARY_FOLLOWS, SUMMARY_REQUEST
from agentgym.wrappers import (
    AnyOf,
    Budget,
    ClearThinking,
    ClearToolResults,
    Compaction,
    ContextAwareness,
    Fraction,
    Tokens,
    ToolUses,
    Trim,
    Turns,
)
from agentgym.wrappers.budget import Load, read_budget, read_trigger
from agentgym.wrappers.clearing import PLACEHOLDER
from agentgym.wrappers.compaction import summarize_by_rules
from agentgym.wrappers.trim import cut_middle
from tests.context_checks import Checked
from tests.context_worlds import Stack, ToolBox, call

WIDE = 100_000


def episode(*layers: tuple[Any, dict[str, Any]], window: int = WIDE, memory: bool = False) -> Checked:
    return Checked(Stack(layers, window, memory=memory))


def read(page: int, size: int = 30) -> str:
    return call("read", page=page, size=size)


def cleared(checked: Checked) -> list[str]:
    """The ids of the results that show the placeholder."""
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
    checked = episode((ClearToolResults, {"trigger": Tokens(free.info["context"].tokens), "target": Tokens(target), "keep": 0}))
    checked.play(pages)
    gone = len(cleared(checked))
    assert checked.info["context"].tokens <= target
    results = [message for message in free.chat.messages if message.role == "tool"]
    count = checked.view.counter.length
    saved = [count(message.text) - count(PLACEHOLDER) for message in results]
    assert free.info["context"].tokens - sum(saved[: gone - 1]) > target, "one less would not have done"


def test_keep_does_not_count_the_results_of_excluded_tools() -> None:
    checked = episode((ClearToolResults, {"trigger": ToolUses(8), "target": ToolUses(1), "keep": 2, "exclude": ["say"]}))
    checked.play([read(page) + call("say", text="a text that is long enough to be worth it") for page in range(4)])
    assert cleared(checked) == ["1:1", "2:1"]


def test_the_ratio_of_the_paper_clears_half_of_what_is_there() -> None:
    checked = episode((ClearToolResults, {"trigger": ToolUses(8), "ratio": 0.5, "keep": 1, "clear_inputs": True}))
    checked.play([read(page) for page in range(8)])
    assert cleared(checked) == ["1:1", "2:1", "3:1", "4:1"]
    inputs = [call.arguments for message in checked.chat.messages for call in message.calls]
    assert inputs[:4] == [{}] * 4
    assert inputs[4] == {"page": 4, "size": 30}
    two = episode((ClearToolResults, {"trigger": ToolUses(2), "ratio": 0.5, "keep": 1})).play([read(0), read(1)])
    assert cleared(two) == ["1:1"], "a half of two is one, and not none"


def test_results_of_the_newest_reply_are_not_cleared_before_they_were_read() -> None:
    checked = episode((ClearToolResults, {"trigger": ToolUses(4), "target": ToolUses(1), "keep": 0}))
    checked.play([read(0), read(1) + read(2) + read(3)])
    assert cleared(checked) == ["1:1"]
    checked.play([read(4)])
    assert cleared(checked) == ["1:1", "2:1", "2:2", "2:3"]


def test_errors_are_cleared_and_what_is_shorter_than_the_placeholder_is_not() -> None:
    checked = episode((ClearToolResults, {"trigger": ToolUses(5), "target": ToolUses(1), "keep": 0}))
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
    checked = episode((ClearToolResults, {"trigger": Fraction(0.5)}), (Trim, {}), window=20_000)
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
    checked.play([thought + read(0), thought + read(1), read(2), thought + read(3), read(4), read(5)])
    assert thinking(checked) == ["2:0", "4:0"]
    assert [call.name for call in checked.chat.messages[2].calls] == ["read"]
    every = episode((ClearThinking, {"keep": "all"})).play([thought + read(page) for page in range(9)])
    assert len(thinking(every)) == 9


def test_thinking_goes_only_when_it_is_triggered() -> None:
    checked = episode((ClearThinking, {"trigger": Tokens(900)}))
    while checked.info["context"].tokens < 800:
        checked.play([f"<think>{'a thought ' * 20}</think>" + read(0)])
        assert len(thinking(checked)) == checked.base.world.turn
    checked.play([f"<think>{'a thought ' * 60}</think>" + read(0)])
    assert len(thinking(checked)) == 1


# Compaction.


def test_the_policy_is_asked_for_a_summary_in_a_step_that_is_no_turn() -> None:
    checked = episode((Compaction, {"trigger": Turns(4), "keep_last_turns": 2}))
    checked.play([read(page) for page in range(4)])
    *_, request = checked.chat.messages
    assert (request.role, request.text) == ("user", SUMMARY_REQUEST)
    keys = list(checked.info)
    checked.play([f"<think>hm</think>I read two pages.{read(9)}"])
    info = checked.info
    assert list(info) == keys
    assert (info["turn"], info["valid"], info["success"], info["context"].phase) == (4, True, False, "summary")
    assert checked.base.world.reads == 4, "a call in a summary is not run"  # type: ignore[attr-defined]
    shown = checked.chat.messages
    assert [message.role for message in shown] == ["system", "user", *["assistant", "tool"] * 2, "assistant", "user"]
    assert [message.id for message in shown[2:6]] == ["3:0", "3:1", "4:0", "4:1"]
    assert (shown[6].text, shown[7].text) == ("I read two pages.", SUMMARY_FOLLOWS)
    assert info["context"].summary == info["context"].reply + checked.view.requested > checked.view.requested > 0


def test_a_request_after_an_error_is_in_the_same_message() -> None:
    checked = episode((Compaction, {"trigger": Turns(3)})).play([read(0), read(1), "no call"])
    assert checked.chat.messages[-1].role == "user"
    assert checked.chat.messages[-1].text.startswith("error: no tool call found")
    assert checked.chat.messages[-1].text.endswith(SUMMARY_REQUEST)
    checked.play(["The pages are read."])
    assert not any(message.text.endswith(SUMMARY_REQUEST) for message in checked.chat.messages)


@pytest.mark.parametrize("reply", ["", "<think>only thinking</think>", read(3), "word " * 5_000])
def test_a_summary_that_is_none_or_too_long_is_replaced_or_cut(reply: str) -> None:
    checked = episode((Compaction, {"trigger": Turns(4), "max_summary": 100})).play([*[read(page, 60) for page in range(4)], reply])
    summary = checked.chat.messages[-2].text
    assert checked.info["valid"] == reply.startswith("word")
    assert summary.startswith("word" if checked.info["valid"] else "Calls so far, oldest first")
    assert checked.view.counter.length(summary) <= 100
    assert reply.startswith("word") or 'read({"page": 0, "size": 60}) -> "' in summary or "cut" in summary


def test_a_summary_that_is_longer_than_what_it_replaces_is_not_used() -> None:
    checked = episode((Compaction, {"trigger": Turns(2)})).play([call("say", text="a"), call("say", text="b"), "word " * 100])
    assert checked.info["context"].edits == ()
    assert not any("word" in message.text for message in checked.chat.messages[2:])
    before = len(checked.chats)
    checked.play([call("say", text="c")] * 5)
    phases = [chat.messages[-1].text.endswith(SUMMARY_REQUEST) for chat in checked.chats[before:]]
    assert not any(phases), "it is not asked for at every turn"


def test_the_next_summary_replaces_the_last() -> None:
    checked = episode((Compaction, {"trigger": Turns(4)}))
    for number in range(4):
        while not checked.chat.messages[-1].text.endswith(SUMMARY_REQUEST):
            checked.play([read(number, 50)])
        checked.play([f"summary number {number}"])
        texts = [message.text for message in checked.chat.messages]
        assert [text for text in texts if text.startswith("summary number")] == [f"summary number {number}"]


def upper(chat: Chat) -> str:
    return f"{len(chat.messages)} messages"


def broken(chat: Chat) -> str:
    raise RuntimeError("no connection")


@pytest.mark.parametrize(
    ("summarizer", "summary"),
    [
        (upper, "6 messages"),
        ("tests.test_context_strategies:upper", "6 messages"),
        ("rules", "Calls so far"),
        (broken, "Calls so far"),
    ],
)
def test_a_summary_may_be_made_without_the_policy(summarizer: Any, summary: str) -> None:
    checked = episode((Compaction, {"trigger": Turns(4), "summarizer": summarizer})).play([read(page, 60) for page in range(4)])
    assert checked.chat.messages[-2].text.startswith(summary)
    assert checked.info["context"].phase == "act"


def test_the_summary_by_rules_says_what_was_called_and_found() -> None:
    checked = episode((Compaction, {"trigger": Turns(100)})).play([call("say", text="one"), call("fail"), "nothing"])
    text = summarize_by_rules(Chat(tuple(checked.chat.messages[2:])))
    assert text.splitlines()[1:] == [
        'say({"text": "one"}) -> "one"',
        'fail({}) -> "error: this never works, however often it is tried"',
    ]


# Trimming.


def test_the_oldest_turns_go_down_to_the_target() -> None:
    checked = episode((Trim, {"target": Fraction(0.5)}), window=1_600)
    while not checked.info["context"].edits:
        checked.play([read(0, 40)])
    assert checked.info["context"].tokens <= 800
    turns = [message.id for message in checked.chat.messages if message.role == "assistant"]
    last = checked.base.world.turn
    assert turns == [f"{turn}:0" for turn in range(last - len(turns) + 1, last + 1)]


def test_the_middle_of_a_result_that_is_too_long_is_cut() -> None:
    checked = episode((Trim, {}), window=600).play([read(3, 2_000)])
    result = checked.chat.messages[-1].text
    whole = checked.log[-1].text
    assert "characters cut" in result
    assert result.startswith(whole[:100])
    assert result.endswith(whole[-100:])
    assert checked.info["context"].tokens <= 600
    assert not checked.over


@pytest.mark.parametrize("tokens", [0, 1, 5, 12, 50, 10_000])
def test_what_is_cut_fits(tokens: int) -> None:
    counter = agentgym.tokens.heuristic()
    text = " ".join(f"word{number}" for number in range(300))
    short = cut_middle(text, tokens, counter)
    assert counter.length(short) <= max(tokens, counter.length(f"\n[… {len(text)} characters cut …]\n"))
    assert (short == text) == (tokens == 10_000)


def test_a_task_that_does_not_fit_ends_the_episode_before_it_is_played() -> None:
    checked = episode((Trim, {}), window=50)
    assert checked.info["context"].overflow
    checked.play([read(0)])
    assert checked.over
    assert checked.info["detail"].ended == "context_overflow"
    assert (checked.info["turn"], len(checked.log)) == (0, 2)


def test_a_reply_that_does_not_fit_ends_the_episode_with_the_score_so_far() -> None:
    env: Any = Trim(ToolEnv(ToolBox), Budget(1_000, counter="heuristic"))
    env.reset(seed=0)
    env.step(read(0))
    *_, terminated, truncated, info = env.step("much too long " * 2_000 + read(1))
    assert (terminated, truncated, info["detail"].ended) == (False, True, "context_overflow")
    assert info["detail"].score == 2 / 1_000
    assert info["detail"].calls == 1
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(read(0))
    env.reset(seed=0)
    assert not env.step(read(0))[4]["context"].overflow


@pytest.mark.parametrize("window", [1, 2, 60, 200, 330, 345, 360, 400, 500, 700])
@pytest.mark.parametrize("result", [0, 50, 5_000])
def test_a_starved_context_never_raises(window: int, result: int) -> None:
    everything = ((ClearThinking, {}), (ClearToolResults, {"keep": 50}), (Compaction, {"keep_last_turns": 9}), (Trim, {}))
    checked = episode(*everything, window=window, memory=window == 700)
    checked.play([f"<think>{'so ' * 50}</think>" + read(page, result) for page in range(12)])
    assert checked.over == checked.info["context"].overflow


# Awareness.


def usage_lines(checked: Checked) -> list[str]:
    return [message.id for message in checked.chat.messages if "<system_warning>Token usage" in message.text]


def test_the_budget_is_told_once_and_the_usage_after_every_result() -> None:
    checked = episode((ContextAwareness, {}), window=3_000).play([read(0), "no call", read(1)])
    assert checked.chat.messages[0].text.endswith("<budget:token_budget>3000</budget:token_budget>")
    assert usage_lines(checked) == ["1:1", "2:1", "3:1"]
    latest = episode((ContextAwareness, {"latest_only": True}), window=3_000).play([read(0), "no call", read(1)])
    assert usage_lines(latest) == ["3:1"]
    assert latest.info["context"].reused < checked.info["context"].reused


def test_the_number_is_true_for_every_size() -> None:
    checked = episode((ContextAwareness, {}), window=1_000_000)
    for size in (*range(60), 600, 900, 990, 1_000, 9_000):
        checked.play([read(size, size)])  # each step compares the line with the count of the whole view


def test_a_window_without_room_for_the_line_is_refused() -> None:
    with pytest.raises(ValueError, match="a usable window of 20 tokens has no room for the usage line"):
        ContextAwareness(ToolEnv(ToolBox), Budget(20, counter="heuristic"))


# The memory's warning.


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
    checked.play([read(0, 20), read(1, 20)])
    assert "<context_warning>" not in checked.chat.messages[-1].text
    checked.play([read(2, 5_000)])
    assert checked.info["context"].edits
    assert checked.info["context"].tokens <= 1_600


# Triggers, budgets, order.


def test_triggers_fire_exactly_at_their_number() -> None:
    load = Load(tokens=75, usable=100, tool_uses=3, turns=2)
    fires = {
        Tokens(75): True,
        Tokens(76): False,
        Fraction(0.75): True,
        Fraction(0.76): False,
        ToolUses(3): True,
        ToolUses(4): False,
        Turns(2): True,
        Turns(3): False,
    }
    for trigger, fired in fires.items():
        assert (trigger.level(load) >= 1) == fired, trigger  # type: ignore[attr-defined]
    assert AnyOf((Tokens(76), Turns(2))).level(load) >= 1 > AnyOf((Tokens(76), Turns(3))).level(load)
    tenth = Load(tokens=3, usable=30, tool_uses=0, turns=0)
    assert Fraction(0.1).level(tenth) == 1, "0.1 * 30 is 3, whatever floats make of it"


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: Tokens(0), "tokens must be an integer in"),
        (lambda: Fraction(1.5), "fraction must be a number in"),
        (lambda: Fraction(1), None),
        (lambda: AnyOf(()), "AnyOf needs at least one trigger"),
        (lambda: read_trigger("trigger", 100_000), r"trigger must be Tokens\(n\), Fraction\(x\).*got 100000"),
        (lambda: read_trigger("trigger", {"token": 3}), "trigger must be Tokens"),
        (lambda: read_budget(4_000), r"budget must be a Budget\(window=.*got 4000"),
        (lambda: read_budget({"size": 4}), "budget must be a Budget"),
        (lambda: Budget(0), "window must be an integer in"),
        (lambda: Budget(100, 100), r"reserve_output must be an integer in \[0, 99\]"),
        (lambda: Budget(100, counter="gpt-4"), "there is no token counter 'gpt-4'.*write cl100k_base, heuristic or"),
        (lambda: ClearToolResults(ToolEnv(ToolBox), ratio=0.5, target=Tokens(5)), "two ways to say how much goes"),
        (lambda: ClearToolResults(ToolEnv(ToolBox), exclude="read"), "exclude must be a list of tools"),
        (lambda: ClearToolResults(ToolEnv(ToolBox), keep=-1), "keep must be an integer"),
        (lambda: ClearThinking(ToolEnv(ToolBox), keep=0), "keep must be an integer in"),
        (lambda: Compaction(ToolEnv(ToolBox), keep_last_turns=0), "keep_last_turns must be an integer in"),
        (lambda: Compaction(ToolEnv(ToolBox), summarizer="gpt"), "summarizer 'gpt' cannot be imported.*give policy, rules"),
    ],
)
def test_what_a_user_gets_wrong_is_named(make_it: Any, message: str | None) -> None:
    if message is None:
        make_it()
        return
    with pytest.raises(ValueError, match=message):
        make_it()
