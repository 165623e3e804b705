"""The bound on what is read of an answer of an HTTP API."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

MAX_BODY_BYTES = 64 * 2**20
"""Bytes of an answer that are read: ten times those of a reply of 32,000 tokens with log-probabilities."""
PLAIN = {"Accept-Encoding": "identity"}
"""Headers of requests: a compressed answer could unpack to a thousand times its size."""


async def bound_body(response: httpx2.Response) -> None:
    """Hook of a client: refuse an answer that is compressed, or longer than `MAX_BODY_BYTES`.

    Raises:
        httpx2.DecodingError: It is, then or when it is read.
    """
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise httpx2.DecodingError(
            f"the answer is compressed ({encoding[:20]!r}) although that was not asked for"
        )
    response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: object) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for part in self._stream:  # type: ignore[attr-defined]
            read += len(part)
            if read > MAX_BODY_BYTES:
                raise httpx2.DecodingError(f"the answer is longer than {MAX_BODY_BYTES} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()  # type: ignore[attr-defined]
