"""Remind students who have not sent their presentations (LOCA-bench, table 7)."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from agentgym.envs.loca.checks import digest, file_state, hides_text, parts_of, same_subject
from agentgym.envs.loca.draws import LAST, address, load_texts, people, pick, text_of
from agentgym.envs.loca.fragments import mail_of, read_folder
from agentgym.envs.loca.plan import Plan, read, write
from agentgym.envs.loca.published.files import (
    as_name,
    read_book,
    read_json_lines,
    read_text,
    typed_rows,
)
from agentgym.envs.loca.published.states import PublishedConfig, load_mail, load_workspace
from agentgym.envs.loca.published.study_rules import reminder_failures
from agentgym.envs.loca.records import Fields, Record
from agentgym.envs.loca.results import cell_rows
from agentgym.envs.loca.service_checks import mail_failures, mail_places
from agentgym.envs.loca.task import OfficeTask
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, PhraseBook
from agentgym.office.email.messages import Mail, addresses
from agentgym.office.files.pdfs import write_pdf
from agentgym.office.spreadsheet.workbooks import write_workbook
from agentgym.text.tools import echo
from agentgym.world.config import Share

ME = "virginia_diaz@mcp.com"
PASSWORD = "assistant-2025"
ACCOUNT = "email_account.txt"
ROSTER = "nlp_statistics.xlsx"
SHEET = "NLP Course Students"
SUBJECT = "nlp-course-emergency"
# In LOCA-bench's states, all submissions have the same sender and no attachments.
ONE_SENDER = "mcooper@mcp.com"
COLUMNS = ("Name", "Student ID", "Email", "Status")
ENROLLED = "enrolled"
WITHDRAWN = "withdrawn"
# Subjects of emails that are submissions, and of emails that are not.
RIGHT: Sequence[str] = load_texts("words")["CourseAssistant"]["right"]
WRONG: Sequence[str] = load_texts("words")["CourseAssistant"]["wrong"]
FILES = ("slides.pdf", "presentation.pdf", "final_talk.pdf")
OTHER_FILES = ("slides.pptx", "talk.docx", "slides.pdf.zip", "link.txt")
# Probability that a student without a submission has sent an email that resembles a submission.
_ATTEMPT_RATE = 0.6
# Probability that an email mentions drafts.
_DRAFT_RATE = 0.65
_PRIVATE_RATE = 0.15  # share of emails from private addresses
_OTHERS = 10  # number of students per unrelated email
_CONDITION = re.compile(r"\b(if|unless|in case|should) you\b[^.!?]*", re.IGNORECASE)
# Wording that a reminder may contain only in a conditional clause.
_DENIAL = re.compile(
    r"\b(nothing (is |was )?(missing|due|to do)|ignore|disregard|by mistake|not a reminder|"
    r"(no need to|need not|(do|does) ?n[o']t (have|need) to) (hand|submit|send|do|worry|present)|"
    r"already (handed|submitted|sent|received)|(have|was|were|has been) (been )?(received|accepted|handed|submitted)|"
    r"you (have )?(handed|submitted))\b",
    re.IGNORECASE,
)
_SUBJECT = re.compile(r"nlp-presentation-([0-9]+)-", re.IGNORECASE)


@functools.cache
def presentations_book() -> PhraseBook:
    """Return the phrases used in students' emails."""
    return PhraseBook(load_texts("presentations"), COMMON_SLOTS)


@dataclass(frozen=True, kw_only=True)
class CourseAssistantConfig(PublishedConfig):
    """The size is the number of students on the roster.

    Attributes:
        withdrawal_rate: The probability that a student has withdrawn.
        submission_rate: The probability that an enrolled student has sent a presentation.
    """

    withdrawal_rate: Share = 0.2
    submission_rate: Share = 0.6


@dataclass(frozen=True)
class _Submission:
    subject: str


class Student(NamedTuple):
    """A row of the roster."""

    name: str
    id: str
    email: str
    status: str


class CourseAssistant(OfficeTask[CourseAssistantConfig]):
    """Find the enrolled students whose presentations are missing from the mailbox, and send each
    student a reminder.
    """

    Config = CourseAssistantConfig
    servers = ("filesystem", "terminal", "python_execute", "excel", "email", "claim_done")
    outputs = ("reminders",)
    tokens_per_unit = 590.0
    text = text_of("prompts", "CourseAssistant")
    published_text = text_of("prompts", "CourseAssistantPublished")

    def draw(self, size: int) -> None:
        students = self._students(size)
        sure = self.whole(size)  # this student always needs a reminder
        students[sure] = students[sure]._replace(status=ENROLLED)
        mails, submitted = [], set()
        for k, student in enumerate(students):
            attempts = self.happens(_ATTEMPT_RATE)
            for _ in range(attempts * (1 + self.happens(0.2))):
                mails.append(self._mail(student, students, counts=False))
            submits = k != sure and self.happens(self.config.submission_rate)
            for _ in range(submits * (1 + self.happens(0.15))):  # some students submit twice
                mails.append(self._mail(student, students, counts=True))
            if submits:
                submitted.add(student.id)
        mails += [self._news() for _ in range(-(-size // _OTHERS))]
        self.email.add_user(ME, PASSWORD, "Virginia Diaz")
        self.email.add_users((student.email, "", student.name) for student in students)
        self.email.deliver(sorted(mails, key=lambda mail: mail.date), user=ME)
        account = f"Address: {ME}\nPassword: {PASSWORD}\n"
        self.files.write(ACCOUNT, f"Mail account of the teaching assistant\n{account}")
        self.files.write(ROSTER, write_workbook({SHEET: [COLUMNS, *students]}))
        self.truth = self._facts(students, submitted)

    def _load(self, state: Path) -> None:
        load_workspace(state, self.files, [ACCOUNT, ROSTER])
        path = state / "agent_workspace" / ACCOUNT
        if f"Email: {ME}\nPassword: " not in read_text(path):
            raise ValueError(f"{path} must contain the Email {ME} and the Password")
        path = path.with_name(ROSTER)
        table = read_book(path, SHEET)[SHEET]
        rows = typed_rows(f"{path}: {SHEET}", table, dict.fromkeys(COLUMNS, as_name), COLUMNS[1:2])
        students = [Student(*row.values()) for row in rows]
        # LOCA-bench uses the host's time zone.
        mails = load_mail(state, self.email, ME, latest=self.start - timedelta(hours=1))
        path = state / "files" / "emails.jsonl"
        subjects = [each.subject for each in read_json_lines(path, TypeAdapter(_Submission))]
        if sorted(subjects) != sorted(mail.subject for mail in mails):
            raise ValueError(f"{path} must contain the subjects in the INBOX of {ME}")
        submitted = {match[1] for match in map(_SUBJECT.match, subjects) if match}
        self.truth = self._facts(students, submitted)
        missing = self.truth["published"] = self.truth["missing"]
        unknown = missing.keys() - {user["email"] for user in self.email.users()}
        if unknown:
            raise ValueError(f"{state}: users.json must contain the users {sorted(unknown)}")
        if any(mail.sender != ONE_SENDER for mail in mails):
            raise ValueError(f"{state}: emails.json must contain only emails from {ONE_SENDER}")

    def _facts(self, students: Sequence[Student], submitted: Collection[str]) -> Record:
        missing = {}
        for student in students:
            if student.status == ENROLLED and student.id not in submitted:
                missing[student.email] = [student.name, student.id]
        return {
            "missing": missing,
            "names": sorted({student.name for student in students}),
            "ids": {student.id for student in students},
            "mails": mail_places(self.email.store),
            "users": digest(self.email.store, "users"),
            "files": file_state(self.files),
        }

    def _students(self, size: int) -> list[Student]:
        """Draw students. Many IDs are similar, and some names are equal or prefixes of others."""
        names = people(self.rng, size)
        for k in range(1, size):
            namesake = names[self.whole(k)]
            kind = self.rng.random()
            if kind < 0.04:
                names[k] = namesake
            elif kind < 0.12:
                names[k] = f"{namesake} {self.rng.choice(LAST)}"
        span = min(100_000, 5 * size + 100)
        numbers = self.whole(100_001 - span) + self.rng.choice(span, size, replace=False)
        states = []
        for _ in names:
            states.append(WITHDRAWN if self.happens(self.config.withdrawal_rate) else ENROLLED)
        marks = self.rng.permutation(size).tolist()
        students = []
        for name, number, mark, state in zip(names, numbers.tolist(), marks, states, strict=True):
            email = address(name, mark + 1, "mcp.com")
            students.append(Student(name, f"2000{number:05}", email, state))
        return students

    def _mail(self, student: Student, students: Sequence[Student], counts: bool) -> Mail:
        speaks = self.happens(_DRAFT_RATE)
        draft = speaks and not counts
        # An invalid submission has a wrong subject, a wrong file or only a draft.
        right_subject = counts or draft or self.happens(0.4)
        subject = pick(self.rng, RIGHT if right_subject else WRONG).format(
            id=student.id,
            name=student.name,
            upper=student.name.upper(),
            first=student.name.split()[0],
            short=student.id[:-1],
            tail=student.id[4:],
        )
        attachments: dict[str, bytes] = {}
        if counts or draft or not right_subject:
            attachments[pick(self.rng, FILES)] = _slides()
        elif self.happens(0.5):
            attachments[pick(self.rng, OTHER_FILES)] = b"This file cannot be shown.\n"
        other = students[self.whole(len(students))].name
        says = functools.partial(self._says, other=other)
        values = functools.partial(self._values, other)
        count = self.whole(3, 6)
        texts = presentations_book().write_some("remark", self.rng, count, values)
        texts.append(says("attached"))
        if speaks:
            place = self.whole(len(texts) + 1)
            texts.insert(place, says("final" if counts else "not_final"))
        body = (
            f"{says('greeting')}\n\n{says('story')} {' '.join(texts)}\n\n"
            f"{says('closing')}\n{student.name}"
        )
        sender = student.email
        if self.happens(_PRIVATE_RATE):
            sender = f"{student.name.split()[-1].lower()}.{self.whole(10, 10_000)}@home.example.org"
        return Mail(sender, ME, subject, body, self._moment(), attachments=attachments)

    def _news(self) -> Mail:
        count = self.whole(1, 3)
        more = presentations_book().write_some("news_more", self.rng, count, dict)
        body = f"{self._says('greeting')}\n\n{self._says('news')} {' '.join(more)}\n\nThe office"
        sender = "Office <office@department.example.org>"
        return Mail(sender, ME, self._says("news_subject"), body, self._moment())

    def _says(self, kind: str, other: str = "") -> str:
        return presentations_book().write(kind, self.rng, **self._values(other))

    def _values(self, other: str) -> Record:
        return {
            "number": self.whole(13, 90),
            "few_number": self.whole(4, 13),
            "other_name": other,
        }

    def _moment(self) -> Any:
        return self.start - timedelta(minutes=self.whole(30, 20_000))

    def plan(self) -> Plan:
        roster = {"filepath": ROSTER, "sheet_name": SHEET}
        account, students = yield [
            read("Read the account.", _read_account, "read_text_file", path=ACCOUNT),
            read("Read the roster.", _read_roster, "read_data_from_excel", **roster),
        ]
        yield read(
            "Log in to the mailbox.", lambda text: json.loads(text)["logged_in"], "login", **account
        )
        submitted = set((yield from read_folder(_read_submission)))
        names = {name for name, _, _ in students}
        ids = {number for _, number, _ in students}
        right = functools.partial(_is_reminder, ids=ids, names=names)
        steps = []
        for name, number, email in students:
            if number in submitted:
                continue
            body = f"Dear {name},\n\nwe have no final presentation of yours (student ID {number}) yet. Please hand it in now."
            steps.append(
                write(
                    f"Remind {name} ({number}).",
                    self.outputs[0],
                    "send_email",
                    same=("to",),
                    accepts=functools.partial(right, student=(name, number)),
                    to=email,
                    subject=SUBJECT,
                    body=body,
                )
            )
        yield steps

    def task_failures(self) -> Iterator[str]:
        missing = dict(self.truth["missing"])
        for mail in self.email.sent():
            people = mail.recipients
            failure = "unexpected or a duplicate"
            if len(people) == 1 and people[0] in missing:
                failure = self._wrong(mail, missing[people[0]])
            if failure:
                yield f"the mail {echo(mail.subject)} to {echo(', '.join(people))}: {failure}"
            else:
                del missing[people[0]]
        for name, number in missing.values():
            yield f"there is no right mail to {name} ({number})"
        yield from mail_failures(self.email.store, self.truth["mails"])
        if digest(self.email.store, "users") != self.truth["users"]:
            yield "the users of the mail server were changed"

    def published_failures(self) -> Iterator[str]:
        return reminder_failures(self.email, self.truth["published"])

    def _wrong(self, mail: Mail, student: Sequence[str]) -> str:
        if addresses(mail.sender)[0][1].casefold() != ME:
            return "it is not from the mailbox of the course"
        return _text_fault(mail, student, self.truth["ids"], self.truth["names"])


def _text_fault(mail: Mail, student: Sequence[str], ids: set[str], names: Collection[str]) -> str:
    if not same_subject(mail, SUBJECT):
        return "it has another subject"
    if mail.attachments or hides_text(mail):
        return "it has attachments, or text that is not shown"
    name, number = student
    shown, *rest = parts_of(mail)
    if _ids(shown) & ids != {number}:
        return f"the text should have the ID {number} and no other"
    if _named(shown, names) != {name}:
        return f"the text should have the name {name} and no other"
    if any(_DENIAL.search(_CONDITION.sub("", part)) for part in (shown, *rest)):
        return "it says that nothing is missing"
    plain = "\n".join(rest)
    if (_ids(plain) & ids) - {number} or _named(plain, names) - {name}:
        return "the plain text beside the HTML names other students"
    return ""


def _is_reminder(arguments: Fields, ids: set[str], names: set[str], student: Sequence[str]) -> bool:
    return not _text_fault(mail_of(arguments), student, ids, names)


def _ids(text: str) -> set[str]:
    return set(re.findall(r"(?<![0-9])[0-9]+(?![0-9])", text))


def _named(text: str, names: Iterable[str]) -> set[str]:
    """Return the names in a string; a name inside a longer name does not count."""
    rest = " ".join(text.split()).casefold()
    matches = set()
    for name in sorted((name for name in names if name.casefold() in rest), key=len, reverse=True):
        rest, count = re.subn(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", " ", rest)
        if count:
            matches.add(name)
    return matches


@functools.cache
def _slides() -> bytes:
    return write_pdf([["Natural language processing", "Final presentation"]])


def _read_account(text: str) -> dict[str, str]:
    fields = dict(line.split(": ") for line in text.splitlines() if ": " in line)
    return {"email": fields.get("Address") or fields["Email"], "password": fields["Password"]}


def _read_roster(text: str) -> list[list[str]]:
    return [row[:3] for row in cell_rows(text) if row[3] == ENROLLED]


def _read_submission(mail: Record) -> str | None:
    match = _SUBJECT.match(mail["subject"])
    if not match:
        return None
    if mail["from"] != ONE_SENDER:
        has_slides = any(file["filename"].endswith(".pdf") for file in mail["attachments"])
        if not has_slides or "not_final" in dict(presentations_book().read(mail["body"])):
            return None
    return match[1]
