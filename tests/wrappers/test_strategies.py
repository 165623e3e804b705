"""Behaviour of strategies that the simulation omits, such as options and truncated results."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym import Chat, ToolEnv
from agentgym.wrappers import (
    AnyOf,
    ClearThinking,
    ClearToolResults,
    Compaction,
    ContextAwareness,
    ContextBudget,
    Retrieval,
    Tokens,
    Trim,
    Turns,
    WindowFraction,
)
from agentgym.wrappers.budget import read_budget, read_trigger
from agentgym.wrappers.compaction import (
    SUMMARY_FOLLOWS,
    SUMMARY_REQUEST,
    cut_middle,
    summarize_by_rules,
)
from tests.wrappers.context_checks import episode
from tests.wrappers.context_worlds import ToolBox, call, read


def test_the_policy_is_asked_for_a_summary_in_a_step_that_is_no_turn() -> None:
    checked = episode((Compaction, {"trigger": Turns(4), "keep_last_turns": 2}))
    checked.play([read(page) for page in range(4)])
    *_, request = checked.chat.messages
    assert (request.role, request.text) == ("user", SUMMARY_REQUEST)
    keys = list(checked.info)
    checked.play([f"<think>hm</think>I read two pages.{read(9)}"])
    info = checked.info
    assert list(info) == keys
    assert (info["turn"], info["valid"], info["success"], info["context"].phase) == (
        4,
        True,
        False,
        "summary",
    )
    assert checked.base.world.reads == 4, "a call in a summary is not run"  # type: ignore[attr-defined]
    summary, follows = checked.chat.messages[-2:]
    assert (summary.text, follows.text) == ("I read two pages.", SUMMARY_FOLLOWS)
    request_tokens = checked.view.last_request_tokens
    assert info["context"].summary == info["context"].reply + request_tokens > request_tokens > 0


@pytest.mark.parametrize("reply", ["", "<think>only thinking</think>", read(3), "word " * 5_000])
def test_a_summary_that_is_none_or_too_long_is_replaced_or_cut(reply: str) -> None:
    checked = episode((Compaction, {"trigger": Turns(4), "max_summary": 100})).play(
        [*[read(page, 60) for page in range(4)], reply]
    )
    summary = checked.chat.messages[-2].text
    assert checked.info["valid"] == reply.startswith("word")
    assert summary.startswith("word" if checked.info["valid"] else "Calls so far, oldest first")
    assert checked.view.counter.length(summary) <= 100
    assert (
        reply.startswith("word")
        or 'read({"page": 0, "size": 60}) -> "' in summary
        or "cut" in summary
    )


def test_a_summary_that_is_longer_than_what_it_replaces_is_not_used() -> None:
    checked = episode((Compaction, {"trigger": Turns(2)})).play(
        [call("say", text="a"), call("say", text="b"), "word " * 100]
    )
    assert checked.info["context"].edits == ()
    assert not any("word" in message.text for message in checked.chat.messages[2:])
    for _ in range(10):
        checked.play([call("say", text="c")])
        if checked.info["context"].phase == "summary":
            assert checked.info["context"].edits, "after a failure, only a useful one is requested"


def upper(chat: Chat) -> str:
    return f"{len(chat.messages)} messages"


def broken(chat: Chat) -> str:
    raise RuntimeError("no connection")


@pytest.mark.parametrize(
    ("summarizer", "summary"),
    [
        (upper, "6 messages"),
        ("tests.wrappers.test_strategies:upper", "6 messages"),
        ("rules", "Calls so far"),
        (broken, "Calls so far"),
    ],
)
def test_a_summary_may_be_made_without_the_policy(summarizer: Any, summary: str) -> None:
    checked = episode((Compaction, {"trigger": Turns(4), "summarizer": summarizer})).play(
        [read(page, 60) for page in range(4)]
    )
    assert checked.chat.messages[-2].text.startswith(summary)
    assert checked.info["context"].phase == "act"


def test_the_summary_by_rules_says_what_was_called_and_found() -> None:
    checked = episode((Compaction, {"trigger": Turns(100)})).play(
        [call("say", text="one"), call("fail"), "nothing"]
    )
    assert summarize_by_rules(Chat(tuple(checked.chat.messages[2:]))).splitlines()[1:] == [
        'say({"text": "one"}) -> "one"',
        'fail({}) -> "error: this never works, however often it is tried"',
    ]


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
    counter = agentgym.text.tokens.heuristic()
    text = " ".join(f"word{number}" for number in range(300))
    short = cut_middle(text, tokens, counter)
    assert counter.length(short) <= max(
        tokens, counter.length(f"\n[… {len(text)} characters cut …]\n")
    )
    assert (short == text) == (tokens == 10_000)


def test_a_task_that_does_not_fit_ends_the_episode_before_it_is_played() -> None:
    checked = episode((Trim, {}), window=50)
    assert checked.info["context"].overflow
    checked.play([read(0)])
    assert checked.over
    assert checked.info["detail"].ended == "context_overflow"
    assert (checked.info["turn"], len(checked.log)) == (0, 2)


def test_a_reply_that_does_not_fit_ends_the_episode_with_the_score_so_far() -> None:
    env: Any = Trim(ToolEnv(ToolBox), ContextBudget(1_000, counter="heuristic"))
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
    everything = (
        (ClearThinking, {}),
        (ClearToolResults, {"keep": 50}),
        (Compaction, {"keep_last_turns": 9}),
        (Trim, {}),
    )
    checked = episode(*everything, window=window, memory=window == 700)
    checked.play([f"<think>{'so ' * 50}</think>" + read(page, result) for page in range(12)])
    assert checked.over == checked.info["context"].overflow


def test_without_room_for_a_warning_the_edit_comes_at_once() -> None:
    checked = episode((ClearToolResults, {"keep": 1}), (Trim, {}), window=1_600, memory=True)
    checked.play([read(0, 20), read(2, 5_000)])
    assert "<context_warning>" not in checked.chat.to_text()
    assert checked.info["context"].edits
    assert checked.info["context"].tokens <= 1_600


def test_all_thinking_may_be_kept() -> None:
    checked = episode((ClearThinking, {"keep": "all"}))
    checked.play([f"<think>so</think>{read(page)}" for page in range(9)])
    assert sum(bool(message.thinking) for message in checked.chat.messages) == 9


def test_a_window_without_room_for_the_line_is_refused() -> None:
    with pytest.raises(
        ValueError, match="a usable window of 20 tokens has no room for the usage line"
    ):
        ContextAwareness(ToolEnv(ToolBox), ContextBudget(20, counter="heuristic"))


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: Tokens(0), "tokens must be an integer in"),
        (lambda: WindowFraction(1.5), "fraction must be a number in"),
        (lambda: AnyOf(()), "AnyOf requires at least one trigger"),
        (
            lambda: read_trigger("trigger", 100_000),
            r"trigger must be a string such as '60k'.*got 100000",
        ),
        (lambda: read_trigger("trigger", {"token": 3}), "trigger must be a string"),
        (lambda: read_budget(4_000), r"budget must be a ContextBudget\(window=.*got 4000"),
        (lambda: read_budget({"size": 4}), "budget has no option 'size'"),
        (lambda: ContextBudget(0), "window must be an integer in"),
        (lambda: ContextBudget(100, 100), r"reserve_output must be an integer in \[0, 99\]"),
        (
            lambda: ContextBudget(100, counter="gpt-4"),
            "there is no token counter 'gpt-4'.*counters: cl100k_base, heuristic or",
        ),
        (
            lambda: ClearToolResults(ToolEnv(ToolBox), ratio=0.5, target=Tokens(5)),
            "must not both be set",
        ),
        (
            lambda: ClearToolResults(ToolEnv(ToolBox), exclude="read"),
            "exclude must be a list of tools",
        ),
        (lambda: ClearToolResults(ToolEnv(ToolBox), keep=-1), "keep must be an integer"),
        (lambda: ClearThinking(ToolEnv(ToolBox), keep=0), "keep must be an integer in"),
        (
            lambda: Compaction(ToolEnv(ToolBox), keep_last_turns=0),
            "keep_last_turns must be an integer in",
        ),
        (
            lambda: Compaction(ToolEnv(ToolBox), summarizer="gpt"),
            "summarizer 'gpt' cannot be imported.*give policy, rules",
        ),
    ],
)
def test_what_a_user_gets_wrong_is_named(make_it: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_it()


@pytest.mark.parametrize("embed", ["", "wordllama"])
def test_retrieval_keeps_the_results_most_similar_to_the_task(embed: str) -> None:
    apt = "You may read a good book; read what you like best, and read it slowly and with care."
    others = [
        f"The harvest of plums and pears number {k} was sold at the market." for k in range(4)
    ]
    checked = episode((Retrieval, {"trigger": Turns(1), "keep": 1, "embed": embed}), (Trim, {}))
    for text in (others[0], apt, *others[1:], "!"):
        checked.play([call("say", text=text)])
        shown = [message.text for message in checked.chat.messages if message.role == "tool"]
        # The strategy always keeps the newest result and the best result so far.
        assert shown[-1] == text
        if apt in shown:
            assert not set(shown[:-1]) & set(others)
    assert apt in shown
    assert checked.info["context"].edit_counts["Retrieval"] >= 4
    with pytest.raises(ValueError, match="keep must be an integer"):
        Retrieval(ToolEnv(ToolBox), keep=0)
    with pytest.raises(ValueError, match="embed 'nowhere:f' cannot be imported"):
        Retrieval(ToolEnv(ToolBox), embed="nowhere:f")
