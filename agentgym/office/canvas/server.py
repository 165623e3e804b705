"""Canvas server with the REST API and the access rights of Canvas."""

from __future__ import annotations

from pathlib import Path

from agentgym.office.canvas.assignments import Assignments
from agentgym.office.canvas.courses import Announcements, Courses
from agentgym.office.canvas.people import People
from agentgym.office.canvas.quizzes import Quizzes
from agentgym.office.canvas.records import SCHEMA
from agentgym.office.context import OfficeContext
from agentgym.office.disabled import with_disabled_tools
from agentgym.office.server import Server


@with_disabled_tools(Path(__file__).with_name("disabled_tools.json"))
class Canvas(Server):
    """Canvas server. Most tools require a login with `canvas_login`.

    Tasks log in with `people.login_as`, and add records through `people`, `courses`, `assignments`,
    `discussions` and `quizzes`. The `add_…` methods return ids, which count from 1 in each table.
    Times are ISO 8601 strings or datetimes.
    """

    name = "canvas"
    schema = SCHEMA
    tool_order = tuple(
        """
        canvas_health_check canvas_login canvas_logout canvas_get_current_user canvas_list_users
        canvas_get_user_profile canvas_update_user_profile canvas_list_courses canvas_get_course
        canvas_create_course canvas_update_course canvas_list_assignments canvas_get_assignment
        canvas_create_assignment canvas_update_assignment canvas_get_submission
        canvas_submit_assignment canvas_submit_grade canvas_list_files canvas_get_file
        canvas_list_folders canvas_list_pages canvas_get_page canvas_list_calendar_events
        canvas_get_upcoming_assignments canvas_get_dashboard canvas_get_dashboard_cards
        canvas_get_course_grades canvas_get_user_grades canvas_enroll_user canvas_list_modules
        canvas_get_module canvas_list_module_items canvas_get_module_item
        canvas_mark_module_item_complete canvas_create_module canvas_create_module_item
        canvas_list_discussion_topics canvas_get_discussion_topic canvas_post_to_discussion
        canvas_list_announcements canvas_list_quizzes canvas_get_quiz canvas_create_quiz
        canvas_start_quiz_attempt canvas_update_quiz canvas_publish_quiz canvas_delete_quiz
        canvas_add_quiz_question canvas_get_quiz_questions canvas_update_quiz_question
        canvas_delete_quiz_question canvas_list_rubrics canvas_get_rubric canvas_create_rubric
        canvas_list_conversations canvas_get_conversation canvas_create_conversation
        canvas_list_notifications canvas_get_account canvas_list_account_courses
        canvas_list_account_users canvas_create_user canvas_list_sub_accounts
        canvas_get_account_reports canvas_create_account_report canvas_get_syllabus
        """.split()
    )

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self.people = People(self)
        self.courses = Courses(self)
        self.assignments = Assignments(self)
        self.discussions = Announcements(self)
        self.quizzes = Quizzes(self)
        self.parts = (
            self.people,
            self.courses,
            self.assignments,
            self.discussions,
            self.quizzes,
        )
