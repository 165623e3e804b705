"""Applications for a PhD position: their papers, the structures in which professors ask for them,
and the replies of professors.

Some replies ask for papers in a structure. Others show one and ask for nothing, refuse, or take
back what they have asked for.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import numpy as np

from agentgym.envs.loca.draws import pick
from agentgym.envs.loca.writing.news import idle_values, inbox_news
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, PhraseBook, load_texts
from agentgym.office.files.pdfs import write_pdf
from agentgym.office.files.workspace import Workspace

FLAT = "Application_Materials_flat"
ROOT, LETTER = (
    "Application_Materials_<Name>_<Student_ID>",
    "Recommendation_Letter_<Last_Name>-<n>.pdf",
)
LETTERS, OLDEST, NEWEST = "letters", "awards, oldest first", "awards, newest first"
PAPERS = {
    "CV.pdf": (("your CV", "your curriculum vitae"), ("Resume.pdf", "CV.pdf", "Curriculum_Vitae.pdf")),
    "ID_Card.pdf": (("a copy of your ID card", "your ID card"), ("ID_Card.pdf", "Identity.pdf")),
    "Photo.png": (("a photo of you", "your photo"), ("Photo.png", "Portrait.png")),
    "Transcript.pdf": (("your transcript", "a list of your grades"), ("Transcript.pdf", "Grades.pdf", "Academic_Record.pdf")),
    "Enrollment_Certificate.pdf": (("your certificate of enrollment",), ("Enrollment_Certificate.pdf", "Enrollment.pdf")),
    "Portfolio.pdf": (("your portfolio",), ("Portfolio.pdf", "Works.pdf")),
    "Project_Report.pdf": (("the report on your project", "your project report"), ("Project_Report.pdf", "Report.pdf")),
    LETTERS: (
        ("one file for each letter of recommendation; n counts them by date, from 1 for the oldest on",
         "each letter of recommendation, with the last name of its author and n = 1, 2, … by date, oldest first"),
        (LETTER,),
    ),
    OLDEST: (("all award certificates in one file, oldest first",), ("All_Awards_Certificates.pdf", "Awards.pdf")),
    NEWEST: (("all award certificates in one file, newest first",), ("All_Awards_Certificates.pdf", "Awards.pdf")),
}  # fmt: skip
"""The papers, files or parts made of several, each with its phrases in mails and its names in
archives.
"""
PAPER_OF_PHRASE = {phrase: paper for paper, (phrases, _) in PAPERS.items() for phrase in phrases}
THEMES = (
    (("Personal", "Personal_Information", "Basics"), ("CV.pdf", "ID_Card.pdf", "Photo.png")),
    (("Academic", "Education", "Study_Records"), ("Transcript.pdf", "Enrollment_Certificate.pdf")),
    (("Work", "Projects", "Research_Work"), ("Portfolio.pdf", "Project_Report.pdf")),
    (("Letters", "Recommendation", "References"), (LETTERS,)),
    (("Awards", "Honours", "Certificates"), (OLDEST, NEWEST)),
)
SLOTS = {**COMMON_SLOTS, "person": COMMON_SLOTS["name"]}
"""The types of slots in letters and certificates."""
_LETTER_PART = 4
"""Sentences each on the work and on the person: a letter of a page."""
Layout: TypeAlias = dict[str, str]
"""The phrase for each paper, by its path in the archive."""


def draw_papers(
    rng: np.random.Generator, files: Workspace, name: str, student: str, others: Sequence[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Write the papers; return the letters with their authors, and the awards, each by date."""
    for paper in (*PAPERS, "old_CV.pdf", "draft_Portfolio.pdf"):
        if paper.endswith(".pdf"):
            lines = [
                paper.replace("_", " "),
                name,
                f"Student ID {student}",
                f"Number {int(rng.integers(10**9))}",
            ]
            files.write(f"{FLAT}/{paper}", write_pdf([lines]))
    files.write(f"{FLAT}/Photo.png", _picture(rng))
    dated: dict[str, list[tuple[datetime, str, str]]] = {}
    for kind, count in (("letter", int(rng.integers(2, 4))), ("award", int(rng.integers(2, 5)))):
        days = rng.choice(1_400, count, replace=False).tolist()
        numbers = (rng.permutation(count) + 1).tolist()
        for day, number, author in zip(days, numbers, [*others, ""], strict=False):
            when = datetime(2021, 1, 5) + timedelta(days=day)
            paper = f"{kind}_{number}.pdf"
            writers = [author, *(other for other in others if other != author)]
            files.write(f"{FLAT}/{paper}", write_pdf(_pages(rng, kind, name, when, writers)))
            dated.setdefault(kind, []).append((when, paper, author))
    return (
        [(paper, author) for _, paper, author in sorted(dated["letter"])],
        [paper for _, paper, _ in sorted(dated["award"])],
    )


@functools.cache
def papers_books() -> dict[str, PhraseBook]:
    """Return the sentences of letters of recommendation and of certificates of awards."""
    texts = load_texts("applications")
    return {kind: PhraseBook(texts[f"{kind}s"], SLOTS) for kind in ("letter", "award")}


def _pages(
    rng: np.random.Generator, kind: str, name: str, when: datetime, people: Sequence[str]
) -> list[list[str]]:
    """Draw the pages of a letter by the first of some people, or of an award."""
    later = when + timedelta(days=int(rng.integers(1, 400)))
    dates = [
        f"Date: {when.day} {when:%B %Y}",
        f"Registered by the office on {later.day} {later:%B %Y}",
    ]
    number = int(rng.integers(10**6))
    values = functools.partial(_values, rng, name, when, number, people)

    def says(*counts: tuple[str, int]) -> str:
        book = papers_books()[kind]
        return " ".join(
            text for part, count in counts for text in book.write_some(part, rng, count, values)
        )

    if kind == "letter":
        about = says(("known", 1), ("work", _LETTER_PART))
        verdict = says(("person", _LETTER_PART), ("verdict", 2))
        title, author = "Letter of recommendation", f"Author: Prof. {people[0]}"
        return [[title, about, verdict, f"Number {number}", *dates, author]]
    about = says(("won", 1), ("reason", 1), ("event", 2))
    report = [[f"Report of the jury of contest {number}", says(("jury", 5))]]
    return [["Certificate of an award", about, *dates], *(report if rng.random() < 0.4 else [])]


def _values(
    rng: np.random.Generator, name: str, when: datetime, number: int, people: Sequence[str]
) -> dict[str, Any]:
    """Draw values for the slots of a sentence about an applicant."""
    before, after = (timedelta(days=int(days)) for days in rng.integers(1, (500, 60)))
    return {
        "name": name,
        "one_person": people[1],
        "other_person": people[2],
        "number": int(rng.integers(13, 90)),
        "few_number": int(rng.integers(3, 10)),
        "big_number": number,
        "date": (when - before).date().isoformat(),
        "later_date": (when + after).date().isoformat(),
        "time": f"{int(rng.integers(15, 22))}:00",
    }


def _picture(rng: np.random.Generator) -> bytes:
    """Draw a PNG file of 16 times 16 pixels, with 8 bits of grey each."""
    rows = b"".join(b"\0" + row.tobytes() for row in rng.integers(0, 256, (16, 16), np.uint8))
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


def draw_layout(rng: np.random.Generator) -> Layout:
    """Draw folders and files to ask for: some themes, each in a folder of its own, in the folder of
    the theme before, or in one below that.
    """
    order = rng.permutation(len(THEMES))[: int(rng.integers(3, len(THEMES) + 1))].tolist()
    style, numbered, folder = int(rng.integers(3)), bool(rng.random() < 0.5), ""
    layout: Layout = {}
    for k, (names, papers) in enumerate((THEMES[theme] for theme in order), 1):
        own = f"{k:02}_{names[style]}" if numbered else names[style]
        kind = rng.random() if folder else 1.0
        if kind < 0.2 and "/" not in folder:
            folder = f"{folder}/{own}"
        elif kind >= 0.35:
            folder = own
        if OLDEST in papers:
            chosen = [pick(rng, papers)]
        elif not (chosen := [paper for paper in papers if rng.random() < 0.8]):
            chosen = [papers[0]]
        for paper in chosen:
            phrases, called = PAPERS[paper]
            phrase = pick(rng, phrases)
            layout[f"{folder}/{pick(rng, called)}"] = phrase
    return layout


def members_of(layout: Layout, root: str, letters: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the paper of each file of the archive, by its path."""
    members = {}
    for path, phrase in layout.items():
        if PAPER_OF_PHRASE[phrase] != LETTERS:
            members[f"{root}/{path}"] = PAPER_OF_PHRASE[phrase]
            continue
        for n, (paper, author) in enumerate(letters, 1):
            name = LETTER.replace("<Last_Name>", author.rsplit(maxsplit=1)[-1]).replace(
                "<n>", str(n)
            )
            members[f"{root}/{path.rpartition('/')[0]}/{name}"] = paper
    return members


def draw_tree(rng: np.random.Generator, layout: Layout) -> str:
    """Write a structure as paths, as an indented tree, or as a tree with lines."""
    style = int(rng.integers(3))
    if style == 0:
        return "\n".join(f"{ROOT}/{path} ({what})" for path, what in layout.items())
    nested: dict[str, Any] = {}
    for path, what in layout.items():
        *folders, name = path.split("/")
        place = nested
        for folder in folders:
            place = place.setdefault(f"{folder}/", {})
        place[name] = what
    return "\n".join([f"{ROOT}/", *_branches(nested, "", lines=style == 1)])


def _branches(nested: Mapping[str, Any], before: str, lines: bool) -> Iterator[str]:
    for k, (name, content) in enumerate(nested.items()):
        last = k == len(nested) - 1
        joint, on = (("└── ", "    ") if last else ("├── ", "│   ")) if lines else ("  ", "  ")
        if isinstance(content, str):
            yield f"{before}{joint}{name} ({content})"
        else:
            yield f"{before}{joint}{name}"
            yield from _branches(content, before + on, lines)


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
        return inbox_news().draw(self._rng, self._values)

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
