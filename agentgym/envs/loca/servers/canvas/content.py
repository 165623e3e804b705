"""Canvas: files, pages, calendar, dashboard, grades, modules, discussions, announcements."""

from __future__ import annotations

from typing import Any, Literal

from agentgym.envs.loca.servers.canvas.courses import CanvasCourses, show_assignment
from agentgym.envs.loca.servers.canvas.records import ROLES, STATES, STUDENT, Text, choice, line, moment, shown, whole
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, tool

MINE = """
SELECT course_id FROM enrollments WHERE user_id = ?1 AND enrollment_state = 'active'
AND course_id IN (SELECT id FROM courses WHERE workflow_state != 'unpublished')
"""
"""The courses of a user that are published."""

EVENTS = f"""
SELECT id, title, description, location_name, start_at, end_at, 'event' AS type,
  coalesce('course_' || course_id, 'user_' || user_id) AS context_code FROM events
WHERE (user_id = ?1 OR course_id IN ({MINE})) AND end_at >= ?2 AND start_at <= ?3
UNION ALL SELECT 'assignment_' || id, name, description, NULL, due_at, due_at, 'assignment', 'course_' || course_id FROM assignments
WHERE published AND course_id IN ({MINE}) AND due_at BETWEEN ?2 AND ?3 ORDER BY start_at, context_code, title, id
"""

UPCOMING = f"""
SELECT * FROM assignments WHERE published AND due_at >= ?2 AND course_id IN ({MINE} AND type = 'StudentEnrollment')
ORDER BY due_at, id LIMIT ?3
"""

GRADES = """
SELECT e.id, e.course_id, e.user_id, u.name, c.name AS course_name, e.type, e.enrollment_state, sum(s.score) AS got,
  sum(CASE WHEN s.score IS NOT NULL THEN a.points_possible END) AS graded, sum(a.points_possible) AS possible
FROM enrollments e JOIN users u ON u.id = e.user_id JOIN courses c ON c.id = e.course_id
LEFT JOIN assignments a ON a.course_id = e.course_id AND a.published
LEFT JOIN submissions s ON s.assignment_id = a.id AND s.user_id = e.user_id
WHERE e.type = 'StudentEnrollment' AND e.enrollment_state IN ('active', 'completed') AND {} GROUP BY e.id ORDER BY e.id
"""

_LAST = "9999-12-31T23:59:59Z"
_ITEM_TABLES = {"Assignment": "assignments", "Quiz": "quizzes", "File": "files", "Page": "pages", "Discussion": "topics"}


class CanvasContent(CanvasCourses):
    """Files, pages, calendar, dashboard, grades, modules, discussions, announcements."""

    @tool
    def canvas_list_files(self, course_id: int, folder_id: int | None = None) -> list[Row]:
        """The files of a course, or of one of its folders."""
        if folder_id is None:
            return [self._show_file(row) for row in self._parts("files", course_id)]
        self._part("folders", course_id, folder_id)
        return [self._show_file(row) for row in self.store.find("files", course_id=course_id, folder_id=folder_id)]

    @tool
    def canvas_get_file(self, file_id: int) -> Row:
        """What is known of a file."""
        me = self._me()
        file = self._get("files", file_id)
        if file["user_id"] != me["id"] and not me["admin"]:
            if file["course_id"] is None:
                raise ToolError(f"permission denied: file {file_id} belongs to another user")
            self._course(file["course_id"])
        return self._show_file(file)

    @tool
    def canvas_list_folders(self, course_id: int) -> list[Row]:
        """The folders of a course."""
        return self._parts("folders", course_id)

    @tool
    def canvas_list_pages(self, course_id: int) -> list[Row]:
        """The pages of a course, without their texts."""
        return [_show_page(row, "body") for row in self._parts("pages", course_id, "title, id")]

    @tool
    def canvas_get_page(self, course_id: int, page_url: str) -> Row:
        """A page with its text. Its url is that in the list of pages, such as "reading-list"."""
        found = self._parts("pages", course_id, url=page_url)
        if not found:
            raise ToolError(f"not found: course {course_id} has no page with that url; canvas_list_pages lists them")
        return _show_page(found[0])

    @tool
    def canvas_list_calendar_events(self, start_date: Text = None, end_date: Text = None) -> list[Row]:
        """Your events and those of your courses, and when assignments are due, by time: from today on by default, with no end.

        An end_date without a time means all of that day.
        """
        me = self._me()["id"]
        start = moment("start_date", start_date) or self._now()[:10]
        whole_day = end_date is not None and len(end_date.strip()) == len("2025-01-15")
        end = moment("end_date", end_date) or _LAST
        return self.store.rows(EVENTS, me, start, f"{end[:10]}T23:59:59Z" if whole_day else end)

    @tool
    def canvas_get_upcoming_assignments(self, limit: int = 10) -> list[Row]:
        """The assignments of the courses you learn in that are due next, 1 to 100 of them."""
        me = self._me()["id"]
        whole("limit", limit, 1, 100)
        return [show_assignment(row) for row in self.store.rows(UPCOMING, me, self._now(), limit)]

    @tool
    def canvas_get_dashboard(self) -> Row:
        """Your courses, what is due next, and how many conversations you have not read."""
        unread = "SELECT count(*) FROM participants WHERE user_id = ? AND workflow_state = 'unread'"
        return {
            "dashboard_cards": self.canvas_get_dashboard_cards(),
            "upcoming_assignments": self.canvas_get_upcoming_assignments(5),
            "unread_count": self.store.value(unread, self._me()["id"]),
        }

    @tool
    def canvas_get_dashboard_cards(self) -> list[Row]:
        """A card for each of your courses that is not over."""
        return [
            {
                "id": course["id"],
                "longName": f"{course['name']} - {course['course_code']}",
                "shortName": course["name"],
                "originalName": course["name"],
                "courseCode": course["course_code"],
                "assetString": f"course_{course['id']}",
                "href": f"/courses/{course['id']}",
                "enrollmentType": course["enrollments"][0]["role"],
                "published": course["workflow_state"] != "unpublished",
            }
            for course in self.canvas_list_courses()
        ]

    @tool
    def canvas_get_course_grades(self, course_id: int) -> list[Row]:
        """The grades in a course: of all students if you teach it, otherwise your own."""
        self._course(course_id)
        if self._may(course_id, "grade"):
            return self._grades("e.course_id = ?", course_id)
        return self._grades("e.course_id = ? AND e.user_id = ?", course_id, self.session["user"])

    @tool
    def canvas_get_user_grades(self) -> list[Row]:
        """Your grades in the courses that you learn in."""
        return self._grades("c.workflow_state != 'unpublished' AND e.user_id = ?", self._me()["id"])

    @tool
    def canvas_enroll_user(self, course_id: int, user_id: int, role: str = STUDENT, enrollment_state: str = "active") -> Row:
        """Enroll a user in a course that you teach; one who has that role already gets the state.

        Roles are StudentEnrollment, TeacherEnrollment, TaEnrollment, DesignerEnrollment and ObserverEnrollment;
        states are active, invited, inactive and completed.
        """
        self._course(course_id, "teach")
        self._get("users", user_id)
        choice("role", role, ROLES), choice("enrollment_state", enrollment_state, STATES)
        self.context.clock.tick()
        row = self.store.get("enrollments", self.enroll(course_id, user_id, role, enrollment_state))
        return row | {"role": row["type"]}

    @tool
    def canvas_list_modules(self, course_id: int) -> list[Row]:
        """The modules of a course in order, and how far you are in each if you learn there."""
        return [self._show_module(row) for row in self._parts("modules", course_id, "position")]

    @tool
    def canvas_get_module(self, course_id: int, module_id: int) -> Row:
        """A module, and how far you are in it if you learn there."""
        return self._show_module(self._part("modules", course_id, module_id))

    @tool
    def canvas_list_module_items(self, course_id: int, module_id: int) -> list[Row]:
        """The items of a module in order."""
        self._part("modules", course_id, module_id)
        done = self._done()
        return [row | {"completed": row["id"] in done} for row in self._items(course_id, module_id)]

    @tool
    def canvas_get_module_item(self, course_id: int, module_id: int, item_id: int) -> Row:
        """An item of a module."""
        return self._show_item(self._item(course_id, module_id, item_id))

    @tool
    def canvas_mark_module_item_complete(self, course_id: int, module_id: int, item_id: int) -> Row:
        """Say that you are done with an item of a module; where progress is sequential, with those before it first."""
        item = self._item(course_id, module_id, item_id)
        self._course(course_id, "learn")
        module = self.store.get("modules", module_id)
        if self._state(module) == "locked":
            raise ToolError(f"permission denied: module {module_id} is locked; see its unlock_at and prerequisite_module_ids")
        before = [each for each in self._items(course_id, module_id) if each["position"] < item["position"]]
        if module["require_sequential_progress"] and not self._done() >= {each["id"] for each in before}:
            raise ToolError(f"conflict: module {module_id} goes in order; complete the items before item {item_id} first")
        if item_id not in self._done():
            self._add("item_completions", item_id=item_id, user_id=self.session["user"])
            self.context.clock.tick()
        return self._show_item(item)

    @tool
    def canvas_create_module(
        self,
        course_id: int,
        name: str,
        position: int | None = None,
        unlock_at: Text = None,
        require_sequential_progress: bool = False,
        prerequisite_module_ids: list[int] | None = None,
        published: bool = False,
    ) -> Row:
        """Create a module in a course that you teach. Positions count from 1; it is the last by default."""
        self._course(course_id, "edit")
        fields: Row = {"require_sequential_progress": require_sequential_progress, "published": published}
        fields |= {"position": position, "unlock_at": unlock_at, "prerequisite_module_ids": prerequisite_module_ids or []}
        return self._show_module(self._fresh("modules", self.add_module(course_id, name, **fields)))

    @tool
    def canvas_create_module_item(
        self,
        course_id: int,
        module_id: int,
        title: str,
        type: Literal["Assignment", "Quiz", "File", "Page", "Discussion", "ExternalUrl", "ExternalTool"],
        content_id: int | None = None,
        html_url: Text = None,
        url: Text = None,
        position: int | None = None,
        indent: int = 0,
        published: bool = False,
    ) -> Row:
        """Put an item into a module of a course that you teach. Positions count from 1; it is the last by default.

        What the item is, is said by content_id; by url for ExternalUrl and ExternalTool; by either for Page.
        """
        self._part("modules", course_id, module_id, "edit")
        fields: Row = {"html_url": html_url, "position": position, "indent": indent, "published": published}
        target = self._target(course_id, type, content_id, url)
        return self._show_item(self._fresh("module_items", self.add_module_item(module_id, title, type, **target, **fields)))

    @tool
    def canvas_list_discussion_topics(self, course_id: int) -> list[Row]:
        """The topics of discussion of a course, newest first."""
        return self._topics(course_id, is_announcement=False)

    @tool
    def canvas_get_discussion_topic(self, course_id: int, topic_id: int) -> Row:
        """A topic of discussion, or an announcement, with what was said on it."""
        sql = (
            "SELECT e.id, e.user_id, u.name AS user_name, e.message, e.created_at FROM entries e JOIN users u ON u.id = e.user_id "
            "WHERE e.topic_id = ? ORDER BY e.id"
        )
        return self._topic(course_id, topic_id) | {"entries": self.store.rows(sql, topic_id)}

    @tool
    def canvas_post_to_discussion(self, course_id: int, topic_id: int, message: str) -> Row:
        """Say something on a topic of discussion."""
        topic = self._topic(course_id, topic_id)
        me = self._me()
        if topic["locked"] and not self._may(course_id, "edit"):
            raise ToolError(f"permission denied: topic {topic_id} is locked")
        if not me["admin"] and not self._types(course_id, "active"):
            raise ToolError(f"permission denied: only members of course {course_id} may post")
        said = line("message", message, 64_000)
        made = self._add("entries", topic_id=topic_id, user_id=me["id"], message=said, created_at=self._tick())
        return self.store.get("entries", made) | {"user_name": me["name"]}

    @tool
    def canvas_list_announcements(self, course_id: int) -> list[Row]:
        """The announcements of a course, newest first."""
        return self._topics(course_id, is_announcement=True)

    def _grades(self, where: str, *values: Any) -> list[Row]:
        found = []
        for row in self.store.rows(GRADES.format(where), *values):
            got, graded, possible = (row.pop(key) for key in ("got", "graded", "possible"))
            scores = {"current_score": _percent(got, graded), "final_score": _percent(got or 0.0, possible)}
            found.append(row | {"grades": scores})
        return found

    def _items(self, course_id: int, module_id: int) -> list[Row]:
        rows = self.store.find("module_items", "position", module_id=module_id)
        return rows if self._may(course_id, "edit") else [row for row in rows if row["published"]]

    def _item(self, course_id: int, module_id: int, item_id: int) -> Row:
        self._part("modules", course_id, module_id)
        item = self._get("module_items", item_id, module_id=module_id)
        if not item["published"] and not self._may(course_id, "edit"):
            raise ToolError(f"not found: there is no module item with id {item_id}")
        return item

    def _done(self) -> set[int]:
        """The items of modules that the user has completed."""
        return {row["item_id"] for row in self.store.find("item_completions", "item_id", user_id=self.session["user"])}

    def _state(self, module: Row) -> str:
        """How far the user is in a module: locked, unlocked, started or completed."""
        done = self._done()
        above = [
            self._published(each) for each in module["prerequisite_module_ids"] if self.store.get("modules", each)["published"]
        ]
        if (module["unlock_at"] or "") > self._now() or any(items - done for items in above):
            return "locked"
        items = self._published(module["id"])
        return "completed" if items <= done else "started" if items & done else "unlocked"

    def _published(self, module_id: int) -> set[int]:
        return {row["id"] for row in self.store.find("module_items", module_id=module_id, published=True)}

    def _show_module(self, module: Row) -> Row:
        count = len(self._items(module["course_id"], module["id"]))
        state = {"state": self._state(module)} if STUDENT in self._types(module["course_id"], "active") else {}
        return shown(module, "course_id") | {"items_count": count} | state

    def _show_item(self, item: Row) -> Row:
        return item | {"completed": item["id"] in self._done()}

    def _target(self, course_id: int, type: str, content_id: int | None, url: str | None) -> Row:
        """What an item of a module leads to, checked."""
        if type not in _ITEM_TABLES:
            if not url:
                raise ToolError(f"invalid argument: an item of type {type} needs a url")
            return {"external_url": line("url", url, 2_000)}
        if type == "Page" and url:
            page = self.canvas_get_page(course_id, url)
        elif content_id is None:
            raise ToolError(f"invalid argument: an item of type {type} needs a content_id")
        else:
            page = self._part(_ITEM_TABLES[type], course_id, content_id, "edit", type.lower())
        return {"page_url": page["url"]} if type == "Page" else {"content_id": content_id}

    def _topics(self, course_id: int, is_announcement: bool) -> list[Row]:
        rows = self._parts("topics", course_id, "posted_at DESC, id DESC", is_announcement=is_announcement)
        names = {each: self._name(each) for each in {row["user_id"] for row in rows}}
        now = self._now()
        early = any(row["posted_at"] > now for row in rows) and not self._may(course_id, "edit")
        return [shown(row) | {"user_name": names[row["user_id"]]} for row in rows if not early or row["posted_at"] <= now]

    def _topic(self, course_id: int, topic_id: int) -> Row:
        row = self._part("topics", course_id, topic_id)
        if row["posted_at"] > self._now() and not self._may(course_id, "edit"):
            raise ToolError(f"not found: there is no topic with id {topic_id}")
        return shown(row) | {"user_name": self._name(row["user_id"])}

    def _name(self, user_id: int | None) -> str | None:
        name: str | None = self.store.value("SELECT name FROM users WHERE id = ?", user_id)
        return name


def _percent(got: float | None, of: float | None) -> float | None:
    return round(100 * got / of, 2) if got is not None and of else None


def _show_page(page: Row, *hidden: str) -> Row:
    return {"page_id": page["id"], **shown(page, "id", "course_id", *hidden)}
