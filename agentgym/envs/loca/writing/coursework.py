"""University courses, and announcements that change the coursework."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.random import Generator

from agentgym.envs.loca.draws import DrawnValues, load_texts, shuffled, whole
from agentgym.envs.loca.records import Record
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, PhraseBook, PhraseSlot


@dataclass(frozen=True, slots=True)
class Course:
    """A course with a unique name. The hundreds digit of the course code is the level."""

    code: str
    name: str
    subject: str


def draw_courses(rng: Generator, count: int) -> list[Course]:
    """Draw different courses."""
    texts, catalogue = load_texts("subjects"), []
    for department, subjects in texts["departments"].items():
        for place, subject in enumerate(subjects):
            for level, title in enumerate(texts["levels"]):
                catalogue.append((department, level, place, subject, title.format(subject)))
    total = len(catalogue)
    courses = []
    for number in map(int, rng.permutation(total * -(-count // total))[:count]):
        part, index = divmod(number, total)
        department, level, place, subject, name = catalogue[index]
        if part:
            name += f", Part {part + 1}"
        code = f"{department}{1000 * part + 100 * (level + 1) + 10 * place + 1}"
        courses.append(Course(code, name, subject))
    return courses


# A threshold that exempts nobody, because nobody has so many points.
NOBODY = 10**6
ASSIGNMENTS = ("Homework", "Project", "Essay")
SLOTS = {
    **COMMON_SLOTS,
    "code": PhraseSlot(r"[A-Z]+[0-9]+-[0-9]+"),
    "title": PhraseSlot(r"[A-Z]+[0-9]+-[0-9]+ [A-Z][a-z]+(?: Quiz)? [0-9]+"),
}
_LIMITS = (80, 85, 90, 95)  # thresholds for an exemption, in points
_NOTE_RATE = 0.25  # share of required items whose description states that they are required
_RESTORED_RATE = 0.35  # share of dropped items that are restored later
_CHANGE_ASIDES = ("aside", "workload_aside")
# Number of news items added to each announcement.
_NEWS = 2
_TYPES = {
    "choice": "multiple_choice_question",
    "right": "true_false_question",
    "wrong": "true_false_question",
    "short": "short_answer_question",
    "essay": "essay_question",
}


class Post(NamedTuple):
    """An announcement."""

    title: str
    text: str


@functools.cache
def coursework_book() -> PhraseBook:
    """Return the phrase book for quizzes and assignments."""
    return PhraseBook(load_texts("coursework"), SLOTS)


def draw_questions(rng: Generator, code: str, count: int) -> list[Record]:
    """Draw distinct quiz questions, worth ten points each."""
    bank = load_texts("questions")[code.rstrip("0123456789-")]
    pool = []
    for kind, group in bank.items():
        pool += [(kind, question) for question in group]
    drawn = shuffled(rng, pool, count)
    return [_question(rng, place, *each) for place, each in enumerate(drawn, 1)]


def _question(rng: Generator, place: int, kind: str, question: Any) -> Record:
    text, options = question, []
    if kind == "choice":
        text, right, *wrong = question
        options = shuffled(rng, [(right, 100), *((option, 0) for option in wrong)])
    elif kind in ("right", "wrong"):
        options = [("True", 100 * (kind == "right")), ("False", 100 * (kind == "wrong"))]
    return {
        "question_name": f"Question {place}",
        "question_text": text,
        "question_type": _TYPES[kind],
        "points_possible": 10,
        "answers": [{"answer_text": option, "answer_weight": weight} for option, weight in options],
    }


def describe_quiz(rng: Generator, course: Course, part: int, voluntary: bool) -> str:
    """Draw the description of a quiz."""
    values = _values(rng, (13, 40), (3, 10), name=course.subject, part_number=part)
    texts = coursework_book().write_some("quiz", rng, 7, lambda: values)
    return _with_note(rng, texts, voluntary)


def describe_assignment(
    rng: Generator, course: Course, kind: str, part: int, voluntary: bool
) -> str:
    """Draw the description of an assignment."""
    style = load_texts("subjects")["styles"][course.code.rstrip("0123456789")]
    values = _values(rng, (13, 40), (3, 10), name=course.subject, part_number=part)
    counts, book = {kind.lower(): 1, style: 2, "hint": 3}, coursework_book()
    texts: list[str] = []
    for each, count in counts.items():
        texts += book.write_some(each, rng, count, lambda: values)
    return _with_note(rng, texts, voluntary)


def describe_submission(rng: Generator, part: int) -> str:
    """Draw the text of a student's submission."""
    values = _values(rng, part_number=part)
    return " ".join(coursework_book().write_some("handed_in", rng, 3, lambda: values))


def is_voluntary(description: str) -> bool:
    """Return whether the description of a quiz or assignment says that the work is voluntary."""
    return any(kind == "voluntary" for kind, _ in coursework_book().read(description))


def _values(
    rng: Generator, number: tuple[int, int] = (13, 90), few: tuple[int, int] = (2, 10), **known: Any
) -> DrawnValues:
    draws = {
        "number": lambda: whole(rng, *number),
        "few_number": lambda: whole(rng, *few),
    }
    return DrawnValues(draws, **known)


def _with_note(rng: Generator, texts: list[str], voluntary: bool) -> str:
    if voluntary or rng.random() < _NOTE_RATE:
        note = _say(rng, "voluntary" if voluntary else "counted")
        texts.insert(whole(rng, 1, len(texts) + 1), note)
    return " ".join(texts)


def _say(rng: Generator, kind: str, **values: Any) -> str:
    return coursework_book().write(kind, rng, **values)


def draw_policy(rng: Generator, code: str) -> tuple[list[Post], int, int]:
    """Draw announcements about the entrance assessment.

    Return the announcements, the final threshold, and the threshold before any revocation.
    """
    limits = rng.choice(_LIMITS, 1 + int(rng.random() < 0.3), replace=False).tolist()
    first, limit, need = limits[0], limits[-1], limits[-1]
    texts = [_say(rng, "policy", code=code, points_number=first)]
    if limit != first:
        texts.append(_say(rng, "corrected", code=code, points_number=limit, old_number=first))
    if rng.random() < 0.15:
        texts.append(_say(rng, "revoked", code=code))
        need = NOBODY
    posts = [_post(rng, "policy_title", text, ("assessment_aside", "aside")) for text in texts]
    return posts, need, limit


def draw_changes(
    rng: Generator, titles: Sequence[str], rate: float
) -> tuple[list[list[Post]], set[str]]:
    """Draw announcements that drop quizzes and assignments, and may restore them later.

    Return the announcements about each title, oldest first, and the titles that stay dropped.
    """
    threads, dropped = [], set()
    for title in titles:
        kinds = []
        roll = rng.random()
        if roll < rate:
            kinds = ["dropped"]
            if rng.random() < _RESTORED_RATE:
                kinds.append("restored")
            else:
                dropped.add(title)
        elif roll < 1.5 * rate:
            kinds = ["kept"]
        texts = [_say(rng, each, title=title) for each in kinds]
        threads.append([_post(rng, "change_title", text, _CHANGE_ASIDES) for text in texts])
    return threads, dropped


def _post(rng: Generator, title: str, text: str, asides: Sequence[str]) -> Post:
    values, book = _values(rng, part_number=1), coursework_book()
    texts = [text, *(book.write(each, rng, values) for each in asides)]
    before, after = book.write_some("near", rng, 2, lambda: values)
    return Post(_say(rng, title), " ".join([before, *texts, after]))


def merged(rng: Generator, threads: Iterable[Sequence[Post]]) -> list[Post]:
    """Interleave threads at random, keeping the order within each thread."""
    order = []
    for thread in threads:
        order += [list(thread)] * len(thread)
    return [thread.pop(0) for thread in shuffled(rng, order)]


def with_news(rng: Generator, posts: Sequence[Post], news: Iterator[Post]) -> list[Post]:
    """Add news to each post; if `posts` is empty, return one post that contains only news."""

    def amid_news(text: str) -> str:
        more = [post.text for post in itertools.islice(news, _NEWS)]
        return "\n\n".join(shuffled(rng, [text, *more]))

    return [Post(post.title, amid_news(post.text)) for post in posts or [next(news)]]


def read_posts(texts: Iterable[str]) -> tuple[int | None, list[str]]:
    """Return the exemption threshold and the dropped titles."""
    need: int | None = None
    newest: dict[str, str] = {}
    for text in texts:
        for kind, values in reversed(coursework_book().read(text)):
            if kind in ("policy", "corrected", "revoked") and need is None:
                need = int(values.get("points_number", NOBODY))
            elif kind in ("dropped", "restored", "kept"):
                newest.setdefault(values["title"], kind)
    return need, [title for title, kind in newest.items() if kind == "dropped"]
