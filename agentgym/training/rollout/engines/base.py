"""Base classes of engines, and the `lockstep` engine."""

from __future__ import annotations

import gc
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from typing_extensions import override

from agentgym.assemble.registry import spec
from agentgym.play.policy import PolicyError, Reply
from agentgym.text.messages import Chat
from agentgym.training.rollout.episode import StepOutcome, play_reply
from agentgym.training.rollout.faults import describe
from agentgym.training.rollout.user_policy import PolicyRequest, UserPolicy

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
EnvLike = str | EnvSpec | MakeEnv
# Seconds until a closing slot is killed, enough for a running tool call.
GRACE = 5.0
# Additional seconds for opening a slot, which may import a deep-learning library.
OPENING = 60.0
# Placeholder start time for work that has not started.
NEVER = float("inf")
# With 1,000 slots and the default threshold (700), garbage collection takes 1/3 of the step time.
YOUNG = 50_000
# A step allocates about twelve objects, most of which are freed before a collection.
YOUNG_PER_SLOT = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of an episode in a slot; the slot is closed unless `lost`.

    Attributes:
        error: The policy's error, if the policy could not reply; such an episode is not retried.
        fatal: Whether the run must stop because every later episode would fail too.
        lost: Whether another episode ended the shared worker; the slot remains usable.
    """

    cause: str
    error: PolicyError | None = None
    fatal: bool = False
    lost: bool = False


Answer = Chat | tuple[Reply, StepOutcome] | Failure


class Slot(ABC):
    """Plays one episode after another and posts the results to a queue shared by all slots.

    Attributes:
        began: Time when work on the request started (`time.monotonic`), or `NEVER` while the
            request waits. To allow for slow starts, the recorded time may lie in the future.
        dead: Whether the slot was abandoned; later results are ignored.
    """

    def __init__(self, number: int) -> None:
        self.number, self.began, self.dead = number, NEVER, False

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Start an episode."""

    @abstractmethod
    def step(self, reply: Reply) -> None:
        """Play a reply."""

    def ask(self, policy: UserPolicy, request: PolicyRequest) -> None:
        """Request the policy's reply and play it; only for engines with `awaits`."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Stop all work without waiting for it to finish."""


# Queue of slots' answers, with many writers and one reader.
Answers = SimpleQueue[tuple[Slot, Answer]]


class Engine:
    """Runs episodes in slots. Subclasses implement `slot`.

    Attributes:
        isolates: Whether an error ends only its own episode; otherwise, the error is raised.
        awaits: Whether slots await single replies; otherwise, the collector requests batches.
        in_use: Whether an open collector has the engine, whose workers serve only one collector.
    """

    isolates = True
    awaits = False
    in_use = False

    def check(self, policy: UserPolicy) -> None:
        """Raise `ValueError` if the engine does not support a policy."""

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        raise NotImplementedError

    def close(self) -> None:
        """Wait up to `GRACE` seconds for slots to close, then free shared resources. The engine can
        then serve another collector.
        """


class LocalSlot(Slot):
    """Slot that runs in the collector's thread."""

    def __init__(self, make_env: MakeEnv, number: int, answers: Answers) -> None:
        super().__init__(number)
        self._env, self._answers = make_env(), answers

    @override
    def reset(self, seed: int) -> None:
        self._answers.put((self, self._env.reset(seed=seed)[0]))

    @override
    def step(self, reply: Reply) -> None:
        self._answers.put((self, (reply, play_reply(self._env, reply))))

    @override
    def close(self) -> None:
        self._env.close()


class Lockstep(Engine):
    """Engine that steps envs in the collector's thread, for fast worlds and exact resumption."""

    isolates = False

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        return LocalSlot(make_env, number, answers)


def factory_of(env: EnvLike) -> MakeEnv:
    """Return the function that makes an env."""
    if isinstance(env, str):
        env = spec(env)
    return partial(gymnasium.make, env) if isinstance(env, EnvSpec) else env


def start_thread(target: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def failure_of(error: Exception) -> Failure:
    """Return the failure for an error raised in a slot."""
    if isinstance(error, PolicyError):
        return Failure(describe(error), error, error.fatal)
    return Failure(describe(error))


@contextmanager
def rare_garbage_collection(slots: int) -> Iterator[None]:
    """Scale the garbage collector's threshold with the number of slots."""
    # Concurrent collectors may restore the wrong thresholds, which only delays garbage collection.
    before = gc.get_threshold()
    if before[0]:  # 0 means that the user disabled garbage collection
        gc.set_threshold(max(YOUNG, YOUNG_PER_SLOT * slots, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
