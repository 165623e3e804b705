"""Catalogue of the courses of a university: departments with their subjects, codes by level."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from agentgym.envs.loca.phrase_book import load_texts

LEVELS = (
    "Introduction to {}",
    "{}",
    "Methods of {}",
    "Advanced {}",
    "Topics in {}",
    "Seminar on {}",
)
"""The names of the courses in a subject, by the hundreds of their code."""


@dataclass(frozen=True, slots=True)
class Course:
    """A course of the catalogue.

    Attributes:
        code: Department and number, whose hundreds are the level.
        name: No two courses share it.
        subject: What it is about.
    """

    code: str
    name: str
    subject: str


@functools.cache
def _subjects() -> dict[str, list[str]]:
    return load_texts("subjects")


def draw_courses(rng: np.random.Generator, count: int) -> list[Course]:
    """Draw different courses; more than 672 have a second part, and so on."""
    catalogue = [
        (department, level, place, subject)
        for department, subjects in _subjects().items()
        for place, subject in enumerate(subjects)
        for level in range(len(LEVELS))
    ]
    total = len(catalogue)
    courses = []
    for number in map(int, rng.permutation(total * -(-count // total))[:count]):
        part, index = divmod(number, total)
        department, level, place, subject = catalogue[index]
        name = LEVELS[level].format(subject) + (f", Part {part + 1}" if part else "")
        code = f"{department}{1000 * part + 100 * (level + 1) + 10 * place + 1}"
        courses.append(Course(code, name, subject))
    return courses
