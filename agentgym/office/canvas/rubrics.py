"""Canvas: rubrics, the criteria that work is graded by."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from agentgym.office.canvas.fields import Text, line, points, prose
from agentgym.office.canvas.records import CanvasPart, fields_of, whole
from agentgym.office.store import Row
from agentgym.text.tools import tool

_NO_DESCRIPTION = "No Description"
"""What Canvas calls a criterion or a rating without a description."""

_Description = Annotated[str, Field(description="Short text")]
_LongDescription = Annotated[str, Field(description="Long text")]


class Rating(TypedDict, total=False):  # noqa: D101 (its docstring would be a part of the prompt)
    description: _Description
    long_description: _LongDescription
    points: Annotated[float, Field(description="Points that it gives")]


class Criterion(TypedDict, total=False):  # noqa: D101
    description: _Description
    long_description: _LongDescription
    points: Annotated[float, Field(description="Most points")]
    criterion_use_range: Annotated[bool, Field(description="Ratings are ranges of points")]
    ratings: Annotated[list[Rating], Field(description="Ratings, best first")]


class Rubrics(CanvasPart):
    """Rubrics."""

    @tool
    def canvas_list_rubrics(self, course_id: int) -> list[Row]:
        """List the rubrics of a course that you teach.

        Args:
            course_id: Course.
        """
        self._records.course(course_id, "edit")
        return [_show_rubric(row) for row in self._records.list_of_course("rubrics", course_id)]

    @tool
    def canvas_get_rubric(self, course_id: int, rubric_id: int) -> Row:
        """Get a rubric of a course that you teach.

        Args:
            course_id: Course.
            rubric_id: Rubric.
        """
        return _show_rubric(self._records.of_course("rubrics", course_id, rubric_id, "edit"))

    @tool
    def canvas_create_rubric(
        self,
        course_id: int,
        title: str,
        description: Text = None,
        free_form_criterion_comments: bool = False,
        hide_score_total: bool = False,
        criteria: list[Criterion] | None = None,
    ) -> Row:
        """Create a rubric in a course that you teach.

        Args:
            course_id: Course.
            title: Title.
            description: Description.
            free_form_criterion_comments: Comments in place of ratings.
            hide_score_total: Hide the total from students.
            criteria: Criteria.
        """
        self._records.course(course_id, "edit")
        data = [_parse_criterion(each) for each in criteria or []]
        rubric_id = self._records.add(
            "rubrics",
            course_id=course_id,
            title=line("title", title),
            description=prose("description", description),
            free_form_criterion_comments=free_form_criterion_comments,
            hide_score_total=hide_score_total,
            data=data,
            points_possible=points(
                "the sum of points", float(sum(criterion["points"] for criterion in data))
            ),
            created_at=self._records.now(),
        )
        return _show_rubric(self._records.stamp("rubrics", rubric_id))


def _parse_criterion(criterion: Criterion) -> Row:
    """Return a criterion with all its fields.

    Raises:
        ToolError: A text or a number of points cannot be.
    """
    return {
        **_text_and_points(criterion),
        "criterion_use_range": criterion.get("criterion_use_range", False),
        "ratings": [_text_and_points(rating) for rating in criterion.get("ratings", [])],
    }


def _text_and_points(item: Criterion | Rating) -> Row:
    return {
        "description": line("description", item.get("description", _NO_DESCRIPTION)),
        "long_description": prose("long_description", item.get("long_description", "")),
        "points": whole(points("points", item.get("points", 0))),
    }


def _show_rubric(rubric: Row) -> Row:
    """Return a rubric; the ids of its criteria and ratings are those of the published server."""
    key = rubric["id"]
    criteria = [
        {
            "id": f"criterion_{key}_{n}",
            **criterion,
            "ratings": [
                {"id": f"rating_{key}_{n}_{m}", **rating}
                for m, rating in enumerate(criterion["ratings"], start=1)
            ],
        }
        for n, criterion in enumerate(rubric["data"], start=1)
    ]
    return {
        **fields_of(rubric, "course_id", "data", "created_at"),
        "description": rubric["description"] or "",
        "points_possible": whole(rubric["points_possible"]),
        "context_id": rubric["course_id"],
        "context_type": "Course",
        "criteria": criteria,
    }
