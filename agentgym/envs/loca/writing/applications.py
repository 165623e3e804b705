"""Applications for a PhD position and professors' replies."""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import numpy as np
from numpy.random import Generator

from agentgym.envs.loca.draws import load_texts, pick, whole
from agentgym.envs.loca.records import Fields, Record, Rows
from agentgym.envs.loca.writing.news import idle_values, inbox_news
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, PhraseBook
from agentgym.office.files.pdfs import write_pdf
from agentgym.office.files.workspace import Workspace

FLAT = "Application_Materials_flat"
ROOT = "Application_Materials_<Name>_<Student_ID>"
LETTER = "Recommendation_Letter_<Last_Name>-<n>.pdf"
LETTERS, OLDEST, NEWEST = "letters", "awards, oldest first", "awards, newest first"


_TEXTS = load_texts("applications")
THEMES: Rows = _TEXTS["themes"]
PAPERS: Record = {}
for _theme in THEMES:
    PAPERS |= _theme["papers"]
PAPER_OF_PHRASE: dict[str, str] = {}
for _paper, _forms in PAPERS.items():
    PAPER_OF_PHRASE |= dict.fromkeys(_forms["phrases"], _paper)
SLOTS = {**COMMON_SLOTS, "person": COMMON_SLOTS["name"]}
# Number of sentences in each part of a letter; the letter must fit on one page.
_LETTER_PART = 4
# Maps each path in the archive to the phrase that requests the paper.
Layout: TypeAlias = dict[str, str]


def draw_papers(
    rng: Generator, files: Workspace, name: str, student: str, others: Sequence[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Write the application papers, and return the letters and awards sorted by date."""
    for paper in (*PAPERS, "old_CV.pdf", "draft_Portfolio.pdf"):
        if not paper.endswith(".pdf"):
            continue
        title, number = paper.replace("_", " "), whole(rng, 10**9)
        lines = [title, name, f"Student ID {student}", f"Number {number}"]
        files.write(f"{FLAT}/{paper}", write_pdf([lines]))
    files.write(f"{FLAT}/Photo.png", _picture(rng))
    dated: dict[str, list[tuple[datetime, str, str]]] = {}
    for kind, count in (("letter", whole(rng, 2, 4)), ("award", whole(rng, 2, 5))):
        days = rng.choice(1_400, count, replace=False).tolist()
        numbers = (rng.permutation(count) + 1).tolist()
        for day, number, author in zip(days, numbers, [*others, ""], strict=False):
            when = datetime(2021, 1, 5) + timedelta(days=day)
            paper = f"{kind}_{number}.pdf"
            writers = [author, *(other for other in others if other != author)]
            files.write(f"{FLAT}/{paper}", write_pdf(_pages(rng, kind, name, when, writers)))
            dated.setdefault(kind, []).append((when, paper, author))
    letters = [(paper, author) for _, paper, author in sorted(dated["letter"])]
    return letters, [paper for _, paper, _ in sorted(dated["award"])]


@functools.cache
def papers_books() -> dict[str, PhraseBook]:
    """Return the phrase books for recommendation letters and award certificates."""
    return {kind: PhraseBook(_TEXTS[f"{kind}s"], SLOTS) for kind in ("letter", "award")}


def _pages(
    rng: Generator, kind: str, name: str, when: datetime, people: Sequence[str]
) -> list[list[str]]:
    later = when + timedelta(days=whole(rng, 1, 400))
    dates = [
        f"Date: {when.day} {when:%B %Y}",
        f"Registered by the office on {later.day} {later:%B %Y}",
    ]
    number = whole(rng, 10**6)
    values = functools.partial(_values, rng, name, when, number, people)

    def says(*counts: tuple[str, int]) -> str:
        book = papers_books()[kind]
        texts = []
        for part, count in counts:
            texts += book.write_some(part, rng, count, values)
        return " ".join(texts)

    if kind == "letter":
        about = says(("known", 1), ("work", _LETTER_PART))
        verdict = says(("person", _LETTER_PART), ("verdict", 2))
        title, author = "Letter of recommendation", f"Author: Prof. {people[0]}"
        return [[title, about, verdict, f"Number {number}", *dates, author]]
    about = says(("won", 1), ("reason", 1), ("event", 2))
    certificate = ["Certificate of an award", about, *dates]
    report = [f"Report of the jury of contest {number}", says(("jury", 5))]
    if rng.random() < 0.4:
        return [certificate, report]
    return [certificate]


def _values(
    rng: Generator, name: str, when: datetime, number: int, people: Sequence[str]
) -> Record:
    before, after = rng.integers(1, (500, 60)).tolist()
    return {
        "name": name,
        "one_person": people[1],
        "other_person": people[2],
        "number": whole(rng, 13, 90),
        "few_number": whole(rng, 3, 10),
        "big_number": number,
        "date": (when - timedelta(days=before)).date().isoformat(),
        "later_date": (when + timedelta(days=after)).date().isoformat(),
        "time": f"{whole(rng, 15, 22)}:00",
    }


def _picture(rng: Generator) -> bytes:
    pixels = rng.integers(0, 256, (16, 16), np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0)
    picture = b"\x89PNG\r\n\x1a\n"
    for chunk in (b"IHDR" + header, b"IDAT" + zlib.compress(rows), b"IEND"):
        picture += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return picture


def draw_layout(rng: Generator) -> Layout:
    """Draw an archive structure. Folders for different groups of papers may be equal or nested."""
    order = rng.permutation(len(THEMES))[: whole(rng, 3, len(THEMES) + 1)].tolist()
    style, numbered = whole(rng, 3), rng.random() < 0.5
    folder = ""
    layout: Layout = {}
    for k, place in enumerate(order, 1):
        theme = THEMES[place]
        own, papers = theme["folders"][style], list(theme["papers"])
        if numbered:
            own = f"{k:02}_{own}"
        kind = rng.random() if folder else 1.0
        if kind < 0.2 and "/" not in folder:
            folder = f"{folder}/{own}"
        elif kind >= 0.35:
            folder = own
        if OLDEST in papers:
            chosen = [pick(rng, papers)]
        else:
            chosen = [paper for paper in papers if rng.random() < 0.8] or papers[:1]
        for paper in chosen:
            forms = PAPERS[paper]
            phrase = pick(rng, forms["phrases"])
            layout[f"{folder}/{pick(rng, forms['files'])}"] = phrase
    return layout


def members_of(layout: Layout, root: str, letters: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Map the path of each file in the archive to a paper."""
    members = {}
    for path, phrase in layout.items():
        if PAPER_OF_PHRASE[phrase] != LETTERS:
            members[f"{root}/{path}"] = PAPER_OF_PHRASE[phrase]
            continue
        folder = path.rpartition("/")[0]
        for n, (paper, author) in enumerate(letters, 1):
            last = author.rsplit(maxsplit=1)[-1]
            name = LETTER.replace("<Last_Name>", last).replace("<n>", str(n))
            members[f"{root}/{folder}/{name}"] = paper
    return members


def draw_tree(rng: Generator, layout: Layout) -> str:
    """Format an archive structure as a list of paths or as a tree."""
    style = whole(rng, 3)
    if style == 0:
        return "\n".join(f"{ROOT}/{path} ({phrase})" for path, phrase in layout.items())
    nested: Record = {}
    for path, phrase in layout.items():
        *folders, name = path.split("/")
        place = nested
        for folder in folders:
            place = place.setdefault(f"{folder}/", {})
        place[f"{name} ({phrase})"] = {}
    return "\n".join([f"{ROOT}/", *_branches(nested, "", lines=style == 1)])


def _branches(nested: Fields, before: str, lines: bool) -> Iterator[str]:
    for k, (name, content) in enumerate(nested.items(), 1):
        joint, indent = "  ", "  "
        if lines and k == len(nested):
            joint, indent = "└── ", "    "
        elif lines:
            joint, indent = "├── ", "│   "
        yield f"{before}{joint}{name}"
        yield from _branches(content, before + indent, lines)


ASKING = ("ask", "changed")


@functools.cache
def replies_book() -> PhraseBook:
    """Return the phrase book for replies."""
    return PhraseBook(_TEXTS["mails"], COMMON_SLOTS)


def asks_for_papers(text: str) -> bool:
    """Return whether a reply requests application papers."""
    return any(kind in ASKING for kind, _ in replies_book().read(text))


class Correspondence:
    """Generator for the emails in a mailbox."""

    def __init__(self, rng: Generator, now: datetime, names: Sequence[str]) -> None:
        self._rng, self._values = rng, idle_values(rng, now, names)

    def says(self, kind: str) -> str:
        """Draw a sentence of the given kind."""
        return replies_book().write(kind, self._rng, self._values)

    def request(self, kind: str, tree: str) -> str:
        """Draw a reply that contains an archive structure."""
        begin = self.says("remark" if kind == "changed" else "opening")
        close = self.says("remark") if kind == "shown" else " ".join(self._some("end", 2))
        return f"{begin} {self.says(kind)}\n\n{tree}\n\n{close}"

    def refusal(self) -> str:
        """Draw a reply that asks the applicant for nothing."""
        return f"{self.says('opening')} {self._among_remarks('refused')}"

    def withdrawal(self) -> str:
        """Draw a reply that withdraws a request."""
        return self._among_remarks("closed")

    def absence(self) -> str:
        """Draw an automatic reply."""
        return " ".join(self._some("absent", 2))

    def news(self) -> tuple[str, str, str]:
        """Draw the sender, subject and text of an unrelated email."""
        if self._rng.integers(2):
            text = " ".join(self._some("campus", 4))
            return "news@campus.example.org", self.says("campus_subject"), text
        return inbox_news().draw(self._rng, self._values)

    def signed(self, text: str, name: str) -> str:
        """Add a greeting and a closing to a letter."""
        return f"{self.says('greeting')}\n\n{text}\n\n{self.says('closing')}\n{name}"

    def _some(self, kind: str, most: int) -> list[str]:
        count = whole(self._rng, 1, most + 1)
        return replies_book().write_some(kind, self._rng, count, lambda: self._values)

    def _among_remarks(self, kind: str) -> str:
        texts = self._some("remark", 2)
        texts.insert(whole(self._rng, len(texts) + 1), self.says(kind))
        return " ".join(texts)
