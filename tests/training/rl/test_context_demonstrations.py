from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import agentgym
from agentgym import Message, Reply
from agentgym.oracles import OraclePolicy
from agentgym.oracles.policies import NOTE, ThinkingPolicy
from agentgym.text.parsing import DIALECTS
from agentgym.training.rl.cloning import Tokenized
from agentgym.training.rl.token_rows import rows
from agentgym.training.rollout import Renderer, make_tokenizer, rollout
from agentgym.wrappers import EditMessages, MemoryTool, Trim
from benchmarks.context_training import PageWorld
from tests.helpers import forgotten_worlds

STRATEGIES = ["clear_thinking", "compaction:trigger=0.7", "memory"]
# Tokens after the opening messages, enough for four turns, or for six turns without thoughts.
ROOM = 310


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with forgotten_worlds():
        agentgym.register(PageWorld)
        yield


def make(context: str, dialect: str) -> Any:
    opening = agentgym.make("PageWorld", dialect=dialect, context=context, window=4_000)
    window = opening.reset(seed=0)[1]["context"].tokens + ROOM
    return agentgym.make("PageWorld", dialect=dialect, context=context, window=window)


def teacher() -> ThinkingPolicy:
    return ThinkingPolicy(OraclePolicy("PageWorld", notes=True))


def shown(messages: Sequence[Message]) -> str:
    return " ".join(message.raw or message.text for message in messages)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_teacher_needs_the_strategy_and_writes_only_what_it_sees(
    strategy: str, dialect: str
) -> None:
    facts = re.compile(r"\bk?[0-9]{3,}")
    trajectory = rollout(teacher(), make(strategy, dialect), seed=1)
    assert trajectory.reward == 1.0
    for step in trajectory.steps:
        prompt = shown(step.chat.messages)
        assert {*facts.findall(step.reply.text)} <= {*facts.findall(prompt)}
    assert rollout(teacher(), make("none", dialect), seed=1).reward == 0.0
    idle = rollout(lambda chats: [Reply("") for _ in chats], make(strategy, dialect), seed=1)
    assert idle.reward == 0.0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_token_of_a_demonstration_trains_once_after_its_prompt(strategy: str) -> None:
    env = make(strategy, "python")
    text = shown(rollout(teacher(), env, seed=0).last.messages)
    renderer = Renderer(make_tokenizer([text], 400))
    trajectory = rollout(Tokenized(teacher(), renderer), env, seed=0)
    trained: dict[int, int] = {}
    for row in rows(trajectory):
        for number in row.steps:
            reply = trajectory.steps[number].reply
            start = len(reply.prompt_ids)
            assert row.ids[: start + len(reply.ids)] == (*reply.prompt_ids, *reply.ids)
            trained[number] = sum(row.sampled[start : start + len(reply.ids)])
        assert sum(row.sampled) == sum(trained[number] for number in row.steps)
    assert trained == {k: len(step.reply.ids) for k, step in enumerate(trajectory.steps)}


def forget_first_note(messages: Sequence[Message]) -> list[Message]:
    """Remove all messages up to the newest result that reports a saved note."""
    saved = [k for k, message in enumerate(messages) if message.text.startswith("created ")]
    return [*messages[saved[-1] + 1 :]] if saved else [*messages]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_note_is_read_back_once_the_chat_no_longer_shows_it(dialect: str) -> None:
    window = make("memory", dialect).get_wrapper_attr("view").budget
    bare: Any = MemoryTool(agentgym.make("PageWorld", pages=4, dialect=dialect))
    env = Trim(EditMessages(bare, f"{__name__}:forget_first_note", window))
    trajectory = rollout(teacher(), env, seed=1)
    replies = [step.reply.text for step in trajectory.steps]
    reads = [k for k, text in enumerate(replies) if "view" in text and NOTE in text]
    assert trajectory.reward == 1.0
    assert "create" in replies[reads[0] + 1], "the note lacks what followed it"
