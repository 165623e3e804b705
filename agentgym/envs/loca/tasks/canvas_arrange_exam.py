"""List a student's remaining final exams from announcements and emails (LOCA-bench, table 7)."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from agentgym.envs.loca.checks import (
    Same,
    as_text,
    file_state,
    loose,
    number,
    open_output,
    table_failures,
)
from agentgym.envs.loca.draws import address, people, pick, pick_by_share, shuffled, text_of
from agentgym.envs.loca.fragments import fields_of, look_at_workbook, read_folder, remove_sheets
from agentgym.envs.loca.plan import Plan, read, write
from agentgym.envs.loca.published.courses import load_courses
from agentgym.envs.loca.published.exams import (
    mailed_course,
    read_exam_mail,
    read_exam_post,
    schedule_failures,
)
from agentgym.envs.loca.published.files import as_finite, as_name, read_book, typed_rows
from agentgym.envs.loca.published.states import PublishedConfig, load_mail, load_workspace
from agentgym.envs.loca.records import Fields, Grid, Record, Rows
from agentgym.envs.loca.service_checks import sent_failures
from agentgym.envs.loca.task import OfficeTask
from agentgym.envs.loca.writing.coursework import Course, draw_courses
from agentgym.envs.loca.writing.exam_notices import (
    CLOSED,
    OPEN,
    UPDATES,
    Exam,
    Said,
    Setting,
    by_kind,
    draw_place,
    facts_book,
    fillers_book,
    read_notice,
    resolve,
)
from agentgym.envs.loca.writing.exam_stories import INDIRECT_RATE, ExamStory, Timetable, told
from agentgym.envs.loca.writing.news import ANCHORS, course_news, idle_values, inbox_news
from agentgym.office.canvas.server import Canvas
from agentgym.office.context import START
from agentgym.office.email.messages import Mail
from agentgym.office.memory import KnowledgeGraph
from agentgym.office.spreadsheet.workbooks import write_workbook
from agentgym.world.config import Share

_TITLES = re.compile(r"^((prof|professor|dr|mr|mrs|ms)\b\.? *)+", re.IGNORECASE)
ME = "Rose Kelly"
LOGIN = "rkelly27@mcp.com"
_ISO_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})([ T]00:00:00)?")
FILE = "exam_schedule.xlsx"
SHEET = "Sheet1"
TBD = "TBD"
COLUMNS = ("Course Code", "Course Name", "Proctor Name", "Proctor Email", "Open-book/Closed-book", "Final Date (MM/DD/YYYY)",
           "Start Time (HH:MM)", "Duration (minutes)", "Location", "Information Source(Announcement/Email/Message)",
           "Course Credit")  # fmt: skip
CODE, NAME, PROCTOR, PROCTOR_EMAIL, BOOKS, DATE, TIME, DURATION, PLACE, SOURCE, CREDIT = COLUMNS
# Number of announcements per course, excluding exam notices and the welcome message.
POSTS = 3
# Probability that a later notice changes an exam.
_CHANGE_RATE = 0.4


@dataclass(frozen=True, kw_only=True)
class CanvasArrangeExamConfig(PublishedConfig):
    """The size is the number of courses.

    Attributes:
        email_rate: The share of courses that announce the exam by email instead of in Canvas.
        no_exam_rate: The share of courses without a final exam.
        exemption_rate: The share of courses with an exam from which the student is exempt.
        past_rate: The share of announced exams that have already taken place.
        tbd_rate: The probability that a fact about an exam is still unknown.
    """

    email_rate: Share = 0.25
    no_exam_rate: Share = 0.1
    exemption_rate: Share = 0.1
    past_rate: Share = 0.15
    tbd_rate: Share = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.email_rate + self.no_exam_rate + self.exemption_rate > 1.0:
            raise ValueError(
                "the sum of email_rate, no_exam_rate and exemption_rate must not exceed 1"
            )


class CanvasArrangeExam(OfficeTask[CanvasArrangeExamConfig]):
    """Fill a workbook with a student's remaining final exams, from Canvas and the mailbox."""

    Config = CanvasArrangeExamConfig
    servers = ("filesystem", "python_execute", "excel", "memory", "email", "canvas", "claim_done")
    outputs = (FILE,)
    tokens_per_unit = 1_630.0
    text = text_of("prompts", "CanvasArrangeExam")

    def draw(self, size: int) -> None:
        canvas = self.office.get(Canvas)
        canvas.people.add_user(ME, LOGIN, "kelly-2025")
        self.email.add_user(LOGIN, "kelly-2025", ME)
        names = people(self.rng, 6)
        self._staff: list[tuple[int, str, str]] = []
        for k, name in enumerate(names):
            box = address(name, k, "mcp.com")
            self._staff.append((canvas.people.add_user(name, box, f"pw-{k}"), name, box))
        self._idle = idle_values(self.rng, START, names)
        self._timetable = Timetable(self.rng, START, max(45, size))
        sure = self.whole(size)  # this course always has an exam to take
        mails: list[Mail] = []
        exams = []
        for k, course in enumerate(draw_courses(self.rng, size)):
            exam, letters = self._course(canvas, course, k + 1, sure=k == sure)
            if exam:
                exams.append(exam)
            mails += letters
        mails += [self._news() for _ in range(2 * size + 4)]
        self.email.deliver(sorted(mails, key=lambda mail: mail.date))
        canvas.people.login_as(LOGIN)
        self.email.login_as(LOGIN)
        self.office.get(KnowledgeGraph).set_person(
            ME, [f"Her login to Canvas and mail is {LOGIN}.", "She is a student."]
        )
        self.files.write(FILE, write_workbook({SHEET: [COLUMNS]}))
        self.truth = {"exams": sorted(exams, key=_order), "files": file_state(self.files)}

    def _load(self, state: Path) -> None:
        load_workspace(state, self.files, [FILE])
        path = state / "agent_workspace" / FILE
        if read_book(path, SHEET)[SHEET] != [list(COLUMNS)]:
            raise ValueError(f"{path} must contain only the header in an unused state")
        canvas = self.office.get(Canvas)
        load_courses(state, canvas, LOGIN, START)
        # LOCA-bench uses the host's time zone.
        mails = load_mail(state, self.email, LOGIN, latest=START - timedelta(hours=1))
        self.email.login_as(LOGIN)
        path = state / "groundtruth_workspace" / FILE
        table = next(iter(read_book(path).values())) or [COLUMNS]
        columns = {**dict.fromkeys(COLUMNS, as_name), DURATION: _as_count, CREDIT: _as_count}
        exams = typed_rows(path, table, columns, (CODE,))
        courses = canvas.store.find("courses")
        if not all("teacher_email" in course["extra"] for course in courses):
            raise ValueError(f"{state}: courses.json must contain teacher_name and teacher_email")
        _check_mails(state, mails, courses)
        listed = {course["course_code"].rpartition("-")[0]: course for course in courses}
        named = []
        for exam in exams:
            if exam[CODE] not in listed:
                raise ValueError(f"{path}: {CODE} {exam[CODE]} must be the code of a course")
            # LOCA-bench's answer file cuts off course names at the first hyphen.
            named.append({**exam, NAME: listed[exam[CODE]]["name"].rpartition("-")[0]})
        self.truth = {
            "exams": sorted(named, key=_order),
            "published": exams,
            "files": file_state(self.files),
        }

    def _course(
        self, canvas: Canvas, course: Course, section: int, sure: bool
    ) -> tuple[Record | None, list[Mail]]:
        (teacher, person, box), (_, other, other_box) = shuffled(self.rng, self._staff, 2)
        code = f"{course.code}-{section}"
        name = f"{course.name}-{section}"
        listed = {"code": code, "name": name, "teacher": person, "email": box}
        course_id = canvas.courses.add_course(name, code, teacher, students=[1], teacher_email=box)
        shares = {
            "Email": self.config.email_rate,
            "none": self.config.no_exam_rate,
            "exempt": self.config.exemption_rate,
            "Announcement": 1.0,
        }
        kind = pick_by_share(self.rng, shares)
        if sure and kind in ("none", "exempt"):
            kind = "Email"
        books = pick(self.rng, [OPEN, CLOSED])
        credit = self.whole(2, 6)
        setting, posts = self._posts(section)
        exam = Exam(books=books if kind == "Email" else None)
        if self.happens(0.25):
            exam = replace(exam, proctor=f"{other} ({other_box})")
        if kind == "none":
            exam = replace(exam, held=False)
            notices = [["opening", self._says("none")]]
        else:
            exam, notices = self._notices(exam, setting, sure)
        own = []
        if kind != "Email":  # otherwise only mails announce the exam
            own = [told(self.rng, notice) for notice in notices]
        posts = [("Welcome", self._welcome(credit, books)), *self._among(posts, own)]
        for j, (title, text) in enumerate(posts):
            moment = START - timedelta(days=90 - 5 * j)
            canvas.discussions.add_announcement(
                course_id, title, text, posted_at=moment, author=teacher
            )
        reference = code if self.happens(0.6) else course.name
        letters = self._letters(kind, reference, listed, notices)
        if kind in ("Email", "Announcement") and exam.held:
            row = _row(listed, credit, replace(exam, books=books), kind)
            if _ahead(row):
                return row, letters
        return None, letters

    def _notices(self, exam: Exam, setting: Setting, sure: bool) -> tuple[Exam, list[list[str]]]:
        rates = {"past": self.config.past_rate, "unknown": self.config.tbd_rate}
        story = ExamStory(self.rng, setting, self._timetable, **rates, sure=sure)
        exam, first = story.first(exam)
        if self.rng.random() >= _CHANGE_RATE:
            return exam, [first]
        exam, changes = story.change(exam)
        return exam, [first, *changes]

    def _posts(self, section: int) -> tuple[Setting, list[tuple[str, str]]]:
        midterm = (START - timedelta(days=self.whole(5, 50))).date().isoformat()
        project = (START + timedelta(days=self.whole(-5, 40))).date().isoformat()
        place = draw_place(self.rng)
        facts = {
            "midterm": self._says("midterm", date=midterm, place=place),
            "project": self._says("project", date=project),
        }
        topics = [topic for topic in ANCHORS if self.happens(0.5)]
        others = [topic for topic in course_news().topics if topic not in ANCHORS]
        topics += shuffled(self.rng, others, POSTS - len(topics))
        posts = []
        for topic in topics:
            post = course_news().draw(self.rng, self._idle, topic, facts.get(topic, ""))
            posts.append(post[1:])
        setting = Setting(section)
        if "midterm" in topics:
            setting = replace(setting, midterm=midterm, midterm_place=place)
        if "project" in topics:
            setting = replace(setting, project=project)
        return setting, posts

    def _welcome(self, credit: int, books: str) -> str:
        says = [
            self._says("credits", number=credit),
            self._says("welcome_open" if books == OPEN else "welcome_closed"),
            self._filler("welcome"),
        ]
        return " ".join(shuffled(self.rng, says))

    def _among(self, posts: list[tuple[str, str]], notices: list[str]) -> list[tuple[str, str]]:
        places = sorted(self.whole(len(posts) + 1) for _ in notices)
        for count, (place, text) in enumerate(zip(places, notices, strict=True)):
            posts.insert(place + count, (self._filler("title"), text))
        return posts

    def _says(self, kind: str, **values: Any) -> str:
        return facts_book().write(kind, self.rng, **values)

    def _letters(
        self, kind: str, reference: str, course: Mapping[str, str], notices: list[list[str]]
    ) -> list[Mail]:
        letters = []
        if kind == "Email":
            for j, notice in enumerate(notices):
                head = notice[1:] if notice[0] == "opening" else notice
                text = told(self.rng, [self._says("about", course=reference), *head])
                letters.append((text, 9_000 - 900 * j - self.whole(800)))
        exempt = kind == "exempt"
        if exempt or (kind != "none" and self.happens(self.config.exemption_rate)):
            text = self._exemption(reference, exempt)
            letters.append((text, self.whole(1, 8_000)))
        mails = []
        for text, minutes in letters:
            subject = self._filler("subject")
            greeting = self._filler("greeting", name=ME.partition(" ")[0])
            closing = self._filler("closing")
            body = f"{greeting}\n\n{text}\n\n{closing}\n{course['teacher']}"
            mails.append(self._mail(course["email"], subject, body, minutes))
        return mails

    def _exemption(self, reference: str, exempt: bool) -> str:
        # The sign says on which side of the limit the student's points are.
        kind, end, sign = ("exempt", "praise", 1) if exempt else ("not_exempt", "regret", -1)
        ending = self._filler(end)
        if self.rng.random() >= INDIRECT_RATE:
            return f"{self._says(kind, course=reference)} {ending}"
        limit = self.whole(60, 96)
        points = limit - int(not exempt)
        if self.rng.integers(2):  # move half of the scores away from the limit
            points += sign * self.whole(1, 9)
        rule = self._says("exemption", course=reference, limit_number=limit)
        return f"{rule} {self._says('score', points_number=points)} {ending}"

    def _filler(self, kind: str, **values: Any) -> str:
        return fillers_book().write(kind, self.rng, **values)

    def _news(self) -> Mail:
        sender, subject, text = inbox_news().draw(self.rng, self._idle)
        return self._mail(sender, subject, text, self.whole(1, 30_000))

    def _mail(self, sender: str, subject: str, body: str, minutes: int) -> Mail:
        return Mail(sender, LOGIN, subject, body, START - timedelta(minutes=minutes))

    def plan(self) -> Plan:
        courses = yield read("List the courses.", _read_courses, "canvas_list_courses")
        steps = []
        for each in courses:
            label = f"List the announcements of {each['code']}."
            course = {"course_id": each["id"]}
            steps.append(read(label, _read_posts, "canvas_list_announcements", **course))
        lists = yield steps
        mails = yield from read_folder(_read_mail)
        by_course: dict[str, list[Said]] = {}
        for mail in reversed(mails):
            by_course.setdefault(mail["course"], []).extend(mail["said"])
        rows = []
        for course, posts in zip(courses, lists, strict=True):
            name = course["name"].rpartition("-")[0]
            letters: list[Said] = []
            for each in (course["code"], name, mailed_course(name, course["email"])):
                letters += by_course.get(each, ())
            row = _read_row(course, posts, letters)
            if row is not None and _ahead(row):
                rows.append(row)
        rows.sort(key=_order)
        sheets = yield from look_at_workbook(FILE, SHEET)
        if sheets is not None and not any(_table_failures(sheets.get(SHEET, []), rows)):
            yield from remove_sheets(FILE, sheets, SHEET)
            return
        data = [[row[name] for name in COLUMNS] for row in rows]
        start = "A2"  # the initial workbook already contains the header
        step = functools.partial(write, thing=f"file {FILE}", filepath=FILE)
        if sheets is not None:
            data = [list(COLUMNS), *data]
            start = "A1"
            yield step(f"Make {FILE} anew.", FILE, "create_workbook")
        cells: Record = {"sheet_name": SHEET, "data": data, "start_cell": start}
        yield step(f"Fill {FILE}.", FILE, "write_data_to_excel", **cells)

    def task_failures(self) -> Iterator[str]:
        table, failures = open_output(self.files, FILE, SHEET)
        yield from failures
        yield from _table_failures(table, self.truth["exams"])
        yield from sent_failures(self.email)

    def published_failures(self) -> Iterator[str]:
        return schedule_failures(self.files, FILE, self.truth["published"])


def _check_mails(state: Path, mails: Iterable[Mail], courses: Iterable[Fields]) -> None:
    """Raise ValueError if an email's course name and teacher do not match exactly one course."""
    names = [mailed_course(each["name"], each["extra"]["teacher_email"]) for each in courses]
    for mail in mails:
        about = by_kind(read_exam_mail(mail.body, mail.sender)).get("about")
        if about and names.count(about["course"]) != 1:
            raise ValueError(f"{state}: the mail {mail.subject!r} must match exactly one course")


def _as_count(cell: Any) -> Any:
    return TBD if cell == TBD else int(as_finite(cell))


def _table_failures(table: Grid, exams: Rows) -> Iterator[str]:
    yield from table_failures(FILE, table, exams, CELLS, (CODE,), ordered=True)


def _same_date(actual: Any, expected: Any) -> bool:
    iso = _ISO_DAY.fullmatch(as_text(actual))  # the agent may write an Excel date as text
    if iso:
        return loose(f"{iso[2]}/{iso[3]}/{iso[1]}", expected)
    parts = re.fullmatch(r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4})", as_text(actual))
    if parts:
        actual = f"{int(parts[1]):02}/{int(parts[2]):02}/{parts[3]}"
    return loose(actual, expected)


def _same_time(actual: Any, expected: Any) -> bool:
    parts = re.fullmatch(r"(?:[0-9-]{10}[ T])?([0-9]{1,2}):([0-9]{2})(:00)?", as_text(actual))
    if parts:
        actual = f"{int(parts[1]):02}:{parts[2]}"
    return loose(actual, expected)


def _same_person(actual: Any, expected: Any) -> bool:
    return loose(_TITLES.sub("", as_text(actual)), _TITLES.sub("", as_text(expected)))


def _same_number(actual: Any, expected: Any) -> bool:
    return loose(actual, expected) if expected == TBD else number()(actual, expected)


CELLS: Mapping[str, Same] = {
    **dict.fromkeys(COLUMNS, loose),
    PROCTOR: _same_person,
    DATE: _same_date,
    TIME: _same_time,
    DURATION: _same_number,
    CREDIT: _same_number,
}


def _begin(exam: Fields) -> datetime:
    return datetime.strptime(f"{exam[DATE]} {exam[TIME]} +0000", "%m/%d/%Y %H:%M %z")


def _order(exam: Fields) -> tuple[bool, str, str]:
    if exam[DATE] == TBD:
        return True, "", exam[CODE]
    return False, _begin(exam).isoformat(), exam[CODE]


def _ahead(exam: Fields) -> bool:
    return exam[DATE] == TBD or _begin(exam) > START


def _read_courses(text: str) -> list[Record]:
    names = {"code": "course_code", "name": "name"}
    staff = {"teacher": "teacher_name", "email": "teacher_email"}
    return [fields_of(course, "id", **names, **staff) for course in json.loads(text)]


def _read_posts(text: str) -> list[Said]:
    said = []
    for post in reversed(json.loads(text)):
        said += read_exam_post(post["message"]) or read_notice(post["message"])
    return said


def _read_mail(mail: Fields) -> Record | None:
    said = read_exam_mail(mail["body"], mail["from"]) or read_notice(mail["body"])
    course = next((values["course"] for _, values in said if "course" in values), None)
    return {"course": course, "said": said} if course else None


def _is_exempt(letters: Iterable[Said]) -> bool:
    said = by_kind(letters)
    if "exemption" in said:
        return bool(said["score"]["points_number"] >= said["exemption"]["limit_number"])
    return "exempt" in said


def _read_row(course: Fields, posts: Sequence[Said], letters: Sequence[Said]) -> Record | None:
    exam = resolve([*posts, *letters], section=int(course["code"].rpartition("-")[2]))
    if exam is None or not exam.held or _is_exempt(letters):
        return None
    welcome = by_kind(posts)
    books = exam.books or (OPEN if "welcome_open" in welcome else CLOSED)
    source = "Email" if any(kind in UPDATES for kind, _ in letters) else "Announcement"
    return _row(course, welcome["credits"]["number"], replace(exam, books=books), source)


def _row(course: Fields, credit: int, exam: Exam, source: str) -> Record:
    proctor = course["teacher"]
    mail = course["email"]
    if exam.proctor:
        proctor, _, mail = exam.proctor.removesuffix(")").partition(" (")
    day = TBD
    if exam.day:
        day = f"{date.fromisoformat(exam.day):%m/%d/%Y}"
    return {
        CODE: course["code"].rpartition("-")[0],
        NAME: course["name"].rpartition("-")[0],
        PROCTOR: proctor,
        PROCTOR_EMAIL: mail,
        DATE: day,
        TIME: exam.time or TBD,
        DURATION: exam.minutes or TBD,
        PLACE: exam.place or TBD,
        BOOKS: exam.books,
        SOURCE: source,
        CREDIT: credit,
    }
