"""Canvas: users, courses, assignments, submissions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

from agentgym.envs.loca.servers.canvas.filling import sortable
from agentgym.envs.loca.servers.canvas.material import CanvasMaterial
from agentgym.envs.loca.servers.canvas.records import STUDENT, TEACHER, Text, given, line, moment, points, prose, shown
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool

PEOPLE = """
SELECT u.*, known FROM users u JOIN (
  SELECT e.user_id,
    max(e.type IN ('TeacherEnrollment', 'TaEnrollment') OR mine.type IN ('TeacherEnrollment', 'TaEnrollment')) AS known
  FROM enrollments mine JOIN enrollments e ON e.course_id = mine.course_id AND e.enrollment_state = 'active'
  WHERE mine.user_id = ? AND mine.enrollment_state = 'active' GROUP BY e.user_id
) ON user_id = u.id
"""
"""Who is in a course with a user; `known` where one of them teaches the other."""

TEACHERS = """
SELECT e.course_id, u.id, u.name AS display_name FROM enrollments e JOIN users u ON u.id = e.user_id
WHERE e.type = ? AND e.enrollment_state = 'active' AND e.course_id IN (SELECT value FROM json_each(?)) ORDER BY e.id
"""

STUDENTS = """
SELECT course_id, count(*) AS students FROM enrollments
WHERE type = ? AND enrollment_state = 'active' AND course_id IN (SELECT value FROM json_each(?)) GROUP BY course_id
"""

MINE = """
SELECT course_id, type AS role, user_id, enrollment_state FROM enrollments
WHERE user_id = ? AND course_id IN (SELECT value FROM json_each(?)) ORDER BY id
"""

_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,12})?|\.\d{1,12})(%?)")
_NOTHING = dict.fromkeys(
    ("submission_type", "body", "url", "submitted_at", "score", "grade", "grader_id", "graded_at", "graded_attempt")
)
_NOTHING |= {"file_ids": [], "attempt": 0}


class CanvasCourses(CanvasMaterial):
    """Users, courses, assignments, submissions."""

    @tool
    def canvas_health_check(self) -> Row:
        """Whether Canvas answers, and who is logged in."""
        user = self._show_user(self._me()) if "user" in self.session else None
        return {"status": "ok", "timestamp": self._now(), "user": user}

    @tool
    def canvas_login(self, login_id: str, password: str) -> Row:
        """Log in; who was logged in before is logged out."""
        found = self.store.find("users", login_id=login_id)
        if not found or found[0]["password"] != password:
            raise ToolError("permission denied: the login id or the password is wrong")
        self.session["user"] = found[0]["id"]
        self.store.update("users", found[0]["id"], last_login=self._tick())
        return {"status": "ok", "user": self._show_user(self._me())}

    @tool
    def canvas_logout(self) -> Row:
        """Log out."""
        self._me()
        del self.session["user"]
        return {"status": "ok"}

    @tool
    def canvas_get_current_user(self) -> Row:
        """The user who is logged in."""
        return self._show_user(self._me())

    @tool
    def canvas_list_users(self) -> list[Row]:
        """The users who are in a course with you (an administrator sees all); addresses only where one of you teaches the other."""
        me = self._me()
        if me["admin"]:
            return [self._show_user(user) for user in self.store.find("users")]
        people = {user["id"]: user for user in self.store.rows(PEOPLE, me["id"])} | {me["id"]: me}
        return [self._show_user(user, bool(user.get("known", True))) for _, user in sorted(people.items())]

    @tool
    def canvas_get_user_profile(self) -> Row:
        """Your profile."""
        me = self._me()
        also = {key: me[key] for key in ("title", "bio", "time_zone", "last_login")}
        return self._show_user(me) | {"primary_email": me["email"], **also}

    @tool
    def canvas_update_user_profile(
        self,
        name: Text = None,
        short_name: Text = None,
        bio: Text = None,
        title: Text = None,
        time_zone: Text = None,
    ) -> Row:
        """Change your profile."""
        changes = given(name=line("name", name), sortable_name=name and sortable(name), short_name=line("short_name", short_name))
        changes |= given(bio=prose("bio", bio), title=prose("title", title), time_zone=line("time_zone", time_zone))
        self.store.update("users", self._me()["id"], **changes)
        return self.canvas_get_user_profile()

    @tool
    def canvas_list_courses(self, include_ended: bool = False) -> list[Row]:
        """Your courses; those that are over only if asked."""
        me = self._me()
        states = ["active", *(["completed"] if include_ended else [])]
        courses = self.store.rows(
            "SELECT * FROM courses WHERE id IN (SELECT course_id FROM enrollments WHERE user_id = ? AND enrollment_state IN "
            "(SELECT value FROM json_each(?))) ORDER BY id",
            me["id"],
            json.dumps(states),
        )
        now = self._now()
        going = [each for each in courses if include_ended or not _ended(each, now)]
        return self._show_courses([each for each in going if _offered(each) or self._may(each["id"], "edit")])

    @tool
    def canvas_get_course(self, course_id: int) -> Row:
        """A course with its syllabus."""
        course = self._course(course_id)
        return self._show_courses([course])[0] | {"syllabus_body": course["syllabus_body"]}

    @tool
    def canvas_create_course(
        self,
        account_id: int,
        name: str,
        course_code: Text = None,
        start_at: Text = None,
        end_at: Text = None,
        syllabus_body: Text = None,
        is_public: bool = False,
        time_zone: Text = None,
    ) -> Row:
        """Create a course, which is not published; a teacher who creates one teaches it."""
        me = self._me()
        teaches = self.store.find("enrollments", user_id=me["id"], type=TEACHER, enrollment_state="active")
        if not me["admin"] and not teaches:
            raise ToolError("permission denied: only administrators and teachers may create courses")
        self._get("accounts", account_id)
        made = self.add_course(
            name,
            name if course_code is None else course_code,
            None if me["admin"] else me["id"],
            published=False,
            start_at=start_at,
            end_at=end_at,
            syllabus_body=syllabus_body,
            is_public=is_public,
            time_zone=time_zone or "UTC",
            account_id=account_id,
        )
        self._fresh("courses", made)
        return self.canvas_get_course(made)

    @tool
    def canvas_update_course(
        self,
        course_id: int,
        name: Text = None,
        course_code: Text = None,
        start_at: Text = None,
        end_at: Text = None,
        syllabus_body: Text = None,
    ) -> Row:
        """Change a course that you teach; an empty date takes the date away."""
        self._course(course_id, "edit")
        changes = given(name=line("name", name), course_code=line("course_code", course_code))
        changes |= given(start_at=moment("start_at", start_at), end_at=moment("end_at", end_at))
        changes |= given(syllabus_body=prose("syllabus_body", syllabus_body))
        self.store.update("courses", course_id, **changes)
        return self.canvas_get_course(course_id)

    @tool
    def canvas_list_assignments(self, course_id: int) -> list[Row]:
        """The assignments of a course."""
        return [show_assignment(row) for row in self._parts("assignments", course_id)]

    @tool
    def canvas_get_assignment(self, course_id: int, assignment_id: int) -> Row:
        """An assignment."""
        return show_assignment(self._part("assignments", course_id, assignment_id))

    @tool
    def canvas_create_assignment(
        self,
        course_id: int,
        name: str,
        description: Text = None,
        points_possible: float | None = None,
        due_at: Text = None,
        submission_types: list[str] | None = None,
        published: bool = False,
    ) -> Row:
        """Create an assignment in a course that you teach; students see it once it is published."""
        self._course(course_id, "edit")
        types = ["none"] if submission_types is None else submission_types
        fields: Row = {"description": description, "points_possible": points_possible, "due_at": due_at, "published": published}
        return show_assignment(self._fresh("assignments", self.add_assignment(course_id, name, submission_types=types, **fields)))

    @tool
    def canvas_update_assignment(
        self,
        course_id: int,
        assignment_id: int,
        name: Text = None,
        description: Text = None,
        points_possible: float | None = None,
        due_at: Text = None,
        published: bool | None = None,
    ) -> Row:
        """Change an assignment of a course that you teach; an empty date takes the date away."""
        self._part("assignments", course_id, assignment_id, "edit")
        changes = given(
            name=line("name", name),
            description=prose("description", description),
            due_at=moment("due_at", due_at),
            published=published,
            points_possible=points("points_possible", points_possible),
        )
        self.store.update("assignments", assignment_id, **changes, updated_at=self._tick())
        return self.canvas_get_assignment(course_id, assignment_id)

    @tool
    def canvas_get_submission(self, course_id: int, assignment_id: int, user_id: int | None = None) -> Row:
        """What a student has handed in for an assignment, and how it was graded: you, unless you teach and name another."""
        assignment = self._part("assignments", course_id, assignment_id)
        me = self._me()["id"]
        if user_id not in (None, me):
            self._course(course_id, "grade")
        return self._show_submission(assignment, self._student(course_id, me if user_id is None else user_id))

    @tool
    def canvas_submit_assignment(
        self,
        course_id: int,
        assignment_id: int,
        submission_type: Literal["online_text_entry", "online_url", "online_upload"],
        body: Text = None,
        url: Text = None,
        file_ids: list[int] | None = None,
    ) -> Row:
        """Hand in an assignment of your own; handing in again replaces what was handed in before.

        What you hand in is body for online_text_entry, url for online_url, file_ids (files of your own) for online_upload.
        """
        assignment = self._part("assignments", course_id, assignment_id, "learn")
        me = self._me()["id"]
        if submission_type not in assignment["submission_types"]:
            raise ToolError(f"invalid argument: it takes {echo(assignment['submission_types'])}, got {echo(submission_type)}")
        self._check_open(assignment)
        content = self._content(submission_type, me, body, url, file_ids)
        with self.store.change():
            held = self._hand_in(assignment_id, me)
            fields: Row = {"submission_type": submission_type, "attempt": held["attempt"] + 1, "submitted_at": self._tick()}
            self.store.update("submissions", held["id"], **content, **fields)
        return self._show_submission(assignment, me)

    @tool
    def canvas_submit_grade(self, course_id: int, assignment_id: int, user_id: int, grade: Any, comment: Text = None) -> Row:
        """Grade what a student has handed in, or has not.

        A grade is points, a percentage such as "85%", "complete", "incomplete", or "" to take the grade away.
        """
        assignment = self._part("assignments", course_id, assignment_id, "grade")
        student, me = self._student(course_id, user_id), self._me()["id"]
        score = _score(grade, assignment["points_possible"] or 0.0)
        said = line("comment", comment, 64_000)
        with self.store.change():
            held, now = self._hand_in(assignment_id, student), self._tick()
            graded = (None,) * 5 if score is None else (score, f"{score:.10g}", me, now, held["attempt"])
            names = ("score", "grade", "grader_id", "graded_at", "graded_attempt")
            self.store.update("submissions", held["id"], **dict(zip(names, graded, strict=True)))
            if said is not None:
                self._add("submission_comments", submission_id=held["id"], author_id=me, comment=said, created_at=now)
        return self._show_submission(assignment, student)

    def _show_user(self, user: Row, known: bool = True) -> Row:
        fields = ["id", "name", "sortable_name", "short_name", "created_at"]
        return {key: user[key] for key in [*fields, *(["login_id", "email", "sis_user_id"] if known else [])]}

    def _show_courses(self, courses: Sequence[Row]) -> list[Row]:
        ids, me = json.dumps([course["id"] for course in courses]), self.session["user"]
        students = {row["course_id"]: row["students"] for row in self.store.rows(STUDENTS, STUDENT, ids)}
        teachers: dict[int, list[Row]] = {}
        for row in self.store.rows(TEACHERS, TEACHER, ids):
            teachers.setdefault(row.pop("course_id"), []).append(row)
        mine: dict[int, list[Row]] = {}
        for row in self.store.rows(MINE, me, ids):
            short = row["role"].removesuffix("Enrollment").lower()
            mine.setdefault(row.pop("course_id"), []).append({"type": short, **row})
        return [
            shown(course, "syllabus_body")
            | {"teachers": teachers.get(course["id"], []), "total_students": students.get(course["id"], 0)}
            | {"enrollments": mine.get(course["id"], [])}
            for course in courses
        ]

    def _student(self, course_id: int, user_id: int) -> int:
        """The id of a user who is a student of a course."""
        if not 0 < user_id < 2**63 or not self.store.find("enrollments", course_id=course_id, user_id=user_id, type=STUDENT):
            raise ToolError(f"not found: course {course_id} has no student with id {echo(user_id)}")
        return user_id

    def _hand_in(self, assignment_id: int, user_id: int) -> Row:
        """The record of what a student hands in, made where there is none."""
        held = self.store.find("submissions", assignment_id=assignment_id, user_id=user_id)
        made = self._add("submissions", assignment_id=assignment_id, user_id=user_id, attempt=0, file_ids=[]) if not held else 0
        return held[0] if held else self.store.get("submissions", made)

    def _check_open(self, work: Row) -> None:
        """Refuse what is handed in or begun before a work opens or after it is locked."""
        now = self._now()
        if now < (work["unlock_at"] or ""):
            raise ToolError(f"permission denied: it opens at {work['unlock_at']}")
        if work["lock_at"] and now > work["lock_at"]:
            raise ToolError(f"permission denied: it was locked at {work['lock_at']}")

    def _content(self, submission_type: str, me: int, body: str | None, url: str | None, file_ids: list[int] | None) -> Row:
        """What is handed in, checked; only what belongs to its type is kept."""
        content: Row = {"body": None, "url": None, "file_ids": []}
        if submission_type == "online_text_entry":
            return content | {"body": line("body", body or "", 64_000)}
        if submission_type == "online_url":
            if not re.fullmatch(r"https?://[^\s/]+\S*", url or ""):
                raise ToolError(f"invalid argument: url must begin with http:// or https://, got {echo(url)}")
            return content | {"url": line("url", url, 2_000)}
        if not file_ids:
            raise ToolError("invalid argument: file_ids must name a file for online_upload")
        for each in file_ids:
            self._get("files", each, "file of yours", user_id=me)
        return content | {"file_ids": list(dict.fromkeys(file_ids))}

    def _show_submission(self, assignment: Row, user_id: int) -> Row:
        due, found = assignment["due_at"], self.store.find("submissions", assignment_id=assignment["id"], user_id=user_id)
        held: Row = found[0] if found else {"id": None, "assignment_id": assignment["id"], "user_id": user_id} | _NOTHING
        handed_in, current = held["attempt"] > 0, held["graded_attempt"] == held["attempt"]
        held["attachments"] = [self._show_file(self.store.get("files", each)) for each in held["file_ids"]]
        return shown(held, "file_ids", "graded_attempt") | {
            "workflow_state": "graded" if current else "submitted" if handed_in else "unsubmitted",
            "grade_matches_current_submission": current if held["grade"] is not None else None,
            "late": bool(handed_in and due and held["submitted_at"] > due),
            "missing": not handed_in and self._overdue(due),
            "submission_comments": self.store.rows(
                "SELECT c.id, c.author_id, u.name AS author_name, c.comment, c.created_at FROM submission_comments c "
                "JOIN users u ON u.id = c.author_id WHERE c.submission_id = ? ORDER BY c.id",
                held["id"],
            ),
        }

    def _overdue(self, due: str | None) -> bool:
        return due is not None and self._now() > due

    def _show_file(self, file: Row) -> Row:
        return {"content-type": file["content_type"], **shown(file, "content_type")}


def _offered(course: Row) -> bool:
    return bool(course["workflow_state"] != "unpublished")


def _ended(course: Row, now: str) -> bool:
    return course["workflow_state"] == "completed" or (course["end_at"] is not None and course["end_at"] < now)


def show_assignment(row: Row) -> Row:
    """An assignment as the service shows it."""
    state = {"grading_type": "points", "workflow_state": "published" if row["published"] else "unpublished"}
    return state | shown(row)


def _score(grade: Any, possible: float) -> float | None:
    """The points that a grade means, or None for no grade."""
    words = {"complete": possible, "pass": possible, "incomplete": 0.0, "fail": 0.0}
    if isinstance(grade, str) and grade.strip().lower() in words:
        return words[grade.strip().lower()]
    if grade is None or grade == "":
        return None
    number = _NUMBER.fullmatch(grade.strip()) if isinstance(grade, str) else None
    if number:
        value = float(number[1])
        return points("grade", value * possible / 100 if number[2] else value)
    if isinstance(grade, bool) or not isinstance(grade, (int, float)):
        raise ToolError(f'invalid argument: grade must be points, "85%", "complete" or "incomplete", got {echo(grade)}')
    points("grade", grade)
    return float(grade)
