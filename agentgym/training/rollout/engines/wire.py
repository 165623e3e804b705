"""Wire format of requests and answers between the parent and a worker process."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from socket import socket
from typing import Any

import msgspec

from agentgym.training.rollout.engines.base import describe
from agentgym.training.rollout.engines.deltas import ChatDelta, ReplyDelta

SentChat = tuple[int, ChatDelta]
SentStep = tuple[tuple[int, ReplyDelta] | None, SentChat, float, bool, bool, Mapping[str, Any]]
"""The reply of the worker's own policy, if any, and the outcome of the step."""
FarAnswer = tuple[bool, Any]
"""Whether a request succeeded, and its result; or the error and whether the policy raised it."""

_PICKLED, _CHAT, _STEP = b"p", b"c", b"s"
_FORMS = {"reset": _CHAT, "restore": _CHAT, "step": _STEP}
_DECODERS: dict[bytes, msgspec.msgpack.Decoder[Any]] = {
    _CHAT: msgspec.msgpack.Decoder(SentChat),
    _STEP: msgspec.msgpack.Decoder(SentStep),
}
_encode = msgspec.msgpack.Encoder().encode
# Raised by msgspec for values that MessagePack cannot encode: integers beyond 64 bits, lone
# surrogates, arrays.
_BEYOND = (TypeError, OverflowError, UnicodeEncodeError, RecursionError)
# Bytes of a frame's length: policy weights may exceed 4 GiB.
_HEAD = 8
# Bytes per read: about two hundred answers.
_READ = 1 << 16


def encode_answer(method: str, answer: FarAnswer) -> bytes:
    """Encode an answer to a request for this method.

    MessagePack takes a fifth of the time of pickle, which looks up every object's class. Values
    that MessagePack cannot encode are pickled; values that cannot be pickled become an error
    answer.
    """
    succeeded, content = answer
    if succeeded and method in _FORMS:
        try:
            return _FORMS[method] + _encode(content)
        except _BEYOND:
            pass
    try:
        return _PICKLED + pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - objects of a user's env may raise anything when pickled
        return _PICKLED + pickle.dumps((False, (f"cannot be sent: {describe(error)}", False)))


def decode_answer(data: bytes) -> FarAnswer:
    """Decode an answer; values of unexpected types become an error answer."""
    form = data[:1]
    if form == _PICKLED:
        return pickle.loads(data[1:])  # type: ignore[no-any-return]
    try:
        return True, _DECODERS[form].decode(memoryview(data)[1:])
    except msgspec.DecodeError as error:
        return False, (f"cannot be sent: {describe(error)}", False)


class Frames:
    """One end of a stream of length-prefixed frames.

    Each read takes all available bytes: a read releases the interpreter lock and then has to wait
    for it.

    Args:
        stream: The socket.
    """

    def __init__(self, stream: socket) -> None:
        stream.settimeout(None)  # override the process-wide default timeout
        self._stream = stream
        self._data = bytearray()

    def send(self, frame: bytes) -> None:
        """Send a frame.

        Raises:
            OSError: The other end is gone.
        """
        head = len(frame).to_bytes(_HEAD, "little")
        if len(frame) < _READ:
            self._stream.sendall(head + frame)
        else:
            self._stream.sendall(head)
            self._stream.sendall(frame)

    def receive(self) -> bytes:
        """Wait for a frame and return it.

        Raises:
            EOFError: The other end closed the stream.
            OSError: The other end is gone.
        """
        end = _HEAD + int.from_bytes(self._read(_HEAD)[:_HEAD], "little")
        frame = bytes(memoryview(self._read(end))[_HEAD:end])
        del self._data[:end]
        return frame

    def close(self) -> None:
        """Close this end."""
        self._stream.close()

    def _read(self, size: int) -> bytearray:
        """Read until at least `size` bytes are buffered."""
        while len(self._data) < size:
            data = self._stream.recv(_READ)
            if not data:
                raise EOFError
            self._data += data
        return self._data
