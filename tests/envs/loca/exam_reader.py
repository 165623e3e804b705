"""Keyword-based reader of exam notices, independent of the package."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any

MONTHS = "January February March April May June July August September October November December"
COUNTS = "zero one two three four five six seven eight nine ten eleven twelve".split()
DECOY = re.compile(
    r"review|revis|question time|old final exams|mock|trial|practice test|those who failed|rehearse"
)
DAY = re.compile(
    rf"(\d{{4}}-\d\d-\d\d)|(\d+) ({MONTHS.replace(' ', '|')})( \d{{4}})?|({MONTHS.replace(' ', '|')}) (\d+)(, \d{{4}})?"
)
HOUR = re.compile(r"\b(\d\d):(\d\d)\b|\b(\d+) ([ap])m\b")
LENGTH = re.compile(
    r"(\d+) minutes|(quarter of an hour)|(half an hour)|an hour and a half|(one|two|three)( and a half)? hours?"
)
SPELL = re.compile(rf"\b({'|'.join(COUNTS)}|\d+) (day|week)s?\b")
ROOM = re.compile(
    r"(?:Hall|Lecture Theatre|Gymnasium|Computer Lab|Seminar Room|North Wing|Old Library|Auditorium|Physics Annex"
    r"|Garden Pavilion|Drawing Studio|Assembly Room) \d+"
)


def days_in(text: str) -> list[str]:
    found = []
    for match in DAY.finditer(text):
        iso, day, month, year, month_first, second_day, second_year = match.groups()
        if iso:
            found.append(iso)
            continue
        number = MONTHS.split().index(month or month_first) + 1
        years = (year or second_year or "2025").strip(", ")
        found.append(date(int(years), number, int(day or second_day)).isoformat())
    return found


def hours_in(text: str) -> list[str]:
    found = []
    for hour, minute, short, half in HOUR.findall(text):
        found.append(f"{hour}:{minute}" if hour else f"{int(short) + 12 * (half == 'p'):02}:00")
    return found


def lengths_in(text: str) -> list[int]:
    found = []
    for match in LENGTH.finditer(text):
        minutes, quarter, half, hours, more = match.groups()
        if minutes:
            found.append(int(minutes))
        elif quarter or half:
            found.append(15 if quarter else 30)
        else:
            found.append(60 * COUNTS.index(hours) + 30 * bool(more) if hours else 90)
    return found


def spell_in(text: str) -> int | None:
    match = SPELL.search(text)
    if match is None:
        return None
    count = COUNTS.index(match[1]) if match[1] in COUNTS else int(match[1])
    return count * (7 if match[2] == "week" else 1)


def after(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def clock(time: str, minutes: int) -> str:
    return f"{datetime.strptime(time, '%H:%M') + timedelta(minutes=minutes):%H:%M}"


def one_of(found: list[Any], first: bool) -> Any:
    return found[0] if first else found[-1]


class Reader:
    """Reader that parses the posts or emails about a course, oldest first.

    `exam` contains the known facts, such as `day`, `time` and `place`.
    """

    def __init__(self, section: int, texts: Iterable[str]) -> None:
        self.section = section
        self.exam: dict[str, Any] = {}
        self.midterm = self.room = self.project = ""
        told = list(texts)
        for text in told:
            self.anchor(text)
        for text in told:
            if self.is_notice(text):
                for sentence in re.split(r"(?<=[.!?])\s+", text):
                    self.read(sentence)

    def anchor(self, text: str) -> None:
        first = re.split(r"(?<=[.!?])\s+", text)[0]
        if "midterm" in first and days_in(first) and ROOM.search(first):
            self.midterm, self.room = days_in(first)[0], ROOM.findall(first)[0]
        if "project" in first and days_in(first):
            self.project = days_in(first)[0]

    def is_notice(self, text: str) -> bool:
        head = " ".join(re.split(r"(?<=[.!?])\s+", text)[:2])
        return bool(re.search(r"\b(exam|examination|final)\b", text.lower())) and not (
            DECOY.search(head.lower())
            or re.search(r"midterm (takes|is held)|[Tt]he midterm (on|in|is)", head)
        )

    def read(self, sentence: str) -> None:
        low = sentence.lower()
        if re.search(
            r"after all, (just|exactly)|stands as first|overruled|cancelled; the ear", low
        ):
            self.exam["held"] = True
        elif re.search(
            r"no final exam in this|without a final|do without|nobody sits|instead of a final|"
            r"dropped the final|this course has none|do not hold one|called off|cancel the final|"
            r"not take place|not have to sit the final exam\.|strike the",
            low,
        ):
            self.exam["held"] = False
        else:
            self.day(low, sentence)
            self.hour(low, sentence)
            self.where(low, sentence)
            self.rest(low, sentence)

    def day(self, low: str, sentence: str) -> None:
        days, spell = days_in(sentence), spell_in(low)
        if number := re.search(r"(?:section|number) (\d+)", low):
            own = days_in(sentence[number.end() :])[0]
            self.exam["day"] = (
                own if int(number[1]) == self.section else next(d for d in days if d != own)
            )
        elif days:
            self.exam["day"] = one_of(days, "and not on" in low or "chose the former" in low)
        elif spell and "midterm" in low:
            self.exam["day"] = after(self.midterm, spell)
        elif spell and "project" in low:
            back = re.search(r"before|first;|subtract", low)
            self.exam["day"] = after(self.project, -spell if back else spell)
        elif spell and self.exam.get("day") and re.search(r"the exam|final exam|prepare", low):
            back = re.search(r"earlier|subtract", low)
            self.exam["day"] = after(self.exam["day"], -spell if back else spell)
        elif re.search(
            r"and hour are not|when it takes place is|a date\.|the day and the hour", low
        ):
            self.exam |= {"day": None, "time": None}

    def hour(self, low: str, sentence: str) -> None:
        hours, lengths = hours_in(sentence), lengths_in(sentence)
        if len(hours) == 2 and re.search(r"from .* (to|until)|and end at|between", low):
            start, end = (datetime.strptime(hour, "%H:%M") for hour in hours)
            self.exam |= {"time": hours[0], "minutes": (end - start).seconds // 60}
        elif len(hours) == 2:
            self.exam["time"] = one_of(hours, "and not at" in low)
        elif hours and lengths and re.search(r"doors|cards|seats|explain", low):
            self.exam["time"] = clock(hours[0], lengths[0])
        elif hours and lengths:
            self.exam |= {"time": clock(hours[0], -lengths[0]), "minutes": lengths[0]}
        elif hours:
            self.exam["time"] = hours[0]
        elif lengths and re.search(r"more for|longer|lengthened|we add", low):
            self.exam["minutes"] += lengths[0]
        elif lengths and "let in" not in low:  # rules for late students
            self.exam["minutes"] = one_of(lengths, ", not" in low)
        elif re.search(r"how long|duration|how much time", low):
            self.exam["minutes"] = None

    def where(self, low: str, sentence: str) -> None:
        rooms = ROOM.findall(sentence)
        if rooms:
            self.exam["place"] = one_of(rooms, "instead of" in low or "only the former" in low)
        elif "midterm" in low and spell_in(low) is None:
            self.exam["place"] = self.room
        elif re.search(
            r"the room is not|room is still|looking for a room|where it takes|no room", low
        ):
            self.exam["place"] = None

    def rest(self, low: str, sentence: str) -> None:
        if person := re.search(r"((?:[A-Z][\w']+ )+)\((\S+@\S+)\)", sentence):
            self.exam["proctor"] = (person[1].removeprefix("My colleague ").strip(), person[2])
        if re.search(
            r"closed-book (exam|is)|is closed-book|neither books|not use any|leave all", low
        ):
            self.exam["books"] = "Closed-book"
        elif re.search(
            r"open-book (exam|is)|is open-book|books and notes|your books|textbook", low
        ):
            self.exam["books"] = "Open-book"


def is_exempt(text: str) -> bool:
    limit = re.search(r"(\d+) points (?:in the homework|or more)|less than (\d+) points", text)
    if limit:
        points = re.findall(r"(\d+) points", text)[-1]
        return int(points) >= int(limit[1] or limit[2])
    return bool(
        re.search(
            r"are exempt|not have to take|need not take|is waived for you\.|may skip|replaces the final|excused",
            text,
        )
    ) and not re.search(r"not waived|turned down", text)
