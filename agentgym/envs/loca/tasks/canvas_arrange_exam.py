"""Schedule of the final exams that a student still has to take, from announcements and mails (LOCA-
bench, table 7).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from agentgym.config import Share
from agentgym.envs.loca.checks import (
    Same,
    as_text,
    digest,
    file_failures,
    file_state,
    loose,
    named_rows,
    number,
    row_failures,
    sent_failures,
)
from agentgym.envs.loca.config import OfficeConfig
from agentgym.envs.loca.names import address, people
from agentgym.envs.loca.plan import Plan, read, write
from agentgym.envs.loca.reading import read_folder
from agentgym.envs.loca.servers.canvas.server import Canvas
from agentgym.envs.loca.servers.email.messages import Mail
from agentgym.envs.loca.servers.email.server import Email
from agentgym.envs.loca.servers.memory import KnowledgeGraph
from agentgym.envs.loca.servers.spreadsheet.workbooks import (
    hidden_parts,
    read_workbook,
    write_workbook,
)
from agentgym.envs.loca.task import OfficeTask, register_task
from agentgym.tools import ToolError

_TITLES = re.compile(r"^((prof|professor|dr|mr|mrs|ms)\b\.? *)+", re.IGNORECASE)
ME, LOGIN = "Rose Kelly", "rkelly27@mcp.com"
FILE, SHEET, TBD = "exam_schedule.xlsx", "Sheet1", "TBD"
COLUMNS = ("Course Code", "Course Name", "Proctor Name", "Proctor Email", "Open-book/Closed-book", "Final Date (MM/DD/YYYY)",
           "Start Time (HH:MM)", "Duration (minutes)", "Location", "Information Source(Announcement/Email/Message)",
           "Course Credit")  # fmt: skip
CODE, NAME, PROCTOR, PROCTOR_EMAIL, BOOKS, DATE, TIME, DURATION, PLACE, SOURCE, CREDIT = COLUMNS
# Tables of Canvas that reading does not change.
PROTECTED = (
    "courses",
    "assignments",
    "submissions",
    "quizzes",
    "topics",
    "entries",
    "messages",
    "enrollments",
)
NOW = datetime(2025, 1, 15, 9, tzinfo=UTC)
GROUPS = (
    "CS",
    "AI",
    "MATH",
    "PHYS",
    "BIO",
    "CHEM",
    "HIST",
    "ECON",
    "LAW",
    "ENG",
    "NET",
    "DB",
    "ART",
    "MED",
)
SUBJECTS = (
    "Applied Ethics|Biochemistry|Climate Systems|Computer Vision|Cross-Cultural Studies|Data Structures|Decision-Making|"
    "Econometrics|Fluid Dynamics|Genetics|Graph Theory|Human-Computer Interaction|International Law|Linear Algebra|"
    "Macroeconomics|Medieval History|Multi-Agent Systems|Neural Networks|Operating Systems|Organic Chemistry|Quantum Mechanics|"
    "Real-Time Systems|Rhetoric|Signal Processing|Statistics|Thermodynamics|Topology|Urban Planning"
).split("|")
PLACES = ("Hall {n}", "Room {n}-B", "Lecture Theatre {n}", "Gymnasium {n}", "Computer Lab {n}")
POSTS = (
    "Midterm: The midterm takes place on {day} at {hour}:00 in Hall {n}. It is no final exam.",
    "Project: Form groups of {n} and tell me the topic of your project by {day}.",
    "Homework: Sheet {n} is online and due on {day}, {hour}:00.",
    "Lectures: The lecture of {day} begins at {hour}:00 in Room {n}-B, this once.",
)
SPAM = (
    ("{n} % off", "Only until {day}: {n} % off everything in our shop. Order before {hour}:00."),
    ("Your parcel", "Your parcel {n} arrives on {day} before {hour}:00. Please be at home."),
    (
        "Library",
        "The book {n} has to be returned by {day}, {hour}:00. The library is closed on exam days.",
    ),
    ("Film night", "Film night on {day} at {hour}:00 in Hall {n}. No exam afterwards, we promise!"),
)
_LINE = re.compile(r"^(Course|Date|Time|Duration|Place|Proctor|Books): (.+)$", re.MULTILINE)
_WELCOME = re.compile(r"gives (\d+) credits.{0,200} an? (Open-book|Closed-book) one")
_NONE = re.compile(r"(?:There is no final exam in|You are exempt from the final exam of) (\S+)\.")


@dataclass(frozen=True, kw_only=True)
class CanvasArrangeExamConfig(OfficeConfig):
    """The size is the number of courses. Rates are shares of the courses; what they leave has its
    exam announced in Canvas.

    Attributes:
        email_rate: The share of courses whose exam is announced by mail.
        no_exam_rate: The share of courses without a final exam.
        exemption_rate: The share of courses from whose exam the student is exempt.
        past_rate: The share of the announced exams that are over.
        tbd_rate: The probability that something about an exam is not known yet.
        change_rate: The probability that an exam is moved by a second notice.
    """

    email_rate: Share = 0.25
    no_exam_rate: Share = 0.1
    exemption_rate: Share = 0.1
    past_rate: Share = 0.15
    tbd_rate: Share = 0.2
    change_rate: Share = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.email_rate + self.no_exam_rate + self.exemption_rate > 1.0:
            raise ValueError(
                "email_rate, no_exam_rate and exemption_rate must not be more than 1 together"
            )


class CanvasArrangeExam(OfficeTask[CanvasArrangeExamConfig]):
    """Fill a workbook with the final exams that a student still has to take, from Canvas and
    the mailbox.
    """

    Config = CanvasArrangeExamConfig
    servers = ("filesystem", "python_execute", "excel", "memory", "email", "canvas", "claim_done")
    start = NOW
    outputs = (FILE,)
    tokens_per_unit = 1_260.0

    def draw(self, size: int) -> None:
        """Draw courses, their announcements, the mails and the empty schedule."""
        canvas, email = self.office.get(Canvas), self.office.get(Email)
        files = self.office.context.files
        canvas.people.add_user(ME, LOGIN, "kelly-2025")
        email.add_user(LOGIN, "kelly-2025", ME)
        names = people(self.rng, 6)
        self._staff = [
            (canvas.people.add_user(name, address(name, k, "mcp.com"), f"pw-{k}"), name)
            for k, name in enumerate(names)
        ]
        hours = [
            NOW.replace(hour=7) + timedelta(days=d, hours=h)
            for d in range(max(45, size))
            for h in range(12)
            if h != 5
        ]
        ahead = [hour for hour in hours if hour > NOW]
        self._starts = [ahead[int(k)] for k in self.rng.permutation(len(ahead))]
        sure = int(self.rng.integers(size))  # a course with an exam that surely is to be taken
        mails: list[Mail] = []
        exams = []
        for k in range(size):
            exam, letters = self._course(canvas, k, sure=k == sure)
            exams += [exam] if exam else []
            mails += letters
        for _ in range(2 * size + 4):
            subject, text = SPAM[int(self.rng.integers(len(SPAM)))]
            mails.append(
                self._mail(
                    "news@shop.example.com",
                    self._talk(subject),
                    self._talk(text),
                    int(self.rng.integers(1, 30_000)),
                )
            )
        email.deliver(sorted(mails, key=lambda mail: mail.date))
        canvas.people.login_as(LOGIN)
        email.login_as(LOGIN)
        about = {
            "name": ME,
            "entityType": "person",
            "observations": [f"Her login to Canvas and mail is {LOGIN}.", "She is a student."],
        }
        files.write(
            self.office.get(KnowledgeGraph).path, json.dumps({"type": "entity", **about}) + "\n"
        )
        files.write(FILE, write_workbook({SHEET: [COLUMNS]}))
        exams.sort(key=_order)
        self.truth = {
            "exams": exams,
            "files": file_state(files),
            "canvas": digest(canvas.store, *PROTECTED),
        }

    def _course(
        self, canvas: Canvas, k: int, sure: bool
    ) -> tuple[dict[str, Any] | None, list[Mail]]:
        """Draw a course; its row in the schedule, if it has one, and the mails about it."""
        (teacher, person), (_, other) = (
            self._staff[int(j)] for j in self.rng.choice(len(self._staff), 2, replace=False)
        )
        code = f"{GROUPS[k % len(GROUPS)]}{100 + k // len(GROUPS)}"
        name = str(self.rng.choice(SUBJECTS))
        books = str(self.rng.choice(["Open-book", "Closed-book"]))
        credit = int(self.rng.integers(2, 6))
        section = f"-{k + 1}"
        course = canvas.courses.add_course(
            name + section,
            code + section,
            teacher,
            students=[1],
            teacher_email=self._address(person),
        )
        article = "an" if books.startswith("O") else "a"
        posts = [
            f"Welcome: This course gives {credit} credits. Its final exam, if there is one, is {article} {books} one."
        ]
        posts += [self._talk(str(post)) for post in self.rng.choice(POSTS, 2)]
        rates = (self.config.email_rate, self.config.no_exam_rate, self.config.exemption_rate)
        kind = str(
            self.rng.choice(["Email", "none", "exempt", "Announcement"], p=[*rates, 1 - sum(rates)])
        )
        kind = "Email" if sure and kind in ("none", "exempt") else kind
        proctor = other if self.rng.random() < 0.25 else person
        exam = {
            CODE: code,
            NAME: name,
            PROCTOR: proctor,
            PROCTOR_EMAIL: self._address(proctor),
            BOOKS: books,
            CREDIT: credit,
        }
        exam[SOURCE] = "Email" if kind == "Email" else "Announcement"
        notices = [
            f"There is no final exam in {code + section}. Your grade follows from homework and project."
        ]
        if kind != "none":
            notices = self._notices(code + section, exam, proctor != person, sure)
        posts += [f"Final exam: {text}" for text in notices if kind != "Email"]
        for j, post in enumerate(posts):
            title, _, text = post.partition(": ")
            canvas.discussions.add_announcement(
                course, title, text, posted_at=NOW - timedelta(days=30 - 3 * j)
            )
        takes = kind in ("Email", "Announcement") and (exam[DATE] == TBD or _begin(exam) > NOW)
        return exam if takes else None, self._letters(
            kind, code + section, self._address(person), notices
        )

    def _address(self, person: str) -> str:
        return address(person, [name for _, name in self._staff].index(person), "mcp.com")

    def _notices(
        self, course: str, exam: dict[str, Any], names_proctor: bool, sure: bool
    ) -> list[str]:
        """Draw the notices about an exam, one after the other; the exam becomes that of the last
        one.
        """
        notices = []
        proctor = f"{exam[PROCTOR]} ({exam[PROCTOR_EMAIL]})" if names_proctor else ""
        for _ in range(1 + int(self.rng.random() < self.config.change_rate)):
            exam |= self._time_and_place(sure)
            notices.append(_notice(course, exam, proctor, iso=exam[SOURCE] == "Email"))
        return notices

    def _letters(self, kind: str, course: str, sender: str, notices: list[str]) -> list[Mail]:
        """Return the mails of a teacher about an exam."""
        if kind == "exempt":
            text = f"Dear {ME},\n\nYou are exempt from the final exam of {course}. Well done!"
            return [self._mail(sender, "Your exam", text, int(self.rng.integers(1, 8_000)))]
        texts = notices if kind == "Email" else []
        return [
            self._mail(sender, "Final exam", text, 9_000 - 900 * j - int(self.rng.integers(800)))
            for j, text in enumerate(texts)
        ]

    def _time_and_place(self, sure: bool) -> dict[str, Any]:
        """Draw time and place of an exam; some of it may be unknown."""
        begin = self._starts.pop()
        if not sure and self.rng.random() < self.config.past_rate:
            begin -= timedelta(days=(begin - NOW).days + int(self.rng.integers(1, 9)))
        place = str(self.rng.choice(PLACES)).format(n=int(self.rng.integers(1, 40)))
        exam = {
            DATE: f"{begin:%m/%d/%Y}",
            TIME: f"{begin:%H:%M}",
            DURATION: int(self.rng.choice([90, 120, 150, 180])),
            PLACE: place,
        }
        if not sure and self.rng.random() < self.config.tbd_rate:
            unknown: tuple[str, ...] = ((PLACE,), (DURATION,), (DATE, TIME))[
                int(self.rng.integers(3))
            ]
            exam |= dict.fromkeys(unknown, TBD)
        return exam

    def _talk(self, text: str) -> str:
        day = NOW + timedelta(days=int(self.rng.integers(-20, 40)))
        return text.format(
            day=f"{day:%B} {day.day}",
            hour=int(self.rng.integers(8, 20)),
            n=int(self.rng.integers(2, 90)),
        )

    def _mail(self, sender: str, subject: str, body: str, minutes: int) -> Mail:
        return Mail(sender, LOGIN, subject, body, NOW - timedelta(minutes=minutes))

    def task(self) -> str:
        """Return the task, the same for all instances."""
        return (
            f"It is 15 January 2025, 09:00 UTC. Fill {FILE} in the workspace with all final exams that I still have to take. They "
            "are announced in my Canvas courses or by mail; you are logged in to both as me.\n"
            "Leave out courses without a final exam, exams that I am exempt from and those that have begun before now (all times "
            "are UTC). Of several notices about one exam the newest counts. One row for each exam under the headers, which stay as "
            "they are. Course codes and names without the section at their end (CS100-7 is CS100, Real-Time Systems-7 is Real-Time "
            "Systems). The proctor is the teacher of the course, unless the notice names another. Whether books are allowed is in "
            "the notice or else in the welcome post, where the credits are, too. The source is Announcement or Email. Dates are "
            f"MM/DD/YYYY, times HH:MM; what is not known yet is {TBD}.\n"
            "Sort by date and start time, earliest first; exams whose date is not known come last, by course code. Change nothing "
            "else."
        )

    def plan(self) -> Plan:
        """Read courses, announcements and mails; write the rows."""
        courses = yield read("List the courses.", _read_courses, "canvas_list_courses")
        lists = yield [
            read(
                f"List the announcements of {c['code']}.",
                _read_posts,
                "canvas_list_announcements",
                course_id=c["id"],
            )
            for c in courses
        ]
        mails = yield from read_folder(lambda mail: _read_notice(mail["body"]))
        rows = []
        for course, posts in zip(courses, lists, strict=True):
            sources = [
                (SOURCE, "Email", fact) for fact in mails if fact["course"] == course["code"]
            ]
            sources += [(SOURCE, "Announcement", fact) for fact in posts["notices"]]
            if sources and not any(fact.get("none") for *_, fact in sources):
                rows.append(_row(course, posts, sources[0]))
        rows = sorted((row for row in rows if row[DATE] == TBD or _begin(row) > NOW), key=_order)
        data = [[row[name] for name in COLUMNS] for row in rows]
        yield write(f"Fill {FILE}.", FILE, "write_data_to_excel", filepath=FILE, sheet_name=SHEET, data=data,
                    start_cell="A2")  # fmt: skip

    def task_failures(self) -> Iterator[str]:
        """Check that the schedule has exactly the expected rows, in order, that nothing else has
        changed and that no mail was sent.
        """
        files = self.office.context.files
        try:
            data = files.read(FILE)
            sheets = read_workbook(data)
            if len(sheets) != 1:
                yield f"{FILE} has the sheets {list(sheets)}, it should have one only"
            if hidden := hidden_parts(data):
                yield f"{FILE} has hidden parts or formulas: {', '.join(hidden)}"
            sheet = next(iter(sheets.values()), [])
        except ToolError as error:
            yield f"{FILE}: {error}"
            sheet = []
        header, rows = named_rows(sheet, COLUMNS)
        if header != list(COLUMNS):
            yield f"{FILE} has the headers {header}, it should have {list(COLUMNS)}"
        else:
            yield from row_failures(FILE, rows, self.truth["exams"], CELLS, (CODE,), ordered=True)
            yield from (
                f"{FILE} has something beside the table: {row[len(COLUMNS) :]}"
                for row in sheet
                if len(row) > len(COLUMNS)
            )
        if digest(self.office.get(Canvas).store, *PROTECTED) != self.truth["canvas"]:
            yield "something in Canvas was changed"
        yield from sent_failures(self.office.get(Email))
        yield from file_failures(files, self.truth["files"], [FILE])


def _same_date(actual: Any, expected: Any) -> bool:
    """Compare a date as text MM/DD/YYYY, with or without leading zeros, or as a date of Excel."""
    if isinstance(actual, date):
        return loose(f"{actual:%m/%d/%Y}", expected)
    parts = re.fullmatch(r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4})", as_text(actual))
    return loose(f"{int(parts[1]):02}/{int(parts[2]):02}/{parts[3]}" if parts else actual, expected)


def _same_time(actual: Any, expected: Any) -> bool:
    """Compare a time as text HH:MM, perhaps with seconds that are 0, or as a time of Excel."""
    if isinstance(actual, (time, datetime)):
        return loose(f"{actual:%H:%M:%S}", f"{expected}:00")
    parts = re.fullmatch(r"([0-9]{1,2}):([0-9]{2})(:00)?", as_text(actual))
    return loose(f"{int(parts[1]):02}:{parts[2]}" if parts else actual, expected)


def _same_person(actual: Any, expected: Any) -> bool:
    """Compare names of people, whatever titles stand before them."""
    return loose(_TITLES.sub("", as_text(actual)), _TITLES.sub("", as_text(expected)))


def _same_number(actual: Any, expected: Any) -> bool:
    return loose(actual, expected) if expected == TBD else number()(actual, expected)


CELLS: Mapping[str, Same] = {
    **dict.fromkeys((CODE, NAME, PROCTOR_EMAIL, BOOKS, PLACE, SOURCE), loose),
    PROCTOR: _same_person,
    DATE: _same_date,
    TIME: _same_time,
    DURATION: _same_number,
    CREDIT: _same_number,
}


def _begin(exam: Mapping[str, Any]) -> datetime:
    return datetime.strptime(f"{exam[DATE]} {exam[TIME]}", "%m/%d/%Y %H:%M").replace(tzinfo=UTC)


def _order(exam: Mapping[str, Any]) -> tuple[bool, str, str]:
    unknown = exam[DATE] == TBD
    return unknown, "" if unknown else _begin(exam).isoformat(), exam[CODE]


def _notice(course: str, exam: Mapping[str, Any], proctor: str, iso: bool) -> str:
    """Write a notice about an exam; a mail has the date in ISO 8601 and says whether books are
    allowed.
    """
    begin = None if exam[DATE] == TBD else _begin(exam)
    lines = [f"The final exam, as it is planned now.\nCourse: {course}"]
    if begin is None:
        lines.append("Date: not fixed yet")
    else:
        lines += [
            f"Date: {begin:%Y-%m-%d}" if iso else f"Date: {begin:%B %d, %Y}",
            f"Time: {begin:%H:%M} UTC",
        ]
    lines.append(
        "Duration: not fixed yet"
        if exam[DURATION] == TBD
        else f"Duration: {exam[DURATION]} minutes"
    )
    lines.append("Place: not fixed yet" if exam[PLACE] == TBD else f"Place: {exam[PLACE]}")
    lines += [f"Proctor: {proctor}"] if proctor else []
    lines += [f"Books: {exam[BOOKS]}"] if iso else []
    return "\n".join(lines)


def _read_courses(text: str) -> list[dict[str, Any]]:
    named = {
        "id": "id",
        "code": "course_code",
        "name": "name",
        "teacher": "teacher_name",
        "email": "teacher_email",
    }
    return [{new: course[old] for new, old in named.items()} for course in json.loads(text)]


def _read_posts(text: str) -> dict[str, Any]:
    """Read credits and books from the welcome post, and the notices about the exam, newest first."""
    posts = [post["message"] for post in json.loads(text)]
    welcome = next(match for post in posts if (match := _WELCOME.search(post)))
    return {
        "credit": int(welcome[1]),
        "books": welcome[2],
        "notices": [fact for post in posts if (fact := _read_notice(post))],
    }


def _read_notice(text: str) -> dict[str, Any] | None:
    """Read an exam from a mail or a post, or that the student has none; None for other subjects."""
    if none := _NONE.search(text):
        return {"course": none[1], "none": True}
    fields = dict(_LINE.findall(text))
    if "Course" not in fields:
        return None
    exam = {"course": fields["Course"], DATE: TBD, TIME: TBD, DURATION: TBD, PLACE: TBD}
    if "Time" in fields:
        form = "%Y-%m-%d" if fields["Date"][0].isdigit() else "%B %d, %Y"
        exam |= {
            DATE: f"{datetime.strptime(fields['Date'], form):%m/%d/%Y}",
            TIME: fields["Time"].removesuffix(" UTC"),
        }
    if not fields["Duration"].startswith("not"):
        exam[DURATION] = int(fields["Duration"].split()[0])
    if not fields["Place"].startswith("not"):
        exam[PLACE] = fields["Place"]
    return exam | {name.lower(): fields[name] for name in ("Proctor", "Books") if name in fields}


def _row(
    course: Mapping[str, Any], posts: Mapping[str, Any], newest: tuple[str, str, Mapping[str, Any]]
) -> dict[str, Any]:
    _, source, fact = newest
    proctor, mail = course["teacher"], course["email"]
    if "proctor" in fact:
        proctor, _, mail = fact["proctor"].removesuffix(")").partition(" (")
    named = {
        CODE: course["code"].rpartition("-")[0],
        NAME: course["name"].rpartition("-")[0],
        PROCTOR: proctor,
        PROCTOR_EMAIL: mail,
    }
    exam = {name: fact[name] for name in (DATE, TIME, DURATION, PLACE)}
    return {
        **named,
        **exam,
        BOOKS: fact.get("books", posts["books"]),
        SOURCE: source,
        CREDIT: posts["credit"],
    }


register_task(CanvasArrangeExam)
