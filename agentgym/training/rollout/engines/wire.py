"""Encoding of requests and answers between processes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import msgspec

from agentgym.training.rollout.engines.base import Failure
from agentgym.training.rollout.engines.deltas import ChatDelta, ReplyDelta
from agentgym.training.rollout.faults import describe

SentChat = tuple[int, ChatDelta]
# A reply of the worker's own policy, and the outcome of its step.
SentStep = tuple[tuple[int, ReplyDelta] | None, SentChat, float, bool, bool, Mapping[str, Any]]
# Whether a request succeeded, with the answer or the failure.
FarAnswer = tuple[bool, Any]

_PICKLED, _CHAT, _STEP = b"p", b"c", b"s"
_FORMS = {"reset": _CHAT, "step": _STEP}
_DECODERS: dict[bytes, msgspec.msgpack.Decoder[Any]] = {
    _CHAT: msgspec.msgpack.Decoder(SentChat),
    _STEP: msgspec.msgpack.Decoder(SentStep),
}
_encode = msgspec.msgpack.Encoder().encode
# msgspec's errors for values without a MessagePack form: integers over 64 bits, lone surrogates,
# arrays.
_BEYOND = (TypeError, OverflowError, UnicodeEncodeError, RecursionError)


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
    except Exception as error:  # noqa: BLE001 - objects of a user's env raise anything when they are pickled
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

