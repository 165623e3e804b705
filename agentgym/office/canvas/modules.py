"""Canvas: modules of courses, their items, and how far a student is in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agentgym.office.canvas.fields import (
    MAX_URL,
    Text,
    When,
    integer,
    line,
    moment,
)
from agentgym.office.canvas.records import SITE, CanvasPart, fields_of
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, tool

_CONTENT_TABLES = {
    "Assignment": "assignments",
    "Quiz": "quizzes",
    "File": "files",
    "Page": "pages",
    "Discussion": "topics",
}
"""The table that the `content_id` of an item leads into; items of other types have a URL."""

_PATHS = _CONTENT_TABLES | {"Discussion": "discussion_topics"}
"""The part of the address of an item's content that names its kind."""

_MAX_INDENT = 5
"""The levels of indentation that Canvas's page of modules has."""


class Modules(CanvasPart):
    """Modules and their items."""

    def add_module(
        self,
        course_id: int,
        name: str,
        *,
        position: int | None = None,
        unlock_at: When = None,
        published: bool = True,
        require_sequential_progress: bool = False,
        prerequisite_module_ids: Sequence[int] = (),
    ) -> int:
        """Add a module, last unless a position is given; the id. Those from there on move down."""
        for module_id in prerequisite_module_ids:
            self._records.get("modules", module_id, course_id=course_id)
        with self._store.change():
            return self._records.add(
                "modules",
                course_id=course_id,
                name=line("name", name),
                published=published,
                created_at=self._records.now(),
                unlock_at=moment("unlock_at", unlock_at) or None,
                require_sequential_progress=require_sequential_progress,
                prerequisite_module_ids=list(dict.fromkeys(prerequisite_module_ids)),
                position=self._records.open_position("modules", position, course_id=course_id),
            )

    def add_module_item(
        self,
        module_id: int,
        title: str,
        type: str,
        *,
        content_id: int | None = None,
        page_url: Text = None,
        external_url: Text = None,
        html_url: Text = None,
        position: int | None = None,
        indent: int = 0,
        published: bool = True,
    ) -> int:
        """Add an item to a module, last unless a position is given; the id.

        Those from there on move down.
        """
        with self._store.change():
            return self._records.add(
                "module_items",
                module_id=module_id,
                title=line("title", title),
                type=type,
                content_id=content_id,
                page_url=page_url,
                external_url=external_url,
                html_url=line("html_url", html_url, MAX_URL),
                published=published,
                indent=integer("indent", indent, 0, _MAX_INDENT),
                position=self._records.open_position("module_items", position, module_id=module_id),
                created_at=self._records.now(),
            )

    @tool
    def canvas_list_modules(self, course_id: int) -> list[Row]:
        """List the modules of a course in order, with your progress.

        Args:
            course_id: Course.
        """
        rows = self._records.list_of_course("modules", course_id, "position")
        return [self._show_module(row) for row in rows]

    @tool
    def canvas_get_module(self, course_id: int, module_id: int) -> Row:
        """Get a module, with your progress.

        Args:
            course_id: Course.
            module_id: Module.
        """
        return self._show_module(self._records.of_course("modules", course_id, module_id))

    @tool
    def canvas_list_module_items(self, course_id: int, module_id: int) -> list[Row]:
        """List the items of a module in order.

        Args:
            course_id: Course.
            module_id: Module.
        """
        self._records.of_course("modules", course_id, module_id)
        completed = self._completed()
        return [
            self._show_item(course_id, item, completed)
            for item in self._items(course_id, module_id)
        ]

    @tool
    def canvas_get_module_item(self, course_id: int, module_id: int, item_id: int) -> Row:
        """Get an item of a module.

        Args:
            course_id: Course.
            module_id: Module.
            item_id: Item.
        """
        return self._show_item(
            course_id, self._item(course_id, module_id, item_id), self._completed()
        )

    @tool
    def canvas_mark_module_item_complete(self, course_id: int, module_id: int, item_id: int) -> Row:
        """Mark an item of a module as done; where progress is sequential, those before it come first.

        Args:
            course_id: Course.
            module_id: Module.
            item_id: Item.
        """
        item = self._item(course_id, module_id, item_id)
        self._records.course(course_id, "learn")
        module = self._store.get("modules", module_id)
        completed = self._completed()
        if self._state(module, completed) == "locked":
            raise ToolError(
                f"permission denied: module {module_id} is locked; see its unlock_at and "
                "prerequisite_module_ids"
            )
        if module["require_sequential_progress"]:
            items = self._items(course_id, module_id)
            earlier = {each["id"] for each in items if each["position"] < item["position"]}
            if not earlier <= completed:
                raise ToolError(
                    f"conflict: module {module_id} goes in order; complete the items before item "
                    f"{item_id} first"
                )
        if item_id not in completed:
            self._records.add(
                "item_completions", item_id=item_id, user_id=self._records.session["user"]
            )
            self._records.context.clock.tick()
        return self._show_item(course_id, item, completed | {item_id})

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
        """Create a module in a course that you teach.

        Args:
            course_id: Course.
            name: Name.
            position: Place from 1; last by default.
            unlock_at: Opens then, ISO 8601.
            require_sequential_progress: Items are done in order.
            prerequisite_module_ids: Modules to complete before.
            published: Visible to students.
        """
        self._records.course(course_id, "edit")
        module_id = self.add_module(
            course_id,
            name,
            require_sequential_progress=require_sequential_progress,
            published=published,
            position=position,
            unlock_at=unlock_at,
            prerequisite_module_ids=prerequisite_module_ids or [],
        )
        return self._show_module(self._records.stamp("modules", module_id))

    @tool
    def canvas_create_module_item(
        self,
        course_id: int,
        module_id: int,
        title: str,
        type: Literal[
            "Assignment", "Quiz", "File", "Page", "Discussion", "ExternalUrl", "ExternalTool"
        ],
        content_id: int | None = None,
        html_url: Text = None,
        url: Text = None,
        position: int | None = None,
        indent: int = 0,
        published: bool = True,
    ) -> Row:
        """Add an item to a module of a course that you teach.

        Args:
            course_id: Course.
            module_id: Module.
            title: Title.
            type: Kind of content.
            content_id: Content, unless it has a url.
            html_url: Address shown.
            url: Address, for ExternalUrl and ExternalTool; url of a page.
            position: Place from 1; last by default.
            indent: Levels of indentation, 0 to 5.
            published: Visible to students.
        """
        self._records.of_course("modules", course_id, module_id, "edit")
        item_id = self.add_module_item(
            module_id,
            title,
            type,
            html_url=html_url,
            position=position,
            indent=indent,
            published=published,
            **self._target(course_id, type, content_id, url),
        )
        return self._show_item(
            course_id, self._records.stamp("module_items", item_id), self._completed()
        )

    def _items(self, course_id: int, module_id: int) -> list[Row]:
        """Return the items of a module that the user may see, in order."""
        visible: Row = {} if self._records.may(course_id, "edit") else {"published": True}
        return self._store.find("module_items", "position", module_id=module_id, **visible)

    def _item(self, course_id: int, module_id: int, item_id: int) -> Row:
        """Return an item of a module.

        Raises:
            ToolError: The user may not see the module, or there is no such item to see.
        """
        self._records.of_course("modules", course_id, module_id)
        item = self._records.get("module_items", item_id, module_id=module_id)
        if not item["published"] and not self._records.may(course_id, "edit"):
            raise ToolError(f"not found: there is no module item with id {item_id}")
        return item

    def _completed(self) -> set[int]:
        """Return the ids of the items, of all modules, that the user has completed."""
        rows = self._store.find(
            "item_completions", "item_id", user_id=self._records.session["user"]
        )
        return {row["item_id"] for row in rows}

    def _state(self, module: Row, completed: set[int]) -> str:
        """Return how far the user is in a module: locked, unlocked, started or completed."""
        if (module["unlock_at"] or "") > self._records.now():
            return "locked"
        for module_id in module["prerequisite_module_ids"]:
            prerequisite = self._store.get("modules", module_id)
            if prerequisite["published"] and not self._published_items(module_id) <= completed:
                return "locked"
        items = self._published_items(module["id"])
        if items <= completed:
            return "completed"
        return "started" if items & completed else "unlocked"

    def _published_items(self, module_id: int) -> set[int]:
        rows = self._store.find("module_items", module_id=module_id, published=True)
        return {row["id"] for row in rows}

    def _show_module(self, module: Row) -> Row:
        course_id, module_id = module["course_id"], module["id"]
        return {
            **fields_of(module, "created_at"),
            "items_count": len(self._items(course_id, module_id)),
            "items_url": f"{SITE}/courses/{course_id}/modules/{module_id}/items",
            "state": self._state(module, self._completed()),
        }

    def _show_item(self, course_id: int, item: Row, completed: set[int]) -> Row:
        """Return an item of a module; it has a `page_url` or a `content_id`, if it leads to one."""
        place = item["content_id"] or item["page_url"]
        page = f"{SITE}/courses/{course_id}/{_PATHS.get(item['type'])}/{place}"
        hidden = ["created_at", "external_url"]
        hidden += [name for name in ("page_url", "content_id") if item[name] is None]
        return {
            **fields_of(item, *hidden),
            "html_url": item["html_url"] or item["external_url"] or page,
            "url": item["external_url"],
            "completed": item["id"] in completed,
        }

    def _target(self, course_id: int, type: str, content_id: int | None, url: str | None) -> Row:
        """Return the field that says where an item of a module leads to, checked."""
        if type not in _CONTENT_TABLES:
            if not url:
                raise ToolError(f"invalid argument: an item of type {type} needs a url")
            return {"external_url": line("url", url, MAX_URL)}
        if type == "Page" and url:
            return {"page_url": self._records.page(course_id, url)["url"]}
        if content_id is None:
            raise ToolError(f"invalid argument: an item of type {type} needs a content_id")
        content = self._records.of_course(
            _CONTENT_TABLES[type], course_id, content_id, "edit", type.lower()
        )
        return {"page_url": content["url"]} if type == "Page" else {"content_id": content_id}
