"""Canvas: rubrics, the criteria that work is graded by."""

from __future__ import annotations

from typing import Any

from agentgym.envs.loca.servers.canvas.fields import Text, line, points, prose, public_fields
from agentgym.envs.loca.servers.canvas.records import Records
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool


class Rubrics:
    """Rubrics.

    Args:
        records: The records that all parts share.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    @tool
    def canvas_list_rubrics(self, course_id: int) -> list[Row]:
        """The rubrics of a course that you teach."""
        self._records.course(course_id, "edit")
        return [_show_rubric(row) for row in self._records.list_of_course("rubrics", course_id)]

    @tool
    def canvas_get_rubric(self, course_id: int, rubric_id: int) -> Row:
        """A rubric of a course that you teach."""
        return _show_rubric(self._records.of_course("rubrics", course_id, rubric_id, "edit"))

    @tool
    def canvas_create_rubric(
        self,
        course_id: int,
        title: str,
        description: Text = None,
        free_form_criterion_comments: bool = False,
        hide_score_total: bool = False,
        criteria: list[dict[str, Any]] | None = None,
    ) -> Row:
        """Create a rubric in a course that you teach.

        A criterion is an object with description, points, long_description and ratings; a rating has description and points.
        """
        self._records.course(course_id, "edit")
        data = [
            _parse_criterion(number, each) for number, each in enumerate(criteria or [], start=1)
        ]
        total = float(sum(criterion["points"] for criterion in data))
        rubric_id = self._records.add(
            "rubrics",
            course_id=course_id,
            title=line("title", title),
            description=prose("description", description),
            free_form_criterion_comments=free_form_criterion_comments,
            hide_score_total=hide_score_total,
            data=data,
            points_possible=points("the sum of points", total),
            created_at=self._records.now(),
        )
        return _show_rubric(self._records.stamp("rubrics", rubric_id))


def _parse_criterion(number: int, criterion: dict[str, Any]) -> Row:
    """Return a criterion with ids for itself and its ratings.

    Raises:
        ToolError: It, or a rating, is no such object.
    """
    parsed: Row = {"id": f"_{number}"}
    parsed |= _description_and_points("a criterion", criterion, "long_description", "ratings")
    long, ratings = criterion.get("long_description"), criterion.get("ratings", [])
    if not isinstance(long, str | None) or not isinstance(ratings, list):
        raise ToolError(
            "invalid argument: long_description is a text and ratings are a list, got "
            f"{echo(criterion)}"
        )
    return parsed | {
        "long_description": long,
        "ratings": [
            {"id": f"{number}_{k}"} | _description_and_points("a rating", rating)
            for k, rating in enumerate(ratings, start=1)
        ],
    }


def _description_and_points(what: str, item: object, *other_fields: str) -> Row:
    """Return the description and the points of a criterion or a rating.

    Raises:
        ToolError: It has none, or other fields than these and the named ones.
    """
    fields = ("description", "points", *other_fields)
    if not isinstance(item, dict) or not set(item) <= set(fields):
        raise ToolError(f"invalid argument: {what} has {', '.join(fields)}, got {echo(item)}")
    description, worth = item.get("description"), item.get("points", 0)
    is_number = isinstance(worth, (int, float)) and not isinstance(worth, bool)
    if not isinstance(description, str) or not is_number:
        raise ToolError(
            f"invalid argument: {what} needs a description and a number of points, got {echo(item)}"
        )
    return {"description": line("description", description), "points": points("points", worth)}


def _show_rubric(rubric: Row) -> Row:
    context = {"context_id": rubric["course_id"], "context_type": "Course"}
    return public_fields(rubric, "course_id") | context
