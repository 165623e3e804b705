"""Set calendar reminders for camera-ready deadlines in many emails (LOCA-bench, table 7)."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AwareDatetime, Field, TypeAdapter

from agentgym.envs.loca.checks import file_state
from agentgym.envs.loca.draws import DrawnValues, load_texts, pick, shuffled, text_of
from agentgym.envs.loca.fragments import read_folder
from agentgym.envs.loca.plan import Plan, look, read, write
from agentgym.envs.loca.published.files import read_json, read_text
from agentgym.envs.loca.published.states import (
    MailUser,
    PublishedConfig,
    load_mail,
    load_workspace,
)
from agentgym.envs.loca.published.study_rules import deadline_failures
from agentgym.envs.loca.service_checks import sent_failures
from agentgym.envs.loca.task import OfficeTask
from agentgym.envs.loca.writing.news import News
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, PhraseBook, PhraseSlot, shift_day
from agentgym.office.calendar import Calendar
from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email

ME = "swright@mcp.com"
NAME = "Simon Wright"
EVER = {"timeMin": "2000-01-01T00:00:00Z", "timeMax": "2100-01-01T00:00:00Z"}
NOTE = "conference_info.txt"
AOE = timezone(timedelta(hours=-12))  # "anywhere on Earth", the last time zone in which a day ends
BEFORE = timedelta(hours=3)  # the lead time stated in the task prompt
TRACKS = ("Main Track", "Demo Track", "Industry Track", "Workshop Track", "Datasets Track")
KINDS = ("Conference", "Symposium", "Congress", "Forum")
TOPICS = (
    "Adaptive Agents|Bayesian Inference|Causal Discovery|Data Integration|Edge Computing|Federated "
    "Learning|Graph Mining|"
    "Human Computation|Information Retrieval|Knowledge Graphs|Language Technologies|Machine "
    "Translation|Network Science|"
    "Optimization Methods|Privacy Engineering|Quantum Software|Robot Learning|Speech "
    "Processing|Trustworthy Systems|"
    "User Modeling|Visual Analytics|Web Services"
).split("|")
REGIONS = ("International", "European", "Asian", "Nordic", "Pacific", "Joint", "World", "Annual")
# Probability that a deadline is extended or brought forward.
_EXTENSION_RATE = 0.5
# Probability that a deadline is stated indirectly: as a correction, relative to the opening, or
# for all tracks except one.
_INDIRECT_RATE = 0.5
SLOTS = {
    **COMMON_SLOTS,
    "key": PhraseSlot(r"[A-Z]+[0-9]*"),
    "track": PhraseSlot("|".join(TRACKS)),
}
# Wording that is not allowed in the title of a reminder.
_DENIAL = re.compile(r"\b(not|no|never|cancell?ed|ignore)\b")
# Wording that is not allowed in other fields of a reminder, such as the description.
_REVOCATION = re.compile(
    r"\b(cancell?ed|ignore|disregard|wrong|false|no longer|not (the|a|my|our) (\w+ )?(deadline|reminder))\b"
)
# Formats of the note, the subjects and the deadlines in LOCA-bench's states.
_PAPER = re.compile(r"(?:• |paper to the )(\S{1,200}) (?:conference )?\((.{1,200})\)")
_SUBJECT = re.compile(r"\[(\S+) (\S+)\] .*Camera-Ready")
_DUE = re.compile(r"^(?:NEW d|D)eadline: (\S+)T23:59:00-12:00$", re.MULTILINE)


@dataclass(frozen=True)
class _Conference:
    conference: str
    track: str
    deadline: AwareDatetime
    full_name: str


@dataclass(frozen=True)
class _Targets:
    conferences: list[_Conference]


@dataclass(frozen=True)
class _Metadata:
    base_date: Literal["2025-09-15"]  # the date stated in the task prompt
    target_info: _Targets


@functools.cache
def facts_book() -> PhraseBook:
    """Return the phrases that state deadlines."""
    return PhraseBook(load_texts("conference_facts"), SLOTS)


@functools.cache
def fillers_book() -> PhraseBook:
    """Return the phrases that surround the facts."""
    return PhraseBook(load_texts("conference_fillers"), SLOTS)


@functools.cache
def conference_news() -> News:
    """Return the generator for emails that do not state a deadline."""
    return News(load_texts("conference_news"), SLOTS)


@dataclass(frozen=True, kw_only=True)
class SetConfCrDdlConfig(PublishedConfig):
    """The size is the number of conferences that need a reminder.

    Attributes:
        noise_conferences: The number of conferences that do not need a reminder. Default: 1.4 times
            the size.
        news: The maximum number of emails per conference that do not state a deadline.
    """

    noise_conferences: Annotated[int, Field(ge=0, le=100_000)] | None = None
    news: Annotated[int, Field(ge=1, le=100)] = 3


class SetConfCrDdl(OfficeTask[SetConfCrDdlConfig]):
    """Find the latest camera-ready deadlines in emails, and set a calendar reminder for each."""

    Config = SetConfCrDdlConfig
    servers = ("filesystem", "python_execute", "email", "calendar", "claim_done")
    start = datetime(2025, 9, 15, 9, tzinfo=UTC)
    outputs = ("calendar reminders",)
    mutable_tables = ("calendar.events",)
    harmless: ClassVar[Mapping[str, str]] = {
        "own:calendar.events.description": "notes of a reminder",
        "own:calendar.events.location": "place of a reminder",
        "own:calendar.events.end*": "when a reminder ends",
        "own:calendar.events.updated": "when a reminder was changed last",
        "own:calendar.events.sequence": "how often a reminder was changed",
    }
    tokens_per_unit = 2_190.0
    text = text_of("prompts", "SetConfCrDdl")

    def draw(self, size: int) -> None:
        noise = self.config.noise_conferences
        conferences = _conferences(self.rng, size + (round(1.4 * size) if noise is None else noise))
        targets = {key: pick(self.rng, TRACKS) for key in list(conferences)[:size]}
        mails, reminders = [], {}
        for key, name in conferences.items():
            tracks = shuffled(self.rng, TRACKS, 2)
            if key in targets:
                tracks = [targets[key], next(track for track in tracks if track != targets[key])]
            for track in tracks[: 1 + int(self.happens(0.4))]:
                final, letters = self._deadlines(key, track, alone=track == tracks[0])
                mails += letters
                if track == targets.get(key):
                    reminders[key] = final - BEFORE
            mails += self._news(key, name)
        self.rng.shuffle(mails)
        email = self.office.get(Email)
        email.add_user(ME, "wright-2025", NAME)
        self.office.get(Calendar).set_owner(ME, NAME)
        email.login_as(ME)
        email.deliver(sorted(mails, key=lambda mail: mail.date))
        order = shuffled(self.rng, list(targets.items()))
        listed = "\n".join(f"{key}: {track}" for key, track in order)
        self.files.write(NOTE, f"Papers of mine that were accepted, with their tracks:\n{listed}\n")
        self.truth = {"reminders": reminders, "files": file_state(self.files)}

    def _load(self, state: Path) -> None:
        load_workspace(state, self.files, [NOTE])
        path = state / "local_db" / "calendar" / "events.json"
        if path.exists() and read_json(path, TypeAdapter(list[Any] | dict[str, Any])):
            raise ValueError(f"{path} must be empty in an unused state")
        path = state / "groundtruth_workspace" / "conference_metadata.json"
        targets = read_json(path, TypeAdapter(_Metadata)).target_info.conferences
        tracks = {each.conference: each.track for each in targets}
        if not targets or _read_note(read_text(state / "agent_workspace" / NOTE)) != tracks:
            raise ValueError(f"{path} must contain the conferences and tracks in {NOTE}")
        owner = read_json(state / "email_config.json", TypeAdapter(MailUser))
        email = self.office.get(Email)
        load_mail(state, email, owner.email)
        email.login_as(owner.email)
        self.office.get(Calendar).set_owner(owner.email, owner.name)
        self.truth = {
            "reminders": {each.conference: each.deadline - BEFORE for each in targets},
            "published": {(each.conference, each.full_name): each.deadline for each in targets},
            "files": file_state(self.files),
        }

    def _deadlines(self, key: str, track: str, alone: bool) -> tuple[datetime, list[Mail]]:
        day = (date(2025, 9, 30) + timedelta(days=self.whole(0, 45))).isoformat()
        stories = [self._due(key, track, day, alone)]
        if self.happens(_EXTENSION_RATE):
            days = self.whole(2, 11)
            kind, sign = ("extended", 1) if self.happens(0.75) else ("advanced", -1)
            stories.append(self._says(kind, key=key, track=track, days=days))
            if self.happens(0.25):
                stories.append(self._says("withdrawn", key=key, track=track))
            else:
                day = shift_day(day, sign * days)
        if self.happens(0.6):
            stories.insert(self.whole(1, len(stories) + 1), self._filler("reminder"))
        moments = np.sort(30 + self.rng.choice(4290, len(stories), replace=False))[::-1]
        letters = []
        for story, minutes in zip(stories, moments, strict=True):
            count = self.whole(1, 3)
            remarks = fillers_book().write_some("remark", self.rng, count, self._numbers)
            text = " ".join(shuffled(self.rng, [story, *remarks]))
            body = (
                f"{self._filler('greeting')}\n\n{self._filler('opening')} {text}\n\n"
                f"{self._filler('closing')}"
            )
            moment = self.start - timedelta(minutes=int(minutes))
            letters.append(_mail(key, self._filler("subject", key=key), body, moment))
        return _end_of(day), letters

    def _due(self, key: str, track: str, day: str, alone: bool) -> str:
        where = {"key": key, "track": track}
        if self.rng.random() >= _INDIRECT_RATE:
            return self._says("due", **where, date=day)
        other = shift_day(day, pick(self.rng, [-9, -4, -2, -1, 1, 2, 5, 8]))
        days = self.whole(10, 50)
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("due_corrected", {**where, "date": day, "old_date": other}),
            ("due_before", {**where, "days": days, "open_date": shift_day(day, days)}),
        ]
        if alone:
            kinds.append(("all_but", {**where, "track_date": day, "all_date": other}))
            stranger = pick(self.rng, [other for other in TRACKS if other != track])
            dates = {"track_date": other, "all_date": day}
            kinds.append(("all_but", {"key": key, "track": stranger, **dates}))
        kind, values = pick(self.rng, kinds)
        return self._says(kind, **values)

    def _says(self, kind: str, **values: Any) -> str:
        return facts_book().write(kind, self.rng, **values)

    def _filler(self, kind: str, **known: Any) -> str:
        return fillers_book().write(kind, self.rng, self._numbers(**known))

    def _numbers(self, **known: Any) -> DrawnValues:
        draws = {
            "number": lambda: self.whole(150, 600),
            "few_number": lambda: self.whole(3, 13),
        }
        return DrawnValues(draws, **known)

    def _news(self, key: str, name: str) -> list[Mail]:
        mails = []
        news = conference_news()
        values = self._values(key, name)
        for _ in range(self.whole(1, self.config.news + 1)):
            _, subject, text = news.draw(self.rng, values)
            moment = self.start - timedelta(minutes=self.whole(30, 8_000))
            mails.append(_mail(key, subject, text, moment))
        return mails

    def _values(self, key: str, name: str) -> DrawnValues:
        integers = self.rng.integers
        return DrawnValues(
            {
                "date": lambda: shift_day(f"{self.start:%Y-%m-%d}", int(integers(10, 60))),
                "number": lambda: int(integers(20, 400)),
                "few_number": lambda: int(integers(3, 12)),
                "time": lambda: f"{integers(8, 11):02}:00",
            },
            key=key,
            name=name,
        )

    def plan(self) -> Plan:
        targets = yield read("Read the note.", _read_note, "read_text_file", path=NOTE)
        mails = yield from read_folder(_read_mail)
        said = list(itertools.chain.from_iterable(reversed(mails)))
        days = {key: _deadline(said, key, track) for key, track in sorted(targets.items())}
        begins = {key: _end_of(day) - BEFORE for key, day in days.items()}
        seen = yield look(
            "events", "Look at the calendar.", _read_events, "list_events", **EVER, maxResults=2_500
        )
        wrong, missing = _sort_events(seen or (), begins)
        events = []
        for place in wrong:
            event = seen[place]["id"]
            label = f"Delete the event {event}."
            events.append(
                write(label, self.outputs[0], "delete_event", thing="events", eventId=event)
            )
        for key in missing:
            day = days[key]
            due = _end_of(day)
            events.append(
                write(
                    f"Set the reminder of {key} to 3 hours before {day}, 23:59 AoE.",
                    self.outputs[0],
                    "create_event",
                    thing="events",
                    same=("start",),
                    accepts=functools.partial(_creates_reminder, keys=list(targets), key=key),
                    summary=f"{key} camera-ready deadline",
                    start={"dateTime": (due - BEFORE).isoformat()},
                    end={"dateTime": due.isoformat()},
                )
            )
        yield events

    def task_failures(self) -> Iterator[str]:
        reminders = self.truth["reminders"]
        events = []
        for event in self.office.get(Calendar).events():
            notes = f"{event.description}\n{event.location}"
            begin = event.start.isoformat()
            events.append({"title": event.summary, "begin": begin, "notes": notes})
        wrong, missing = _sort_events(events, reminders)
        for place in wrong:
            title = events[place]["title"]
            begin = events[place]["begin"]
            yield f"the event {title!r} at {begin} is not a requested reminder, or a duplicate"
        for key in missing:
            yield f"there is no right reminder of {key} at {reminders[key]}"
        yield from sent_failures(self.office.get(Email))

    def published_failures(self) -> Iterator[str]:
        return deadline_failures(self.office.get(Calendar), self.truth["published"])


def _read_note(text: str) -> dict[str, str]:
    published = _PAPER.findall(text)
    return dict(published or (line.split(": ") for line in text.splitlines()[1:]))


# Each step compares all titles with all keys again.
@functools.lru_cache(maxsize=65_536)
def _names(title: str, key: str) -> bool:
    pattern = rf"(?<!\w){re.escape(key)}(20\d\d)?(?!\w)"
    return re.search(pattern, title, re.IGNORECASE) is not None


def _reminds_of(event: Mapping[str, str], keys: Iterable[str]) -> str:
    title = event["title"].casefold()
    named = [key for key in keys if _names(title, key)]
    is_reminder = "camera" in title and "ready" in title and not _DENIAL.search(title)
    if len(named) != 1 or not is_reminder or _REVOCATION.search(event["notes"].casefold()):
        return ""
    return named[0]


def _sort_events(
    events: Sequence[Mapping[str, str]], begins: Mapping[str, datetime]
) -> tuple[list[int], list[str]]:
    missing = dict(begins)
    wrong = []
    for place, event in enumerate(events):
        key = _reminds_of(event, begins)
        if key in missing and datetime.fromisoformat(event["begin"]) == missing[key]:
            del missing[key]
        else:
            wrong.append(place)
    return wrong, sorted(missing)


def _read_events(text: str) -> list[dict[str, str]]:
    events = []
    for event in json.loads(text)["items"]:
        begin = event["start"].get("dateTime", "0001-01-01T00:00:00Z")
        title = event["summary"]
        notes = _notes(event)
        events.append({"id": event["id"], "title": title, "begin": begin, "notes": notes})
    return events


def _notes(event: Mapping[str, Any]) -> str:
    return f"{event.get('description', '')}\n{event.get('location', '')}"


def _creates_reminder(arguments: Mapping[str, Any], keys: Sequence[str], key: str) -> bool:
    event = {"title": arguments["summary"], "notes": _notes(arguments)}
    return _reminds_of(event, keys) == key


def _conferences(rng: np.random.Generator, count: int) -> dict[str, str]:
    names: dict[str, str] = {}
    count_by_key: Counter[str] = Counter()
    while len(names) < count:
        words = [pick(rng, REGIONS), pick(rng, KINDS), "on", pick(rng, TOPICS)]
        key = "".join(word[0] for word in " ".join(words).split() if word != "on")
        count_by_key[key] += 1
        number = count_by_key[key]
        names[f"{key}{number}" if number > 1 else key] = " ".join(words)
    return names


def _mail(key: str, subject: str, body: str, date: datetime) -> Mail:
    return Mail(f"{key} chairs <chairs@{key.lower()}.example.org>", ME, subject, body, date)


def _end_of(day: str) -> datetime:
    return datetime.fromisoformat(f"{day}T23:59").replace(tzinfo=AOE)


def _read_mail(mail: Mapping[str, Any]) -> list[Any] | None:
    subject = _SUBJECT.match(mail["subject"])
    due = _DUE.findall(mail["body"])
    if subject and due:
        return [["due", {"key": subject[1], "track": subject[2], "date": due[-1]}]]
    return [[kind, values] for kind, values in facts_book().read(mail["body"])] or None


def _deadline(said: Iterable[Any], key: str, track: str) -> str:
    days: list[str] = []
    for kind, values in said:
        if values["key"] != key or (values["track"] != track and kind != "all_but"):
            continue
        if kind == "all_but":
            days.append(values["track_date" if values["track"] == track else "all_date"])
        elif kind == "due_before":
            days.append(shift_day(values["open_date"], -values["days"]))
        elif kind == "withdrawn":
            days.pop()  # the previous deadline applies again
        elif kind in ("extended", "advanced"):
            sign = 1 if kind == "extended" else -1
            days.append(shift_day(days[-1], sign * values["days"]))
        else:
            days.append(values["date"])
    return days[-1]
