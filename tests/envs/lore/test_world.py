"""DocumentWorld: labels, episode ends, and reports."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import agentgym
from agentgym import ToolCall, make, render, tool_env
from agentgym.envs.lore.document_world import DocumentWorld
from agentgym.envs.lore.world import document_text
from agentgym.oracles import OraclePolicy
from agentgym.oracles.reading import ParsedChat
from agentgym.training.evaluation import wilson
from agentgym.training.papers.lore import accuracy, outcome
from agentgym.training.rollout import rollout
from tests.envs.lore.test_document_world import generated, labelled, read, reply, submit
from tests.helpers import play, play_optimally, say, start


def test_calls_are_labelled() -> None:
    env = labelled(operations=4)
    world: Any = tool_env(env).world
    a, b, c, *_ = world.known.useful()
    hidden = world.graph.nodes[0].file

    def labels(*calls: ToolCall) -> tuple[Any, ...]:
        info = env.step(reply(*calls))[4]
        return info["labels"], info["optimal"]

    assert labels(read(a), read(b)) == (("optimal", "optimal"), True)
    assert labels(read(a)) == (("redundant",), False)
    assert labels(read(c), read(c)) == (("optimal", "redundant"), False)
    assert labels(read("v1%nothing"), ToolCall("open", {})) == (("invalid", "invalid"), False)
    assert labels() == ((), False)
    assert labels(read(hidden)) == (("lucky",), False)
    lead = world.known.useful()[0]
    assert labels(read(lead)) == (("speculative",), False), (
        "the target is known, so no read is of use"
    )
    assert labels(submit("wrong"), read(a)) == (("wrong", "invalid"), False)


def test_an_answer_is_optimal_if_it_is_right_and_could_be_known() -> None:
    env = labelled()
    answer = str(tool_env(env).world.graph.answer)  # type: ignore[attr-defined]
    info = env.step(reply(submit(answer)))[4]
    assert (info["labels"], info["optimal"], info["success"]) == (("lucky",), False, True)
    trajectory = rollout(make("DocumentWorld", labels=True), OraclePolicy("DocumentWorld"), 1)
    assert {label for step in trajectory.steps for label in step.info["labels"]} == {"optimal"}


def test_a_document_that_may_be_irrelevant_is_speculative_while_others_are_certainly_needed() -> (
    None
):
    seen = set()
    for seed in range(20):
        env = labelled(
            seed, operations=8, theta=3, p=1.0, distractor_documents=2.0, budget_slack=500
        )
        world: Any = tool_env(env).world
        while world.known.answer is None and not tool_env(env).over:
            doubtful = list(world.known.doubtful)
            if doubtful and world.known.ready:
                label = ("speculative",)
                assert read(doubtful[0]) not in world.optimal_calls()
                assert env.step(reply(read(doubtful[0])))[4]["labels"] == label
                seen.add(label)
            else:
                assert env.step(render(world.optimal_calls()[0]))[4]["labels"] == ("optimal",)
    assert seen


def test_a_call_of_another_tool_is_neutral() -> None:
    env = labelled(context="memory", operations=2)
    view = ToolCall("memory", {"command": "view", "path": "/memories"})
    first = tool_env(env).world.known.useful()[0]  # type: ignore[attr-defined]
    assert [env.step(r)[4]["optimal"] for r in (reply(view), reply(view, read(first)))] == [
        False,
        True,
    ]
    assert env.reset(seed=0)[1]["labels"] == ()


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("{}", 1),
        (" {} ", 1),
        ("{}.", 1),
        ("'{}'", 1),
        ('"{}".', 1),
        ("`{}`", 1),
        ("v0 = {}", 0),
        ("{}x", 0),
        ("", 0),
        ("'", 0),
        ("\n", 0),
    ],
)
def test_answers_are_compared_exactly_but_for_quotes_and_a_full_stop(said: str, right: int) -> None:
    env = start("DocumentWorld-paper")
    answer = str(env.world.graph.answer)
    assert play(env, submit(said.format(answer))).reward == right
    env = start("DocumentWorld-paper")
    assert play(env, submit(answer.swapcase())).reward == 0


def test_a_last_line_answers() -> None:
    for said, over in [
        ("Final answer: {}", True),
        ("Done.\n\n  final answer : {}\n", True),
        ("Final answer:\n{}", False),
        ("{}", False),
    ]:
        env = start("DocumentWorld-paper")
        outcome = say(env, said.format(env.world.graph.answer))
        assert (outcome.terminated, outcome.reward) == (over, float(over))
        assert outcome.going_on or env.chat.messages[-2].calls[0].name == "submit"


def test_the_third_round_in_a_row_in_which_all_calls_fail_ends_the_episode() -> None:
    bad, worse = reply(read("v1%no")), reply(ToolCall("open", {}), ToolCall("read_document", {}))
    env = start("DocumentWorld-paper", operations=10)
    good = reply(read("v1%no"), read(env.world.known.useful()[0]))
    for said in (bad, worse, "Let me think.", good, bad, "", "<tool_call>{</tool_call>", "Hm."):
        assert say(env, said).going_on
    outcome = say(env, bad)
    assert (outcome.terminated, outcome.reward) == (True, 0.0)
    assert {
        start(f"{world}World").max_failed_rounds for world in ("Document", "Multimodal", "Code")
    } == {3}


def test_a_reply_with_more_calls_than_allowed_runs_none_and_is_a_failed_round() -> None:
    env = start("DocumentWorld-paper", operations=8, p=0.0, max_calls_per_turn=3)
    assert "at most 3." in env.chat.messages[0].text
    files = env.world.known.useful()[:4]
    outcome = say(env, reply(*map(read, files)))
    assert (
        outcome.text == "error: this world takes one call in each reply, or up to 3; none was run"
    )
    assert not env.world.known.read
    say(env, reply(*map(read, files[:3])))
    assert set(env.world.known.read) == set(files[:3])
    assert say(env, *[reply(*map(read, files))] * 3).terminated


def test_one_call_at_a_time_is_said_to_be_so() -> None:
    env = start("DocumentWorld-paper", parallel_calls=False)
    assert "exactly one call" in env.chat.messages[0].text
    assert say(env, reply(*map(read, env.world.known.useful()[:2]))).text.endswith(
        "takes one call in each reply; none was run"
    )


def test_on_the_last_turn_only_an_answer_can_succeed() -> None:
    env = start("DocumentWorld-paper", budget_factor=1.0, budget_slack=0)
    play(env, *[read(env.world.known.useful()[0])] * (env.world.max_turns - 1))
    assert (list(env.world.optimal_calls()), env.world.turns_left) == ([], 1)
    assert env.world.subtask(with_state=False) == "No turn is left to find the answer out."
    outcome = play(env, read(env.world.known.useful()[0]))
    assert (outcome.truncated, outcome.reward) == (True, 0.0)
    env = start("DocumentWorld-paper", budget_factor=1.0, budget_slack=0)
    assert play_optimally(env).turn == env.world.graph.needed + 1 <= env.world.max_turns


def reported(last: str, everything: bool = False, idle: int = 0) -> dict[str, Any]:
    """Return the report of an episode that read one document, or all with the first repeated."""
    env = start("DocumentWorld-paper", operations=2, budget_slack=200)
    first = env.world.known.useful()[0]
    play(env, read(first))
    while everything and env.world.known.answer is None:
        play(env, env.world.optimal_calls()[0])
    for _ in range(idle):
        play(env, read(first))
    *_, info = env.step(render(submit(last)))
    return dict(info["detail"].report)


def test_failures_are_told_apart() -> None:
    kinds = ("premature_halt", "lost_leads", "synthesis_error", "answered")
    answer = str(start("DocumentWorld-paper", operations=2).world.graph.answer)
    leads = len(generated_leads()) - 1
    assert [reported("x")[kind] for kind in kinds] == [True, 0, False, True]
    assert [reported(answer)[kind] for kind in kinds] == [False, 0, False, True]
    assert [reported("x", everything=True)[kind] for kind in kinds] == [False, 0, True, True]
    assert [reported(answer, everything=True)[kind] for kind in kinds] == [False, 0, False, True]
    # The answer comes in turn 20, then 21; the leads are known from the start.
    assert [reported("x", idle=18)[kind] for kind in kinds] == [True, 0, False, True]
    assert [reported("x", idle=19)[kind] for kind in kinds] == [True, leads, False, True]
    assert reported("x", idle=19)["redundant_reads"] == 19


def generated_leads() -> list[str]:
    return list(start("DocumentWorld-paper", operations=2).world.known.useful())


def test_a_report_is_given_at_any_end_and_not_before() -> None:
    env = make("DocumentWorld", budget_factor=1.0, budget_slack=0)
    _, info = env.reset(seed=0)
    while not tool_env(env).over:
        assert info["detail"].report is None
        *_, info = env.step("hm")
    assert info["detail"].report["premature_halt"]
    assert not info["detail"].report["answered"]
    assert make("ListWorld").reset(seed=0)[1]["detail"].report is None


def test_outcomes_and_their_curves() -> None:
    env = make("DocumentWorld-paper", labels=True, operations=2)
    bad = reply(read("v1%no"))
    texts = iter([bad, "hm", bad, reply(*(read(f) for f in generated_leads()[:1])), bad, bad, bad])
    failed = outcome(rollout(env, lambda chats: [agentgym.Reply(next(texts))], 0))
    assert (failed.success, failed.failed_rounds, failed.turns, failed.labels["invalid"]) == (
        False,
        5,
        7,
        5,
    )
    assert (failed.optimal_turns, failed.report["useful_reads"]) == (1, 1)
    outcomes = [failed]
    for operations, seed in itertools.product((0, 2, 10, 11), range(2)):
        played = rollout(
            make("DocumentWorld", labels=True, operations=operations),
            OraclePolicy("DocumentWorld"),
            seed,
        )
        outcomes.append(outcome(played))
        assert outcomes[-1].optimal_turns == outcomes[-1].turns == outcomes[-1].report["needed"] + 1
    low, high = accuracy(outcomes)
    assert (low.low, low.high, low.episodes, high.low, high.high, high.episodes) == (
        1,
        10,
        7,
        11,
        20,
        2,
    )
    assert (low.accuracy.value, high.accuracy.value) == (6 / 7, 1.0)
    heights = accuracy(outcomes, "height", 1)
    assert sum(each.episodes for each in heights) == len(outcomes)
    assert all(each.low == each.high for each in heights)
    with pytest.raises(ValueError, match="by must be one of operations, height, got 'depth'"):
        accuracy(outcomes, "depth")
    with pytest.raises(ValueError, match="has no report of a world of LORE"):
        outcome(rollout(make("ListWorld"), OraclePolicy("ListWorld"), 0))


def test_wilson_intervals() -> None:
    # Newcombe 1998, table I.
    for successes, trials, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        interval = wilson(successes, trials)
        assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)
    assert (wilson(20, 20).high, wilson(20, 20).value) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"operations": -1}, "operations must be an integer in [0, 100000], got -1"),
        ({"difficulty": "easy"}, "difficulty must be one of standard, hard, got 'easy'"),
        ({"theta": 0}, "theta must be an integer in [1, 1000000], got 0"),
        ({"p": 1.5}, "p must be a number in [0.0, 1.0], got 1.5"),
        ({"min_arity": 1}, "min_arity must be an integer in [2, 10], got 1"),
        ({"min_arity": 4, "max_arity": 3}, "max_arity must be an integer in [4, 10], got 3"),
        ({"weights": {"max": 1.0}}, "weights must be one of add, subtract, join, got 'max'"),
        (
            {"weights": {"add": -1}},
            (
                "weights must be a mapping with each value a number in [0.0, 1000000000.0], "
                "got {'add': -1}"
            ),
        ),
        (
            {"weights": {"add": 0}},
            "weights must not all be 0, got {'add': 0}; operators: add, subtract, join",
        ),
        ({"max_calls_per_turn": 0}, "max_calls_per_turn must be an integer in [1, 128], got 0"),
        ({"strict_ids": 1}, "strict_ids must be True or False, got 1"),
        ({"budget_by": "calls"}, "budget_by must be one of reads, rounds, got 'calls'"),
        ({"hints": "all"}, "hints must be one of plain, full, got 'all'"),
        ({"distractor_fields": 5}, "distractor_fields must be a number in [0.0, 4.0], got 5"),
        (
            {"distractor_documents": -1},
            "distractor_documents must be a number in [0.0, 4.0], got -1",
        ),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_value_and_its_range(
    options: dict[str, object], why: str
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is compared whole
        make("DocumentWorld", **options)
    assert str(refused.value) == why


@pytest.mark.parametrize("steps", [2, 30, 400])
def test_at_horizon_gives_tasks_that_take_about_that_many_turns(steps: int) -> None:
    turns = [
        generated(seed, **DocumentWorld.config_for_horizon(steps)).graph.needed + 1
        for seed in range(30)
    ]
    assert steps * 0.85 - 1 < sum(turns) / len(turns) < steps * 1.15 + 1
    with pytest.raises(ValueError, match=r"horizon must be an integer in \[2, "):
        DocumentWorld.config_for_horizon(1)


def test_a_scripted_policy_is_given_what_the_world_itself_learns_from_a_picture() -> None:
    picture = agentgym.Image(b"png", "3 red circles")
    call = ToolCall("read_document", {"file_id": "v1%a"}, "c")
    said = agentgym.Message(
        "tool", "v1 is how many red circles the picture shows", call_id="c", images=(picture,)
    )
    asked = agentgym.Message("assistant", calls=(call,))
    chat = agentgym.Chat(
        (agentgym.Message("system"), agentgym.Message("user", id="0:1"), asked, said)
    )
    ((_, given),) = ParsedChat.of(chat).turns()[0]
    assert (
        given
        == document_text(agentgym.Content(said.text, said.images))
        == f"{said.text}\n3 red circles"
    )
