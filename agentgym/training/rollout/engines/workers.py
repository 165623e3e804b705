"""The far end of workers, in another process or an actor of Ray, and the engine of processes.

What crosses the border grows with new text, never with the history.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import wait
from types import FrameType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from agentgym.play.policy import Policy, PolicyError, Reply
from agentgym.training.rollout.engines.base import GRACE, MakeEnv, RareGarbageCollection, describe
from agentgym.training.rollout.engines.deltas import Border
from agentgym.training.rollout.engines.wire import (
    FarAnswer,
    Frames,
    SentChat,
    SentStep,
    decode_answer,
    encode_answer,
)
from agentgym.training.rollout.engines.worker_slots import (
    WORKERS,
    FarEnd,
    Request,
    WorkerDied,
    WorkerEngine,
)
from agentgym.training.rollout.episode import Player

_CHILDREN = threading.Lock()
"""Held to ask for the state of a child: of two threads that ask, one would not be told its exit code.
"""
_SIGKILL = 9
"""The signal by which the kernel ends a process for want of memory; Windows has no name for it."""


class PlayerServer:
    """The far end of a slot: a player that sends only the new part of a chat, and of the prompt of a
    reply.

    Args:
        make_env: Makes the env.

    Attributes:
        player: The player, with its policy.
    """

    def __init__(self, make_env: MakeEnv) -> None:
        self.player = Player(make_env())
        self._border = Border()

    def reset(self, seed: int) -> SentChat:
        """Begin an episode."""
        self._border = Border()
        return self._border.send_chat(self.player.reset(seed))

    def step(self, text: str | None) -> SentStep:
        """Play a text, and send no reply back; or one of the own policy."""
        reply, outcome = self.player.step(None if text is None else Reply(text))
        played = self._border.send_reply(reply) if text is None else None
        return (
            played,
            self._border.send_chat(outcome.chat),
            outcome.reward,
            outcome.terminated,
            outcome.truncated,
            outcome.info,
        )

    def restore(self, episode: tuple[int, Sequence[str]]) -> SentChat:
        """Play the texts of an episode with this seed again, and send the last chat whole."""
        seed, texts = episode
        chat = self.player.reset(seed)
        for text in texts:
            chat = self.player.step(Reply(text))[1].chat
        self._border = Border()
        return self._border.send_chat(chat)


class WorkerServer:
    """The far end of a worker: the players of many slots, and the policy that they share.

    Args:
        make_env: Makes an env; pickled by cloudpickle, as it may be a lambda.
        number: Which of the workers it is.
    """

    def __init__(self, make_env: bytes, number: int) -> None:
        self._make_env, self._number = make_env, number
        self._players: dict[int, PlayerServer] = {}
        self._load: MakeEnv | None = None
        self._policy: Any = None
        self._sent: bytes | Policy | None = None

    def use(self, policy: bytes | Policy) -> None:
        """Play with a copy of this policy; one that draws at random draws differently in each
        worker.
        """
        self._sent = policy  # loaded when it is needed, so that an error is an answer

    def answer(self, request: Request) -> FarAnswer:
        """Do what is asked of a slot; return whether it succeeded, and the answer or the error."""
        key, method, argument = request
        try:
            if method == "close":
                self.close(key)
                return True, None
            return True, getattr(self._player(key), method)(argument)
        except Exception as error:  # noqa: BLE001 - it is the other end that has to know
            return False, (describe(error), isinstance(error, PolicyError))

    def close(self, key: int) -> None:
        """Close the env of a slot, if it is open."""
        if (player := self._players.pop(key, None)) is not None:
            RareGarbageCollection.end(1)
            player.player.close()

    def close_all(self) -> None:
        """Close all envs."""
        for key in list(self._players):
            self.close(key)

    def _player(self, key: int) -> PlayerServer:
        if self._sent is not None:
            self._policy = (
                cloudpickle.loads(self._sent) if isinstance(self._sent, bytes) else self._sent
            )
            self._sent = None  # only now, so that an error is the answer to each request
            if hasattr(self._policy, "reseed"):
                self._policy.reseed(self._number)
            for player in self._players.values():
                player.player.policy = self._policy
        if key not in self._players:
            self._load = self._load or cloudpickle.loads(self._make_env)
            self._players[key] = PlayerServer(self._load)
            RareGarbageCollection.begin(1)
            self._players[key].player.policy = self._policy
        return self._players[key]


class Processes(WorkerEngine):
    """Processes that play the episodes of many slots each: for worlds that compute, and for tools
    that may crash or leak. A process that hangs is killed.

    Args:
        method: The start of processes: `forkserver` (quick; the server is never forked from a
            process with threads), `spawn`, `fork`.
        workers: The most processes, each of which plays one step at a time. As many slots have one
            each, further slots share them.
    """

    def __init__(self, method: str = "forkserver", workers: int = WORKERS) -> None:
        super().__init__(workers)
        self._context = get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload([__name__])

    def share(self, policy: Policy) -> bytes:
        """The policy as bytes, made once for all workers."""
        return bytes(cloudpickle.dumps(policy))

    def start(self, make_env: bytes, number: int) -> FarEnd:
        """Start a worker."""
        near, far = socket.socketpair()
        process: Any = self._context.Process(  # type: ignore[attr-defined]
            target=_serve,
            args=(far, make_env, number),
            name=f"agentgym-worker-{number}",
            daemon=True,
        )
        with far, _CHILDREN, interrupts_left_to_parent():
            process.start()
        return _Process(Frames(near), process)


class _Process(FarEnd):
    def __init__(self, frames: Frames, process: Any) -> None:
        self._frames, self._process = frames, process

    def play(self, policy: Any, requests: Sequence[Request]) -> Iterator[FarAnswer]:
        try:
            self._frames.send(pickle.dumps((policy, requests), pickle.HIGHEST_PROTOCOL))
            for _ in requests:
                yield decode_answer(self._frames.receive())
        except (EOFError, OSError) as error:
            self._join()
            raise WorkerDied(describe_exit(self._process.exitcode)) from error

    @property
    def alive(self) -> bool:
        with _CHILDREN:
            return bool(self._process.is_alive())

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._frames.close()  # the process reads the end of its input, closes its envs and ends
        if not self._join():
            self.kill()
            self._join()

    def _join(self) -> bool:
        """Wait for the end; return whether it has come."""
        ended = bool(wait([self._process.sentinel], GRACE))
        with _CHILDREN:
            self._process.join(0)
        return ended


def describe_exit(code: int | None) -> str:
    """Return the end of a worker process as a sentence; a negative code is that of a signal."""
    text = f"the worker process ended with exit code {code}"
    if code == -_SIGKILL:
        text += ": it was killed, perhaps for want of memory"
    return text


GONE = (EOFError, ConnectionError)
"""What reading from the parent and writing to it raise once it has closed its end, as it does at any
moment when it is interrupted.
"""


def _serve(stream: socket.socket, make_env: bytes, number: int) -> None:
    follow_the_parent()
    server, frames = WorkerServer(make_env, number), Frames(stream)
    try:
        while True:
            policy, requests = pickle.loads(frames.receive())
            if policy is not None:
                server.use(policy)
            for request in requests:
                frames.send(encode_answer(request[1], server.answer(request)))
    except GONE:
        server.close_all()


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
