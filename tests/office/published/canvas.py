"""The published Canvas server's calls, and the differences."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agentgym.office.canvas.server import Canvas
from agentgym.office.context import START, OfficeContext
from tests.office.published import DISABLED, Call, Difference

SOON = START + timedelta(days=3)
ANSWERS = [{"answer_text": "4", "answer_weight": 100}, {"answer_text": "5", "answer_weight": 0}]


def prepared() -> Canvas:
    canvas = Canvas(OfficeContext(START))
    canvas.people.add_user("Ada Root", "ada@example.edu", "root", admin=True)
    canvas.people.add_user("Tom Reed", "tom@example.edu", "reed")
    canvas.people.add_user("Sue Lane", "sue@example.edu", "lane")
    canvas.courses.add_course("Algebra", "MATH1", 2, students=[3])
    canvas.discussions.add_announcement(1, "Welcome", "We begin on Monday.")
    canvas.assignments.add_assignment(
        1, "Homework", description="Page 3.", points_possible=10, due_at=SOON
    )
    canvas.quizzes.add_quiz(
        1,
        "Quiz",
        description="Sums.",
        time_limit=30,
        due_at=SOON,
        show_correct_answers=True,
        shuffle_answers=True,
        credits=3,
    )
    canvas.assignments.add_submission(1, 3, body="Done.")
    canvas.quizzes.add_question(1, "2 + 2?", answers=ANSWERS)
    return canvas


def login(name: str, password: str) -> Call:
    return Call("canvas_login", {"login_id": f"{name}@example.edu", "password": password})


def inside(tool: str, text: str | None = None, **arguments: Any) -> Call:
    return Call(f"canvas_{tool}", {"course_id": 1, **arguments}, text)


CALLS = [
    Call("canvas_get_current_user", {}),
    login("tom", "reed"),
    Call("canvas_health_check", {}),
    Call("canvas_get_current_user", {}),
    Call("canvas_list_users", {}),
    Call("canvas_get_user_profile", {}),
    Call("canvas_list_courses", {}),
    inside("get_course"),
    inside("list_assignments"),
    inside("get_assignment", assignment_id=1),
    inside("list_announcements"),
    inside("list_quizzes"),
    inside("get_quiz", quiz_id=1),
    inside("get_quiz_questions", quiz_id=1),
    inside("get_syllabus"),
    login("sue", "lane"),
    Call("canvas_get_upcoming_assignments", {}),
    Call("canvas_list_calendar_events", {}),
    login("tom", "reed"),
    inside("get_submission", assignment_id=1, user_id=3),
    Call("canvas_logout", {}),
]

_PASSWORD = "No service shows a password."
_NOT_SEEN = "The published data has none; ours answers a record like those of Canvas's API."

DIFFERENCES = {
    "canvas_login": Difference("Wrong credentials are an error."),
    "canvas_list_courses": Difference("Without a login it is an error, not an empty list."),
    "canvas_list_users": Difference(
        "Users see whom they share a course with, and addresses only between teachers and students."
    ),
    "canvas_get_submission": Difference(
        "Before anything is handed in it is an unsubmitted record, as in Canvas's API, and only "
        "teachers see the work of others."
    ),
    "canvas_list_calendar_events": Difference(
        "Assignments that are due are events too, as in Canvas."
    ),
    "canvas_health_check": Difference(_PASSWORD, lacking={"user.password"}),
    "canvas_get_user_profile": Difference(_PASSWORD, lacking={"password"}),
    "canvas_get_upcoming_assignments": Difference(
        "Only the user's own courses count, by the clock of the task, and they name their teachers.",
        added={"[].course.teacher_name"},
    ),
    "canvas_list_announcements": Difference(
        "Authors are users, who have an id.", types={"[].author.id"}
    ),
    "canvas_list_quizzes": Difference(
        "Students see the questions without the key, and none before the quiz opens."
    ),
    "canvas_get_quiz": Difference(
        "Students see the questions without the key, and none before the quiz opens."
    ),
    "canvas_get_quiz_questions": Difference(
        "Students see the questions without the key, and none before the quiz opens."
    ),
    **{
        f"canvas_{tool}": DISABLED
        for tool in (
            *("list_files", "get_file", "list_folders", "list_pages", "get_page"),
            *("list_modules", "get_module", "list_module_items", "get_module_item"),
            *("mark_module_item_complete", "create_module", "create_module_item"),
            *("list_rubrics", "get_rubric", "create_rubric"),
            *("list_discussion_topics", "get_discussion_topic", "post_to_discussion"),
            *("list_conversations", "get_conversation", "create_conversation"),
            *("get_dashboard", "get_dashboard_cards", "list_notifications"),
            *("submit_assignment", "update_user_profile", "get_course_grades", "get_user_grades"),
            *("get_account", "list_account_courses", "list_account_users", "create_user"),
            *("list_sub_accounts", "get_account_reports", "create_account_report"),
            *(
                "create_course",
                "update_course",
                "create_assignment",
                "update_assignment",
                "submit_grade",
                "enroll_user",
            ),
            *("create_quiz", "update_quiz", "publish_quiz", "delete_quiz"),
            *(
                "add_quiz_question",
                "update_quiz_question",
                "delete_quiz_question",
                "start_quiz_attempt",
            ),
        )
    },
}
