"""The remote side of workers, and the encoding of its answers."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Mapping
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import msgspec

from agentgym.play.policy import Reply
from agentgym.training.rollout.engines.base import (
    YOUNG,
    YOUNG_PER_SLOT,
    Failure,
    MakeEnv,
    failure_of,
)
from agentgym.training.rollout.engines.deltas import Border, ChatDelta, ReplyDelta
from agentgym.training.rollout.episode import Player
from agentgym.training.rollout.faults import describe
from agentgym.training.rollout.user_policy import UserPolicy

# The slot's key, the method and its argument.
Request = tuple[int, str, Any]
# A reply of the worker's own policy, and the outcome of its step.
SentStep = tuple[ReplyDelta | None, ChatDelta, float, bool, bool, Mapping[str, Any]]
# Whether a request succeeded, with the answer or the failure.
FarAnswer = tuple[bool, Any]

_PICKLED, _CHAT, _STEP = b"p", b"c", b"s"
_FORMS = {"reset": _CHAT, "step": _STEP}
_DECODERS: dict[bytes, msgspec.msgpack.Decoder[Any]] = {
    _CHAT: msgspec.msgpack.Decoder(ChatDelta),
    _STEP: msgspec.msgpack.Decoder(SentStep),
}
_encode = msgspec.msgpack.Encoder().encode
# msgspec's errors for values without a MessagePack form: integers over 64 bits, lone surrogates,
# arrays.
_BEYOND = (TypeError, OverflowError, UnicodeEncodeError, RecursionError)


class PlayerServer:
    """Remote side of a slot, which sends only the new part of chats and prompts."""

    def __init__(self, make_env: MakeEnv) -> None:
        self.player = Player(make_env())
        self._border = Border()

    def reset(self, episode: tuple[int, str]) -> ChatDelta:
        """Start an episode with this seed and id."""
        self._border = Border()
        return self._border.send_chat(self.player.reset(*episode))

    def step(self, sent: tuple[str, str] | None) -> SentStep:
        """Play a reply, sent as `text` and `ended`, or the own policy's."""
        reply, outcome = self.player.step(None if sent is None else Reply(sent[0], ended=sent[1]))
        played = self._border.send_reply(reply) if sent is None else None
        return (
            played,
            self._border.send_chat(outcome.chat),
            outcome.reward,
            outcome.terminated,
            outcome.truncated,
            outcome.info,
        )


class WorkerServer:
    """Remote side of a worker: the players of many slots, and their shared policy."""

    def __init__(self, make_env: bytes, number: int) -> None:
        self._make_env, self._number = make_env, number
        self._players: dict[int, PlayerServer] = {}
        self._load: MakeEnv | None = None
        self._policy: Any = None
        self._sent: bytes | UserPolicy | None = None

    def use(self, policy: bytes | UserPolicy) -> None:
        """Play with a copy of this policy; a random policy draws differently in each worker."""
        self._sent = policy  # loaded on demand, so that an error becomes an answer

    def answer(self, request: Request) -> FarAnswer:
        """Run a slot's request; return success, and the answer or failure."""
        key, method, argument = request
        try:
            if method == "close":
                self.close(key)
                return True, None
            return True, getattr(self._player(key), method)(argument)
        except Exception as error:  # noqa: BLE001 - the parent reports it with the episode
            return False, failure_of(error)

    def close(self, key: int) -> None:
        """Close a slot's env, if open."""
        if (player := self._players.pop(key, None)) is not None:
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
            self._sent = None  # only now, so that an error answers every request
            if hasattr(self._policy, "reseed"):
                self._policy.reseed(self._number)
            for player in self._players.values():
                player.player.policy = self._policy
        if key not in self._players:
            self._load = self._load or cloudpickle.loads(self._make_env)
            self._players[key] = PlayerServer(self._load)
            gc.set_threshold(max(YOUNG, YOUNG_PER_SLOT * len(self._players)))
            self._players[key].player.policy = self._policy
        return self._players[key]


def encode_answer(method: str, answer: FarAnswer) -> bytes:
    """Encode the answer to a request, or the error if it cannot be pickled."""
    # MessagePack takes a fifth of the time of pickle, which looks up every class.
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
    """Decode an answer; wrong types become an error."""
    form = data[:1]
    if form == _PICKLED:
        return pickle.loads(data[1:])  # type: ignore[no-any-return]
    try:
        return True, _DECODERS[form].decode(memoryview(data)[1:])
    except msgspec.DecodeError as error:
        return False, Failure(f"cannot be sent: {describe(error)}")
