"""Words of an episode: the texts and numbers that a chat has shown, for calls that reach deep
states.
"""

from __future__ import annotations

import re
from collections import deque

import numpy as np

_PAIR = re.compile(r'"(\w{1,40})"\s*:\s*(?:"((?:[^"\\\n]|\\.){1,120})"|(-?\d{1,18}(?:\.\d{1,6})?))')
"""A member of a JSON object in a result, which an argument of that name may ask for."""
_WORD = re.compile(r"[^\s\"'`,;:()\[\]{}<>|=*]{2,80}")
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,18}(?![\w.])")

_READ_CHARS = 20_000
"""The characters of a message that are read: more than enough words, at a bounded cost."""
_VALUES = 400
"""The values that are remembered, latest last: those of the last messages."""
_VALUES_BY_NAME = 40
"""The values that are remembered for each name."""

Value = str | int | float


class Vocabulary:
    """Values that were shown in an episode, by name where they had one."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque(maxlen=_VALUES)
        self._numbers: deque[int] = deque([0, 1, 2], maxlen=_VALUES)
        self._named: dict[str, deque[Value]] = {}

    def read(self, text: str) -> None:
        """Take in the words of a message."""
        text = text[:_READ_CHARS]
        for name, string, number in _PAIR.findall(text):
            value: Value = string if not number else float(number) if "." in number else int(number)
            self.note(name, value)
        self._texts.extend(word.rstrip(".?!") for word in _WORD.findall(text))
        self._numbers.extend(map(int, _NUMBER.findall(text)))

    def note(self, name: str, value: Value) -> None:
        """Take in a value of an argument or of a member of a result."""
        self._named.setdefault(name, deque(maxlen=_VALUES_BY_NAME)).append(value)

    def text(self, rng: np.random.Generator, name: str) -> str:
        """Return a text that was shown, preferably under a name; a short new one if there was
        none.
        """
        value = self._value(rng, name, str)
        if isinstance(value, str):
            return value
        if self._texts and rng.random() < 0.8:
            return self._texts[int(rng.integers(len(self._texts)))]
        return "".join(chr(97 + k) for k in rng.integers(26, size=int(rng.integers(1, 9))))

    def number(self, rng: np.random.Generator, name: str) -> int:
        """Return a whole number that was shown, preferably under a name."""
        value = self._value(rng, name, int)
        if isinstance(value, int):
            return value
        return self._numbers[int(rng.integers(len(self._numbers)))]

    def _value(self, rng: np.random.Generator, name: str, kind: type) -> Value | None:
        """Return a value of a type that was shown under a name, or under the end of it: `id` for
        `course_id`.
        """
        values = self._named.get(name) or self._named.get(name.rpartition("_")[2])
        fitting = [value for value in values or () if type(value) is kind]
        if not fitting or rng.random() < 0.3:
            return None
        return fitting[int(rng.integers(len(fitting)))]
