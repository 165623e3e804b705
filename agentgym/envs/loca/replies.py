"""Replies of professors to somebody who looks for a PhD position: their wording, and their reading.

Some ask for papers in a structure. Others show one and ask for nothing, refuse, or take back what
they have asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from agentgym.envs.loca.draws import pick
from agentgym.envs.loca.news import idle_values, inbox_news
from agentgym.envs.loca.phrase_book import PhraseBook, load_texts
from agentgym.envs.loca.slots import COMMON_SLOTS

ASKING = ("ask", "changed")
"""The kinds of sentences that ask for papers."""


@functools.cache
def replies_book() -> PhraseBook:
    """Return the sentences of replies."""
    return PhraseBook(load_texts("applications")["mails"], COMMON_SLOTS)


def asks_for_papers(text: str) -> bool:
    """Return whether a reply asks for papers, to be sent to its writer now."""
    return any(kind in ASKING for kind, _ in replies_book().read(text))


class Correspondence:
    """Draws what stands in a mailbox.

    Args:
        rng: The generator to draw from.
        now: About when the mails are written.
        names: People whom others write about.
    """

    def __init__(self, rng: np.random.Generator, now: datetime, names: Sequence[str]) -> None:
        self._rng, self._values = rng, idle_values(rng, now, names)

    def says(self, kind: str) -> str:
        """Draw a sentence of a kind."""
        return replies_book().write(kind, self._rng, self._values)

    def request(self, kind: str, tree: str) -> str:
        """Draw a reply around a structure; a later one does not begin like an answer."""
        begin = self.says("remark" if kind == "changed" else "opening")
        close = self.says("remark") if kind == "shown" else " ".join(self._some("end", 2))
        return f"{begin} {self.says(kind)}\n\n{tree}\n\n{close}"

    def refusal(self) -> str:
        """Draw a reply that asks for nothing and shows no structure."""
        return f"{self.says('opening')} {self._among_remarks('refused')}"

    def withdrawal(self) -> str:
        """Draw a reply that takes back a request."""
        return self._among_remarks("closed")

    def absence(self) -> str:
        """Draw an automatic reply."""
        return " ".join(self._some("absent", 2))

    def news(self) -> tuple[str, str, str]:
        """Draw sender, subject and text of a mail from the university or anywhere else."""
        if self._rng.integers(2):
            text = " ".join(self._some("campus", 4))
            return "news@campus.example.org", self.says("campus_subject"), text
        news = inbox_news()
        topic = pick(self._rng, news.topics)
        return news.draw(self._rng, topic, self._values)

    def signed(self, text: str, name: str) -> str:
        """Draw greeting and closing of a letter."""
        return f"{self.says('greeting')}\n\n{text}\n\n{self.says('closing')}\n{name}"

    def _some(self, kind: str, most: int) -> list[str]:
        """Draw one or more sentences of a kind."""
        count = int(self._rng.integers(1, most + 1))
        return replies_book().write_some(kind, self._rng, count, lambda: self._values)

    def _among_remarks(self, kind: str) -> str:
        texts = self._some("remark", 2)
        texts.insert(int(self._rng.integers(len(texts) + 1)), self.says(kind))
        return " ".join(texts)
