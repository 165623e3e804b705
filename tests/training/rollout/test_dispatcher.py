from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import pytest

from agentgym import Chat, Message, Reply
from agentgym.training.rollout import Engine, collect
from agentgym.training.rollout.engines.base import Answers, MakeEnv, Slot
from agentgym.training.rollout.engines.dispatcher import Dispatcher
from agentgym.training.rollout.episode import StepOutcome
from tests.helpers import calls_of
from tests.training.rollout.faulty_world import Worker, make_env

CHAT = Chat((Message("user", "go"),))


class TrickleSlot(Slot):
    def __init__(self, number: int, answers: Answers, asked: deque[TrickleSlot]) -> None:
        super().__init__(number)
        self._answers, self._asked = answers, asked
        self._reply: Reply | None = None

    def reset(self, seed: int) -> None:
        self._reply = None
        self._asked.append(self)

    def step(self, reply: Reply) -> None:
        self._reply = reply
        self._asked.append(self)

    def close(self) -> None:
        self.dead = True

    def answer(self) -> None:
        if self._reply is None:
            self._answers.put((self, CHAT))
        else:
            outcome = StepOutcome(CHAT, 0.0, terminated=False, truncated=False, info={})
            self._answers.put((self, (self._reply, outcome)))


class Trickle(Engine):
    def __init__(self) -> None:
        self.asked: deque[TrickleSlot] = deque()

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        return TrickleSlot(number, answers, self.asked)


def dispatcher(slots: int) -> tuple[Dispatcher, Trickle]:
    engine = Trickle()
    return Dispatcher(engine, make_env, "{}", slots, timeout=600.0, retries=0), engine


def work_of_opening(slots: int) -> float:
    opened, _ = dispatcher(slots)
    return calls_of(opened.begin_all, enumerate(range(slots))) / slots


def work_of_steps(slots: int, steps: int = 300) -> float:
    opened, engine = dispatcher(slots)
    opened.begin_all(enumerate(range(slots)))

    def play() -> None:
        for _ in range(steps):
            engine.asked.popleft().answer()
            opened.advance(0.0)
            ready = opened.take(slots)
            opened.reply(ready, [Reply("x")] * len(ready))

    play()
    return calls_of(play) / steps


@pytest.mark.parametrize("work", [work_of_opening, work_of_steps])
def test_the_work_of_a_step_does_not_grow_with_the_slots(work: object) -> None:
    assert callable(work)
    assert work(4_000) < 1.05 * work(1_000)


def test_slots_of_one_seed_are_taken_together_and_no_slot_waits_for_ever() -> None:
    opened, engine = dispatcher(6)
    opened.begin_all(enumerate([1, 2, 1, 3, 2, 1]))
    for slot in list(engine.asked):
        slot.answer()
    opened.advance(0.0)
    assert [slot.number for slot in opened.take(3)] == [0, 2, 5]
    assert [slot.number for slot in opened.take(3)] == [1, 3, 4]
    assert opened.take(3) == []


@pytest.mark.parametrize("in_flight", [1, 2])
def test_the_policy_replies_to_a_share_of_the_episodes(in_flight: int) -> None:
    sizes: list[int] = []

    def policy(chats: Sequence[Chat]) -> list[Reply]:
        sizes.append(len(chats))
        return Worker()(chats)

    played = collect(policy, make_env, range(16), 8, engine="threads", in_flight=in_flight)
    assert sorted(t.seed for t in played) == list(range(16))
    assert max(sizes) <= 8 // in_flight
