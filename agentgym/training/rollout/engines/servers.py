"""Code that runs inside workers, including the encoding of answers."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Mapping
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium
import msgspec

from agentgym.play.policy import Reply
from agentgym.training.rollout.engines.base import (
    YOUNG,
    YOUNG_PER_SLOT,
    Failure,
    MakeEnv,
    failure_of,
)
from agentgym.training.rollout.engines.deltas import Border, ChatDelta
from agentgym.training.rollout.episode import play_reply
from agentgym.training.rollout.faults import describe

# A request: the slot's key, the method's name and the argument.
Request = tuple[int, str, Any]
SentStep = tuple[ChatDelta, float, bool, bool, Mapping[str, Any]]
# The answer to a request: whether the request succeeded, and the result or failure.
FarAnswer = tuple[bool, Any]

_PICKLED, _CHAT, _STEP = b"p", b"c", b"s"
_FORMS = {"reset": _CHAT, "step": _STEP}
_DECODERS: dict[bytes, msgspec.msgpack.Decoder[Any]] = {
    _CHAT: msgspec.msgpack.Decoder(ChatDelta),
    _STEP: msgspec.msgpack.Decoder(SentStep),
}
_encode = msgspec.msgpack.Encoder().encode
# Errors that msgspec raises for integers over 64 bits, lone surrogates and arrays.
_BEYOND = (TypeError, OverflowError, UnicodeEncodeError, RecursionError)


class EnvServer:
    """Remote side of a slot, which sends only the new messages of each chat."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env, self._border = env, Border()

    def reset(self, seed: int) -> ChatDelta:
        """Start an episode."""
        self._border = Border()
        return self._border.send(self.env.reset(seed=seed)[0])

    def step(self, sent: tuple[str, str]) -> SentStep:
        """Play a reply, sent as its `text` and `ended` fields."""
        outcome = play_reply(self.env, Reply(sent[0], ended=sent[1]))
        return (
            self._border.send(outcome.chat),
            outcome.reward,
            outcome.terminated,
            outcome.truncated,
            outcome.info,
        )


class WorkerServer:
    """Remote side of a worker, with the envs of many slots."""

    def __init__(self, make_env: bytes) -> None:
        self._make_env = make_env
        self._envs: dict[int, EnvServer] = {}
        self._load: MakeEnv | None = None

    def answer(self, request: Request) -> FarAnswer:
        """Run a slot's request; return whether the request succeeded, and the result or failure."""
        key, method, argument = request
        try:
            if method == "close":
                self.close(key)
                return True, None
            return True, getattr(self._env(key), method)(argument)
        except Exception as error:  # noqa: BLE001 - the parent reports it with the episode
            return False, failure_of(error)

    def close(self, key: int) -> None:
        """Close a slot's env, if open."""
        if (server := self._envs.pop(key, None)) is not None:
            server.env.close()

    def close_all(self) -> None:
        """Close all envs."""
        for key in list(self._envs):
            self.close(key)

    def _env(self, key: int) -> EnvServer:
        if key not in self._envs:
            self._load = self._load or cloudpickle.loads(self._make_env)
            self._envs[key] = EnvServer(self._load())
            gc.set_threshold(max(YOUNG, YOUNG_PER_SLOT * len(self._envs)))
        return self._envs[key]


def encode_answer(method: str, answer: FarAnswer) -> bytes:
    """Encode the answer to a request, or an error if the answer cannot be pickled."""
    # MessagePack is five times as fast as pickle, because pickle looks up every class.
    succeeded, content = answer
    if succeeded and method in _FORMS:
        try:
            return _FORMS[method] + _encode(content)
        except _BEYOND:
            pass
    try:
        return _PICKLED + pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - a user's objects may raise anything when pickled
        return _PICKLED + pickle.dumps((False, Failure(f"cannot be sent: {describe(error)}")))


def decode_answer(data: bytes) -> FarAnswer:
    """Decode an answer; a value of the wrong type becomes a failure."""
    form = data[:1]
    if form == _PICKLED:
        return pickle.loads(data[1:])  # type: ignore[no-any-return]
    try:
        return True, _DECODERS[form].decode(memoryview(data)[1:])
    except msgspec.DecodeError as error:
        return False, Failure(f"cannot be sent: {describe(error)}")
