"""Canvas tools that are listed but disabled: files, pages, modules, rubrics, administration."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from agentgym.office.canvas.fields import Text
from agentgym.office.disabled import disabled_tool

_FILES = "files and pages are"
_MODULES = "modules are"
_RUBRICS = "rubrics are"
_ACCOUNTS = "account administration is"

_Description = Annotated[str, Field(description="Short text")]
_LongDescription = Annotated[str, Field(description="Long text")]


class Rating(TypedDict, total=False):  # noqa: D101 (its docstring would be a part of the prompt)
    description: _Description
    long_description: _LongDescription
    points: Annotated[float, Field(description="Points that it gives")]


class Criterion(TypedDict, total=False):  # noqa: D101
    description: _Description
    long_description: _LongDescription
    points: Annotated[float, Field(description="Maximum points")]
    criterion_use_range: Annotated[bool, Field(description="Ratings are ranges of points")]
    ratings: Annotated[list[Rating], Field(description="Ratings, best first")]


class NewUser(TypedDict, total=False):  # noqa: D101
    name: Required[Annotated[str, Field(description="Full name")]]
    short_name: Annotated[str, Field(description="Name in discussions")]
    sortable_name: Annotated[str, Field(description="Name in lists")]
    time_zone: Annotated[str, Field(description="Time zone")]


class NewLogin(TypedDict, total=False):  # noqa: D101
    unique_id: Required[Annotated[str, Field(description="Login id")]]
    password: Annotated[str, Field(description="Password; a random one by default")]
    sis_user_id: Annotated[str, Field(description="Id in the student information system")]
    send_confirmation: Annotated[bool, Field(description="Ignored: no mails are sent")]


class DisabledCanvasTools:
    """Signatures of the disabled tools, which give the published schemas."""

    @disabled_tool(_FILES)
    def canvas_list_files(self, course_id: int, folder_id: int | None = None) -> None:
        """List the files of a course.

        Args:
            course_id: Course.
            folder_id: Only of this folder.
        """

    @disabled_tool(_FILES)
    def canvas_get_file(self, file_id: int) -> None:
        """Get the record of a file.

        Args:
            file_id: File.
        """

    @disabled_tool(_FILES)
    def canvas_list_folders(self, course_id: int) -> None:
        """List the folders of a course.

        Args:
            course_id: Course.
        """

    @disabled_tool(_FILES)
    def canvas_list_pages(self, course_id: int) -> None:
        """List the pages of a course, without their texts.

        Args:
            course_id: Course.
        """

    @disabled_tool(_FILES)
    def canvas_get_page(self, course_id: int, page_url: str) -> None:
        """Get a page with its text.

        Args:
            course_id: Course.
            page_url: Url in the list of pages, such as reading-list.
        """

    @disabled_tool(_MODULES)
    def canvas_list_modules(self, course_id: int) -> None:
        """List the modules of a course in order, with your progress.

        Args:
            course_id: Course.
        """

    @disabled_tool(_MODULES)
    def canvas_get_module(self, course_id: int, module_id: int) -> None:
        """Get a module, with your progress.

        Args:
            course_id: Course.
            module_id: Module.
        """

    @disabled_tool(_MODULES)
    def canvas_list_module_items(self, course_id: int, module_id: int) -> None:
        """List the items of a module in order.

        Args:
            course_id: Course.
            module_id: Module.
        """

    @disabled_tool(_MODULES)
    def canvas_get_module_item(self, course_id: int, module_id: int, item_id: int) -> None:
        """Get an item of a module.

        Args:
            course_id: Course.
            module_id: Module.
            item_id: Item.
        """

    @disabled_tool(_MODULES)
    def canvas_mark_module_item_complete(
        self, course_id: int, module_id: int, item_id: int
    ) -> None:
        """Mark an item of a module as done; where progress is sequential, those before it come first.

        Args:
            course_id: Course.
            module_id: Module.
            item_id: Item.
        """

    @disabled_tool(_MODULES)
    def canvas_create_module(
        self,
        course_id: int,
        name: str,
        position: int | None = None,
        unlock_at: Text = None,
        require_sequential_progress: bool = False,
        prerequisite_module_ids: list[int] | None = None,
        published: bool = False,
    ) -> None:
        """Create a module in a course that you teach.

        Args:
            course_id: Course.
            name: Name.
            position: Place from 1; last by default.
            unlock_at: Opens then, ISO 8601.
            require_sequential_progress: Items must be completed in order.
            prerequisite_module_ids: Modules to complete first.
            published: Visible to students.
        """

    @disabled_tool(_MODULES)
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
    ) -> None:
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

    @disabled_tool(_RUBRICS)
    def canvas_list_rubrics(self, course_id: int) -> None:
        """List the rubrics of a course that you teach.

        Args:
            course_id: Course.
        """

    @disabled_tool(_RUBRICS)
    def canvas_get_rubric(self, course_id: int, rubric_id: int) -> None:
        """Get a rubric of a course that you teach.

        Args:
            course_id: Course.
            rubric_id: Rubric.
        """

    @disabled_tool(_RUBRICS)
    def canvas_create_rubric(
        self,
        course_id: int,
        title: str,
        description: Text = None,
        free_form_criterion_comments: bool = False,
        hide_score_total: bool = False,
        criteria: list[Criterion] | None = None,
    ) -> None:
        """Create a rubric in a course that you teach.

        Args:
            course_id: Course.
            title: Title.
            description: Description.
            free_form_criterion_comments: Free-form comments instead of ratings.
            hide_score_total: Hide the total from students.
            criteria: Criteria.
        """

    @disabled_tool(_ACCOUNTS)
    def canvas_get_account(self, account_id: int) -> None:
        """Get an account; account tools are for administrators.

        Args:
            account_id: Account.
        """

    @disabled_tool(_ACCOUNTS)
    def canvas_list_account_courses(
        self,
        account_id: int,
        with_enrollments: bool | None = None,
        published: bool | None = None,
        completed: bool | None = None,
        sort: Literal["course_name", "sis_course_id", "teacher", "account_name"] = "course_name",
        order: Literal["asc", "desc"] = "asc",
        search_term: Text = None,
    ) -> None:
        """List the courses of an account and of those below it.

        Args:
            account_id: Account.
            with_enrollments: With or without enrollments.
            published: Published or not.
            completed: Ended or not.
            sort: Sort key.
            order: Direction.
            search_term: At least two characters of name or code.
        """

    @disabled_tool(_ACCOUNTS)
    def canvas_list_account_users(
        self,
        account_id: int,
        sort: Literal["username", "email", "sis_id", "last_login"] = "username",
        order: Literal["asc", "desc"] = "asc",
        search_term: Text = None,
    ) -> None:
        """List the users of an account and of those below it.

        Args:
            account_id: Account.
            sort: Sort key.
            order: Direction.
            search_term: At least two characters of name, login id or email address.
        """

    @disabled_tool(_ACCOUNTS)
    def canvas_create_user(self, account_id: int, user: NewUser, pseudonym: NewLogin) -> None:
        """Create a user who can log in.

        Args:
            account_id: Account.
            user: The user.
            pseudonym: The login.
        """

    @disabled_tool(_ACCOUNTS)
    def canvas_list_sub_accounts(self, account_id: int) -> None:
        """List the direct sub-accounts of an account.

        Args:
            account_id: Account.
        """

    @disabled_tool(_ACCOUNTS)
    def canvas_get_account_reports(self, account_id: int) -> None:
        """List the available reports on an account.

        Args:
            account_id: Account.
        """

    @disabled_tool(_ACCOUNTS)
    def canvas_create_account_report(
        self, account_id: int, report: str, parameters: dict[str, Any] | None = None
    ) -> None:
        """Create a report on an account: a CSV file in the workspace, under canvas_reports.

        Args:
            account_id: Account.
            report: Name of the report.
            parameters: Which of its tables to make, such as {"users": true}; the first by default.
        """
