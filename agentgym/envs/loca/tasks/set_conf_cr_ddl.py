"""Reminders of camera-ready deadlines that have to be found, in their latest version, among many
mails (LOCA-bench, table 7).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from agentgym.config import Share
from agentgym.envs.loca.checks import file_failures, file_state, sent_failures
from agentgym.envs.loca.config import OfficeConfig
from agentgym.envs.loca.plan import Plan, read, write
from agentgym.envs.loca.reading import read_folder
from agentgym.envs.loca.servers.calendar import Calendar
from agentgym.envs.loca.servers.email.messages import Mail
from agentgym.envs.loca.servers.email.server import Email
from agentgym.envs.loca.task import OfficeTask, register_task

ME, NAME = "swright@mcp.com", "Simon Wright"
NOTE = "conference_info.txt"
AOE = timezone(timedelta(hours=-12))  # the last zone in which a day ends
BEFORE = timedelta(hours=3)  # as the text of the task says
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
NEWS = (
    (
        "The programme of {name} ({key}) is online. There are {n} accepted papers in all tracks, and "
        "{n} rooms are booked."
    ),
    (
        "Registration for {key} is open until {day}. Students pay {n} euros; authors register before "
        "{day}, too."
    ),
    (
        "Call for workshop papers at {name} ({key}): submit up to {n} pages by {day}, 23:59 AoE. This "
        "is no camera-ready deadline."
    ),
    (
        "Hotels near the venue of {key} fill up. Book by {day} with the code {key}{n} to get the rate "
        "for participants."
    ),
)
_DENIAL = re.compile(r"\b(not|no|never|cancell?ed|ignore)\b")
_DEADLINE = re.compile(
    r"^(\S+), (.+): the camera-ready version is due on (\d+ \w+ \d{4}), 23:59 AoE", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class SetConfCrDdlConfig(OfficeConfig):
    """The size is the number of conferences that need a reminder.

    Attributes:
        noise_conferences: The number of conferences that need no reminder; by default 1.4 for each
            that does.
        news: The most mails without a deadline from each conference.
        extension_rate: The probability that a deadline is extended.
    """

    noise_conferences: Annotated[int, Field(ge=0, le=100_000)] | None = None
    news: Annotated[int, Field(ge=1, le=100)] = 3
    extension_rate: Share = 0.5


class SetConfCrDdl(OfficeTask[SetConfCrDdlConfig]):
    """Find the latest camera-ready deadlines in the mail, and set a calendar reminder for each."""

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
    tokens_per_unit = 2_100.0

    def draw(self, size: int) -> None:
        """Draw the conferences, their mails and the note."""
        noise = self.config.noise_conferences
        conferences = _conferences(self.rng, size + (round(1.4 * size) if noise is None else noise))
        targets = {key: str(self.rng.choice(TRACKS)) for key in list(conferences)[:size]}
        mails, reminders = [], {}
        for key, name in conferences.items():
            tracks = [str(track) for track in self.rng.choice(TRACKS, 2, replace=False)]
            if key in targets:
                tracks = [targets[key], next(track for track in tracks if track != targets[key])]
            for track in tracks[: 1 + int(self.rng.random() < 0.4)]:
                final, letters = self._deadlines(key, name, track)
                mails += letters
                if track == targets.get(key):
                    reminders[key] = final - BEFORE
            mails += self._news(key, name)
        self.rng.shuffle(mails)
        email, files = self.office.get(Email), self.office.context.files
        email.add_user(ME, "wright-2025", NAME)
        self.office.get(Calendar).set_owner(ME, NAME)
        email.login_as(ME)
        email.deliver(sorted(mails, key=lambda mail: mail.date))
        order = self.rng.permutation(list(targets))
        listed = "\n".join(f"{key}: {targets[key]}" for key in map(str, order))
        files.write(NOTE, f"Papers of mine that were accepted, with their tracks:\n{listed}\n")
        self.truth = {"reminders": reminders, "files": file_state(files)}

    def _deadlines(self, key: str, name: str, track: str) -> tuple[datetime, list[Mail]]:
        """Draw the final deadline of a track, and the mails about it, one after the other."""
        due = datetime(2025, 9, 30, 23, 59, tzinfo=AOE) + timedelta(
            days=int(self.rng.integers(0, 45))
        )
        moments = [
            self.start - timedelta(minutes=int(m))
            for m in np.sort(self.rng.choice(np.arange(30, 4320), 3, replace=False))[::-1]
        ]
        stories = [
            (
                f"Congratulations on your paper at {name}! Please prepare its final version by the "
                "guidelines of the publisher."
            )
        ]
        dues = [due]
        if self.rng.random() < self.config.extension_rate:
            stories.append(
                f"Many authors have asked for more time. The deadline {_day(due)} is therefore "
                "EXTENDED."
            )
            dues.append(due + timedelta(days=3))
        if self.rng.random() < 0.6:
            place = int(self.rng.integers(1, len(dues) + 1))
            stories.insert(
                place,
                "This is a reminder to upload your paper with its sources and the signed form in "
                "time.",
            )
            dues.insert(place, dues[place - 1])
        letters = []
        for story, day, moment in zip(stories, dues, moments, strict=False):
            due_line = f"{key}, {track}: the camera-ready version is due on {_day(day)}, 23:59 AoE."
            body = f"Dear authors,\n\n{story}\n\n{due_line}\n\nThe chairs"
            subject = str(
                self.rng.choice(
                    [
                        "Your paper",
                        f"{key}: information for authors",
                        "Final versions",
                        f"News from {key}",
                    ]
                )
            )
            letters.append(_mail(key, subject, body, moment))
        return dues[len(letters) - 1], letters

    def _news(self, key: str, name: str) -> list[Mail]:
        mails = []
        for _ in range(int(self.rng.integers(1, self.config.news + 1))):
            moment = self.start - timedelta(minutes=int(self.rng.integers(30, 8_000)))
            day = self.start + timedelta(days=int(self.rng.integers(10, 60)))
            text = str(self.rng.choice(NEWS)).format(
                name=name, key=key, n=int(self.rng.integers(5, 400)), day=_day(day)
            )
            mails.append(
                _mail(
                    key,
                    str(self.rng.choice([f"News from {key}", "Your participation", f"{key} 2025"])),
                    text,
                    moment,
                )
            )
        return mails

    def task(self) -> str:
        """Return the task, the same for all instances."""
        return (
            f"It is 15 September 2025. Some papers of mine were accepted; {NOTE} in the workspace "
            "names each conference and the "
            "track of my paper. The camera-ready deadlines are in my mailbox, where you are logged "
            "in. Deadlines may have been "
            "extended: for the track of my paper, what the newest mail about it says is true.\n"
            "Put one reminder for each of these conferences into my calendar. It begins exactly 3 "
            "hours before the deadline. Its "
            "title has the short name of that conference and the words camera-ready. AoE (anywhere "
            "on earth) is UTC-12. Set no "
            "other events and change nothing else."
        )

    def plan(self) -> Plan:
        """Read the note and every mail; set the reminders."""
        targets = yield read(
            "Read the note.",
            lambda text: dict(line.split(": ") for line in text.splitlines()[1:]),
            "read_text_file",
            path=NOTE,
        )
        notices = yield from read_folder(_read_deadline)
        events = []
        for key, track in sorted(targets.items()):
            newest = max(
                (fact for fact in notices if fact["key"] == key and fact["track"] == track),
                key=lambda fact: fact["date"],
            )
            due = datetime.strptime(f"{newest['due']} 23:59", "%d %B %Y %H:%M")
            begin = due.replace(tzinfo=AOE) - BEFORE
            moments: dict[str, Any] = {
                "start": {"dateTime": begin.isoformat()},
                "end": {"dateTime": (begin + BEFORE).isoformat()},
            }
            title = f"{key} camera-ready deadline"
            label = f"Set the reminder of {key} to 3 hours before {newest['due']}, 23:59 AoE."
            events.append(
                write(
                    label,
                    self.outputs[0],
                    "create_event",
                    same=("start",),
                    accepts=functools.partial(_is_reminder, key=key),
                    summary=title,
                    **moments,
                )
            )
        yield events

    def task_failures(self) -> Iterator[str]:
        """Check that each target has one right event, that there is no other, that no file was
        changed and no mail was sent.
        """
        missing = dict(self.truth["reminders"])
        for event in self.office.get(Calendar).events():
            title = event.summary.casefold()
            matches = [key for key in self.truth["reminders"] if _names(event.summary, key)]
            correct = (
                len(matches) == 1
                and event.start == missing.get(matches[0])
                and "camera" in title
                and "ready" in title
                and not _DENIAL.search(title)
            )
            if correct:
                del missing[matches[0]]
            else:
                yield f"the event {event.summary!r} at {event.start} is no reminder that was asked for, or one too many"
        yield from (
            f"there is no right reminder of {key} at {begin}"
            for key, begin in sorted(missing.items())
        )
        yield from sent_failures(self.office.get(Email))
        yield from file_failures(self.office.context.files, self.truth["files"], [])


def _names(title: str, key: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(key)}(?!\w)", title, re.IGNORECASE))


def _is_reminder(arguments: Mapping[str, Any], key: str) -> bool:
    """Return whether a call sets an event whose title is that of a reminder of a conference."""
    title = arguments["summary"]
    return _names(title, key) and {"camera", "ready"} <= set(
        re.findall("camera|ready", title.casefold())
    )


def _conferences(rng: np.random.Generator, count: int) -> dict[str, str]:
    """Draw names by short name, in random order; short names differ, and some are the beginning of
    another.
    """
    names: dict[str, str] = {}
    while len(names) < count:
        words = [str(rng.choice(REGIONS)), str(rng.choice(KINDS)), "on", str(rng.choice(TOPICS))]
        key = "".join(word[0] for word in " ".join(words).split() if word != "on")
        clashes = sum(other.rstrip("0123456789") == key for other in names)
        names[key if not clashes else f"{key}{clashes + 1}"] = " ".join(words)
    return names


def _mail(key: str, subject: str, body: str, date: datetime) -> Mail:
    return Mail(f"{key} chairs <chairs@{key.lower()}.example.org>", ME, subject, body, date)


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"


def _read_deadline(mail: dict[str, Any]) -> dict[str, str] | None:
    match = _DEADLINE.search(mail["body"])
    return (
        {"key": match[1], "track": match[2], "due": match[3], "date": mail["date"]}
        if match
        else None
    )


register_task(SetConfCrDdl)
