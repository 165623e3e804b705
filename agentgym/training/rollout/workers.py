"""Players elsewhere, in another process or an actor of Ray.

What crosses the border grows with new text, never with the history.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from agentgym.messages import Chat
from agentgym.policy import Policy, PolicyError, Reply
from agentgym.training.rollout.deltas import Border, ChatDelta, ReplyDelta
from agentgym.training.rollout.engines import (
    GRACE,
    Answers,
    Engine,
    MakeEnv,
    Slot,
    ThreadSlot,
    describe,
)
from agentgym.training.rollout.episode import Player, StepOutcome

_SIGKILL = 9
"""The signal by which the kernel ends a process for want of memory; Windows has no name for it."""


class PlayerServer:
    """The far end: a player that sends only the new part of a chat, and of the prompt of a reply.

    Args:
        make_env: Makes the env; pickled by cloudpickle, as it may be a lambda.
        number: Which of the slots it is.
    """

    def __init__(self, make_env: bytes, number: int) -> None:
        self._player = Player(cloudpickle.loads(make_env)())
        self._number = number
        self._border = Border()

    def use(self, policy: bytes | Policy) -> None:
        """Play with a copy of this policy; one that draws at random draws differently in each
        slot.
        """
        copied: Any = cloudpickle.loads(policy) if isinstance(policy, bytes) else policy
        if hasattr(copied, "reseed"):
            copied.reseed(self._number)
        self._player.use(copied)

    def reset(self, seed: int) -> tuple[int, ChatDelta]:
        """Begin an episode."""
        self._border = Border()
        return self._border.send_chat(self._player.reset(seed))

    def step(
        self, text: str | None
    ) -> tuple[
        tuple[int, ReplyDelta] | None, tuple[int, ChatDelta], float, bool, bool, Mapping[str, Any]
    ]:
        """Play a text, and send no reply back; or one of the own policy."""
        reply, outcome = self._player.step(None if text is None else Reply(text))
        played = self._border.send_reply(reply) if text is None else None
        ends = outcome.reward, outcome.terminated, outcome.truncated, outcome.info
        return played, self._border.send_chat(outcome.chat), *ends

    def close(self) -> None:
        """Close the env."""
        self._player.close()


class PlayerClient:
    """The near end: plays like a `Player`. A subclass fills `call` and `close`."""

    def __init__(self) -> None:
        self._border = Border()

    def call(self, method: str, argument: Any) -> Any:
        """Call a method of the `PlayerServer`."""
        raise NotImplementedError

    def use(self, policy: Any) -> None:
        """Play with this policy from now on."""
        self.call("use", policy)

    def reset(self, seed: int) -> Chat:
        """Begin an episode."""
        self._border = Border()
        return self._border.receive_chat(*self.call("reset", seed))

    def step(self, reply: Reply | None) -> tuple[Reply, StepOutcome]:
        """Play a reply; with None, that of the player's own policy."""
        played, news, *ends = self.call("step", None if reply is None else reply.text)
        if reply is None:
            reply = self._border.receive_reply(*played)
        return reply, StepOutcome(self._border.receive_chat(*news), *ends)


class Processes(Engine):
    """A process for each slot: for worlds that compute, and for tools that may crash or leak. A
    process that hangs is killed.

    Args:
        method: The start of processes: `forkserver` (quick; the server is never forked from a
            process with threads), `spawn`, `fork`.
    """

    def __init__(self, method: str = "forkserver") -> None:
        self._context = get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload([__name__])

    def share(self, policy: Policy) -> bytes:
        """The policy as bytes, made once for all slots."""
        return bytes(cloudpickle.dumps(policy))

    def slot(self, make_env: MakeEnv, number: int, answers: Answers) -> Slot:
        """Open a slot."""
        near, far = self._context.Pipe()
        process: Any = self._context.Process(  # type: ignore[attr-defined]
            target=_serve,
            args=(far, cloudpickle.dumps(make_env), number),
            name=f"agentgym-slot-{number}",
            daemon=True,
        )
        with interrupts_left_to_parent():
            process.start()
        far.close()
        return ThreadSlot(lambda: _ProcessPlayer(near, process), number, answers, process.kill)


class _ProcessPlayer(PlayerClient):
    def __init__(self, connection: Connection, process: Any) -> None:
        super().__init__()
        self._connection, self._process = connection, process

    def call(self, method: str, argument: Any) -> Any:
        try:
            self._connection.send((method, argument))
            succeeded, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(GRACE)
            raise WorkerDied(describe_exit(self._process.exitcode)) from error
        if succeeded:
            return answer
        raise worker_error(*answer)

    def close(self) -> None:
        self._connection.close()  # the process reads the end of its input, closes its env and ends
        self._process.join(GRACE)
        self._process.kill()


class WorkerDied(RuntimeError):
    """The process or the actor of a player is gone."""


class WorkerFailed(RuntimeError):
    """An env or a policy raised an error elsewhere."""


def worker_error(cause: str, by_policy: bool) -> Exception:
    """Return an error that was raised elsewhere as one that can be raised here."""
    return (PolicyError if by_policy else WorkerFailed)(f"in a worker: {cause}")


def describe_exit(code: int | None) -> str:
    """Return the end of a worker process as a sentence; a negative code is that of a signal."""
    text = f"the worker process ended with exit code {code}"
    if code == -_SIGKILL:
        text += ": it was killed, perhaps for want of memory"
    return text


def _serve(connection: Connection, make_env: bytes, number: int) -> None:
    follow_the_parent()
    server: PlayerServer | None = None
    try:
        while True:
            method, argument = connection.recv()
            try:
                server = server or PlayerServer(make_env, number)
                answer = True, getattr(server, method)(argument)
            except Exception as error:  # noqa: BLE001 - it is the other end that has to know
                answer = False, (describe(error), isinstance(error, PolicyError))
            connection.send(answer)
    except EOFError:
        if server is not None:
            server.close()


@contextmanager
def interrupts_left_to_parent() -> Iterator[None]:
    """Start processes that no interrupt reaches: one that is still importing would print a traceback.

    Interrupts are blocked meanwhile, which processes inherit; the parent gets its own at the end. As
    another thread of it may be interrupted in its place, the handler only notes that it was.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # which unblocks interrupts when it starts
    handler = signal.getsignal(signal.SIGINT)
    noted: list[tuple[int, FrameType | None]] = []
    defers = callable(handler) and threading.current_thread() is threading.main_thread()
    if defers:
        signal.signal(signal.SIGINT, lambda *interrupt: noted.append(interrupt))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if defers:
            signal.signal(signal.SIGINT, handler)
        if noted and callable(handler):
            handler(*noted[0])


def follow_the_parent() -> None:
    """Leave interrupts to the parent, and end with it even if it is killed: a worker would wait for
    ever, or go on alone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
