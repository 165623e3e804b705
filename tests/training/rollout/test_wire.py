from __future__ import annotations

import random
import threading
from typing import Any

import gymnasium
import numpy as np

import agentgym
from agentgym import Chat, Message, ToolCall
from agentgym.oracles import OraclePolicy
from agentgym.text.messages import Image
from agentgym.training.rollout import Collector, Processes
from agentgym.training.rollout.engines.base import Failure
from agentgym.training.rollout.engines.deltas import ChatDelta
from agentgym.training.rollout.engines.servers import decode_answer, encode_answer

LEAVES = [None, True, 0, -1, 2**63, 2**64, -(2**70), 10**400, 0.1, -0.0, float("inf"), "", "é\0"]
LEAVES += ["\ud800", "x" * 300, b"\xff", np.int64(3), np.float64(0.5)]


def value(rng: random.Random, depth: int = 3) -> Any:
    """Draw a random info value as `to_jsonable` would return it."""
    if not depth or rng.random() < 0.5:
        return rng.choice(LEAVES)
    items = [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return items if rng.random() < 0.5 else {rng.choice(("a", "b", 3)): item for item in items}


def message(rng: random.Random) -> Message:
    calls = [ToolCall("pop", {"id": value(rng)}, "call_1") for _ in range(rng.randrange(3))]
    images = [Image(rng.randbytes(5), "a picture") for _ in range(rng.randrange(2))]
    return Message("assistant", rng.choice(("", "é")), calls=tuple(calls), images=tuple(images))


def step(rng: random.Random) -> Any:
    tools = rng.choice((None, agentgym.make("ListWorld").reset(seed=0)[0].tools))
    delta = ChatDelta(rng.randrange(9), tuple(message(rng) for _ in range(rng.randrange(3))), tools)
    return delta, 0.5, True, False, {"a": value(rng)}


def typed(item: Any) -> Any:
    """Return a value with the type of each part, because 1 == True."""
    if isinstance(item, dict):
        return [(typed(name), typed(part)) for name, part in item.items()]
    if isinstance(item, (list, tuple)):
        return type(item), [typed(part) for part in item]
    return type(item), item


def test_an_answer_arrives_as_it_was() -> None:
    rng, forms = random.Random(0), set()
    for _ in range(400):
        answer = True, step(rng)
        data = encode_answer("step", answer)
        assert typed(decode_answer(data)) == typed(answer)
        forms.add(data[:1])
    assert forms == {b"p", b"s"}
    assert decode_answer(encode_answer("reset", (True, answer[1][0]))) == (True, answer[1][0])
    failure = False, Failure("OSError")
    assert decode_answer(encode_answer("step", failure)) == failure


class Unsendable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that adds an unpicklable object to the info of its second step."""

    turn = 0

    def step(self, action: Any) -> Any:
        *outcome, info = self.env.step(action)
        self.turn += 1
        return *outcome, info if self.turn % 2 else {**info, "lock": threading.Lock()}


def test_what_cannot_be_sent_costs_its_episode_alone() -> None:
    make_env = lambda: Unsendable(agentgym.make("ListWorld", items=4, removals=1))  # noqa: E731
    with Collector(make_env, 1, engine=Processes(workers=1), retries=0) as collector:
        (trajectory,) = collector.collect(OraclePolicy("ListWorld"), [0])
    assert "cannot be sent: TypeError: cannot pickle '_thread.lock'" in trajectory.failure
    assert len(trajectory.steps) == 1


def test_a_message_of_another_type_is_an_error_of_its_episode() -> None:
    unknown: Any = "developer"
    chat = ChatDelta.of(Chat((Message(unknown, "x"),)), Chat())
    succeeded, failure = decode_answer(encode_answer("reset", (True, chat)))
    assert not succeeded
    assert failure.error is None
    assert "cannot be sent" in failure.cause
    assert "developer" in failure.cause
