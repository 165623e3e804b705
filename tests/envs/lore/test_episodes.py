from __future__ import annotations

from typing import Any

import pytest

import agentgym
from agentgym import ToolCall, make, tool_env
from agentgym.envs.lore.world import document_text
from agentgym.oracles import OraclePolicy
from agentgym.oracles.reading import ParsedChat
from agentgym.training.rollout import rollout
from tests.envs.lore.games import LORE, generated, read, reply, submit
from tests.helpers import play, play_optimally, say, start

# Ids and answers.


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("env_id", ["DocumentWorld", "CodeWorld"])
def test_ids_that_do_not_exist_are_refused_and_change_nothing(env_id: str, strict: bool) -> None:
    env = start(f"{env_id}-paper", strict_ids=strict, budget_slack=1_000, max_failed_rounds=None)
    before = env.world.state().rpartition("\n")[0], env.world.report()
    hostile = ["", " ", "v1", "%", "v1%", "%X", "v1%X", "../etc", "v1%a\n", "\u202ev1%a", "None"]
    hostile += ["v\u0661%a", "x" * 9_999, "{file_id}", "MAIN.py", "main", "./main.py", "asyncio.py"]
    for file in hostile:
        outcome = play(env, read(file))
        assert outcome.text.startswith("error: there is no document ")
        assert len(outcome.text) < 300
        assert (env.world.state().rpartition("\n")[0], env.world.report()) == before
    assert play_optimally(env).reward == 1.0


@pytest.mark.parametrize("strict", [False, True])
def test_an_id_that_exists_but_was_not_derived(strict: bool) -> None:
    env = make("DocumentWorld-paper", strict_ids=strict, labels=True)
    env.reset(seed=0)
    world: Any = tool_env(env).world
    hidden = world.graph.nodes[0].file
    chat, _, _, _, info = env.step(reply(read(hidden)))
    guessed = world.report()["guessed_reads"]
    label = "invalid" if strict else "lucky"
    assert (info["labels"], info["optimal"], guessed) == ((label,), False, int(not strict))
    if strict:
        assert chat.messages[-1].text == f'error: there is no document "{hidden}"'
    else:
        assert str(world.graph.answer) in chat.messages[-1].text
        assert list(world.optimal_calls()) == [submit(world.graph.answer)]


@pytest.mark.parametrize(
    ("env_id", "said", "right"),
    [
        *[("DocumentWorld", said, 1) for said in ("{}", " {} ", "{}.", "'{}'", '"{}".', "`{}`")],
        *[("DocumentWorld", said, 0) for said in ("v0 = {}", "{}x", "", "'", "\n")],
        *[("CodeWorld", said, 1) for said in ("{}", "{}.", "'{}'")],
        *[("CodeWorld", said, 0) for said in ("main() = {}", "{}0", "{}.0", "")],
    ],
)
def test_answers_are_compared_exactly_but_for_quotes_and_a_full_stop(
    env_id: str, said: str, right: int
) -> None:
    env = start(env_id, seed=1, operations=2)
    answer = str(env.world.graph.answer)
    assert answer != "0"
    assert play(env, submit(said.format(answer))).reward == right
    assert env_id == "CodeWorld" or not env.world.right(answer.swapcase())


@pytest.mark.parametrize(
    ("said", "over"),
    [
        ("Final answer: {}", True),
        ("Done.\n\n  final answer : {}\n", True),
        ("Final answer:\n{}", False),
        ("{}", False),
    ],
)
def test_a_last_line_answers(said: str, over: bool) -> None:
    env = start("DocumentWorld-paper")
    outcome = say(env, said.format(env.world.graph.answer))
    assert (outcome.terminated, outcome.reward) == (over, float(over))
    assert outcome.going_on or env.chat.messages[-2].calls[0].name == "submit"


# Episode ends, labels and reports.


def test_on_the_last_turn_only_an_answer_can_succeed() -> None:
    env = start("DocumentWorld-paper", budget_factor=1.0, budget_slack=0)
    play(env, *[read(env.world.known.useful()[0])] * (env.world.max_turns - 1))
    assert (list(env.world.optimal_calls()), env.world.turns_left) == ([], 1)
    assert env.world.subtask(with_state=False) == "No turn is left to find the answer out."
    outcome = play(env, read(env.world.known.useful()[0]))
    assert (outcome.truncated, outcome.reward) == (True, 0.0)


def test_calls_are_labelled() -> None:
    env = make("DocumentWorld-paper", labels=True, operations=4)
    env.reset(seed=0)
    world: Any = tool_env(env).world
    a, b, c, *_ = world.known.useful()

    def labels(*calls: ToolCall) -> tuple[Any, ...]:
        info = env.step(reply(*calls))[4]
        return info["labels"], info["optimal"]

    assert labels(read(a), read(b)) == (("optimal", "optimal"), True)
    assert labels(read(a)) == (("redundant",), False)
    assert labels(read(c), read(c)) == (("optimal", "redundant"), False)
    assert labels(read("v1%nothing"), ToolCall("open", {})) == (("invalid", "invalid"), False)
    assert labels() == ((), False)
    assert labels(read(world.graph.nodes[0].file)) == (("lucky",), False)
    # Reads cannot help, because the target is already known.
    assert labels(read(world.known.useful()[0])) == (("speculative",), False)
    assert labels(submit("wrong"), read(a)) == (("wrong", "invalid"), False)


@pytest.mark.parametrize("env_id", LORE)
def test_an_answer_is_optimal_if_it_is_right_and_could_be_known(env_id: str) -> None:
    env = make(f"{env_id}-paper", labels=True)
    env.reset(seed=0)
    *_, info = env.step(reply(submit(str(tool_env(env).world.graph.answer))))  # type: ignore[attr-defined]
    assert (info["labels"], info["optimal"], info["success"]) == (("lucky",), False, True)
    trajectory = rollout(OraclePolicy(env_id), make(env_id, labels=True), 1)
    assert {label for step in trajectory.steps for label in step.info["labels"]} == {"optimal"}


KINDS = ("premature_halt", "lost_leads", "synthesis_error", "answered")


@pytest.mark.parametrize(
    ("right", "everything", "idle", "kinds"),
    [
        (False, False, 0, [True, 0, False, True]),
        (True, False, 0, [False, 0, False, True]),
        (False, True, 0, [False, 0, True, True]),
        (True, True, 0, [False, 0, False, True]),
        # The next two cases submit the answer in turn 20 and in turn 21, respectively.
        (False, False, 18, [True, 0, False, True]),
        (False, False, 19, [True, 8, False, True]),
    ],
)
def test_failures_are_told_apart(
    right: bool, everything: bool, idle: int, kinds: list[object]
) -> None:
    """Read one or all documents, read the first document `idle` more times, and answer."""
    env = start("DocumentWorld-paper", operations=2, budget_slack=200)
    first, *leads = env.world.known.useful()
    play(env, read(first))
    while everything and env.world.known.answer is None:
        play(env, env.world.optimal_calls()[0])
    for _ in range(idle):
        play(env, read(first))
    *_, info = env.step(reply(submit(str(env.world.graph.answer) if right else "x")))
    report = info["detail"].report
    kinds[1] = len(leads) if kinds[1] else 0
    assert [report[kind] for kind in KINDS] == kinds
    assert report["redundant_reads"] == idle


def test_a_scripted_policy_is_given_what_the_world_itself_learns_from_a_picture() -> None:
    picture = agentgym.Image(b"png", "3 red circles")
    said = "v1 is how many red circles the picture shows"
    result = agentgym.Message("tool", said, call_id="c", images=(picture,))
    asked = agentgym.Message(
        "assistant", calls=(ToolCall("read_document", {"file_id": "v1%a"}, "c"),)
    )
    before = agentgym.Message("system"), agentgym.Message("user", id="0:1")
    _, event = ParsedChat.of(agentgym.Chat((*before, asked, result))).past.events
    assert event is not None
    assert event[1] == document_text(agentgym.Content(said, (picture,))) == f"{said}\n3 red circles"


def test_documents_fit_the_menu() -> None:
    for seed, options in enumerate(
        [{"max_arity": 2}, {"p": 1.0, "theta": 1}, {"min_arity": 10, "max_arity": 10}]
    ):
        for operations in (0, 1, 9):
            kinds = ("conditional", "arithmetic")
            world = generated("CodeWorld", seed, operators=kinds, operations=operations, **options)
            assert len(world.graph.nodes) <= world.config.most_documents
            assert len(world.action_catalog()) == world.config.most_documents + 1
            assert world.features().shape == (2 * world.config.most_documents + 2,)
            assert world.action_catalog()[0] == read("main.py")


def test_a_call_of_another_tool_is_neutral() -> None:
    env = make("DocumentWorld-paper", labels=True, context="memory", operations=2)
    env.reset(seed=0)
    view = ToolCall("memory", {"command": "view", "path": "/memories"})
    first = read(tool_env(env).world.known.useful()[0])  # type: ignore[attr-defined]
    assert [env.step(reply(*calls))[4]["optimal"] for calls in ((view,), (view, first))] == [
        False,
        True,
    ]
