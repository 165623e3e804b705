"""Channel for the messages between agents: a limit per cycle, a word budget and noise."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

import numpy as np

from agentgym.text.validation import check_float, check_int

# Characters per cycle; the limit protects the other agents' contexts.
MAX_MESSAGE = 16_384

# Longer runs of characters count as several words, so that omitting spaces saves no words.
_WORD_CHARS = 20
# The text that announces noise in system messages.
NOISE_NOTE = "Words of a message may be lost or swapped on the way."
_WORD = re.compile(rf"(\S{{1,{_WORD_CHARS}}})")


@dataclass(frozen=True)
class Channel:
    """Limits and noise of the messages between agents.

    Attributes:
        max_message: The maximum number of characters that an agent can receive per cycle.
        message_words: The maximum number of words that an agent may send per episode; None for no
            limit.
        message_noise: The probability, in [0, 1], that a word is lost or swapped with the next
            word.
    """

    max_message: int = MAX_MESSAGE
    message_words: int | None = None
    message_noise: float = 0.0

    def __post_init__(self) -> None:
        check_int("max_message", self.max_message, 1, 131_072)
        if self.message_words is not None:
            check_int("message_words", self.message_words, 1, 10**9)
        check_float("message_noise", self.message_noise, 0.0, 1.0)

    @property
    def note(self) -> str:
        """Return the sentences about limits for system messages, if any."""
        note = ""
        if self.message_words is not None:
            note += (
                f" Each agent can send {self.message_words} words in the episode; a word has at "
                f"most {_WORD_CHARS} characters."
            )
        if self.message_noise:
            note += f" {NOISE_NOTE}"
        return note

    def garble(self, text: str, moment: str) -> str:
        """Return the text with random noise, seeded by `moment`."""
        if not self.message_noise:
            return text
        rng = np.random.default_rng(zlib.crc32(f"{moment}:noise".encode()))
        pieces = _WORD.split(text)  # words have odd indices
        places = range(1, len(pieces), 2)
        for place, fate in zip(places, rng.random(len(places)), strict=True):
            following = min(place + 2, places[-1])
            if fate < self.message_noise / 2:
                pieces[place] = ""
            elif fate < self.message_noise:
                pieces[place], pieces[following] = pieces[following], pieces[place]
        return "".join(pieces)


def count_words(text: str) -> int:
    """Count the words of a text; a word longer than 20 characters counts as several words."""
    return len(_WORD.findall(text))
