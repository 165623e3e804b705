"""Canvas: the files, folders and pages of courses."""

from __future__ import annotations

import re

from agentgym.office.canvas.fields import line, prose
from agentgym.office.canvas.records import CanvasPart, fields_of, show_file
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, tool


class Library(CanvasPart):
    """Files, folders and pages."""

    def add_page(
        self,
        course_id: int,
        title: str,
        body: str,
        *,
        published: bool = True,
        front_page: bool = False,
    ) -> int:
        """Add a page; the id. Its url is the title in small letters with hyphens."""
        return self._records.add(
            "pages",
            course_id=course_id,
            url=re.sub(r"[^\w]+", "-", title.lower()).strip("-") or "page",
            title=line("title", title),
            body=prose("body", body),
            published=published,
            front_page=front_page,
            created_at=self._records.now(),
        )

    def add_folder(self, course_id: int, name: str, parent: int | None = None) -> int:
        """Add a folder of a course, below another one or at the top; the id."""
        path = "course files"
        if parent is not None:
            path = self._records.get("folders", parent, course_id=course_id)["full_name"]
        return self._records.add(
            "folders",
            course_id=course_id,
            name=line("name", name),
            full_name=f"{path}/{name}",
            parent_folder_id=parent,
            created_at=self._records.now(),
        )

    def add_file(
        self,
        name: str,
        size: int,
        *,
        course_id: int | None = None,
        folder: int | None = None,
        owner: int | None = None,
        content_type: str = "application/octet-stream",
    ) -> int:
        """Add a file of a course, or of a user who can then hand it in; the id.

        Its bytes are not stored.
        """
        return self._records.add(
            "files",
            course_id=course_id,
            folder_id=folder,
            user_id=owner,
            display_name=line("name", name),
            content_type=content_type,
            size=size,
            created_at=self._records.now(),
        )

    @tool
    def canvas_list_files(self, course_id: int, folder_id: int | None = None) -> list[Row]:
        """List the files of a course.

        Args:
            course_id: Course.
            folder_id: Only of this folder.
        """
        place: Row = {}
        if folder_id is not None:
            place = {"folder_id": self._records.of_course("folders", course_id, folder_id)["id"]}
        return [show_file(row) for row in self._records.list_of_course("files", course_id, **place)]

    @tool
    def canvas_get_file(self, file_id: int) -> Row:
        """Get the record of a file.

        Args:
            file_id: File.
        """
        me = self._records.me()
        file = self._records.get("files", file_id)
        if file["user_id"] != me["id"] and not me["admin"]:
            if file["course_id"] is None:
                raise ToolError(f"permission denied: file {file_id} belongs to another user")
            self._records.course(file["course_id"])
        return show_file(file)

    @tool
    def canvas_list_folders(self, course_id: int) -> list[Row]:
        """List the folders of a course.

        Args:
            course_id: Course.
        """
        return self._records.list_of_course("folders", course_id)

    @tool
    def canvas_list_pages(self, course_id: int) -> list[Row]:
        """List the pages of a course, without their texts.

        Args:
            course_id: Course.
        """
        pages = self._records.list_of_course("pages", course_id, "title, id")
        return [_show_page(page, "body") for page in pages]

    @tool
    def canvas_get_page(self, course_id: int, page_url: str) -> Row:
        """Get a page with its text.

        Args:
            course_id: Course.
            page_url: Url in the list of pages, such as reading-list.
        """
        return _show_page(self._records.page(course_id, page_url))


def _show_page(page: Row, *hidden: str) -> Row:
    return {"page_id": page["id"], **fields_of(page, "id", "course_id", *hidden)}
