"""Common parts of the services of Google Cloud: the project, the places, checks of arguments, and
the layout of answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentgym.text.tools import ToolError, echo

PROJECT = "local-project"
"""The one project of an office."""

REGIONS = (
    "africa-south1", "asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2",
    "asia-northeast3", "asia-south1", "asia-south2", "asia-southeast1", "asia-southeast2",
    "australia-southeast1", "australia-southeast2", "europe-central2", "europe-north1",
    "europe-southwest1", "europe-west1", "europe-west10", "europe-west12", "europe-west2",
    "europe-west3", "europe-west4", "europe-west6", "europe-west8", "europe-west9", "me-central1",
    "me-central2", "me-west1", "northamerica-northeast1", "northamerica-northeast2",
    "southamerica-east1", "southamerica-west1", "us-central1", "us-east1", "us-east4", "us-east5",
    "us-south1", "us-west1", "us-west2", "us-west3", "us-west4",
)  # fmt: skip


def check_name(kind: str, name: str, pattern: str, rule: str) -> None:
    """Refuse a name that does not follow the rule of its kind.

    Raises:
        ToolError: It does not.
    """
    if not re.fullmatch(pattern, name):
        raise ToolError(f"invalid argument: {echo(name)} is no name of a {kind}: {rule}")


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Refuse a number that is out of a range.

    Raises:
        ToolError: It is.
    """
    if not least <= value <= most:
        raise ToolError(f"invalid argument: {name} must be in [{least}, {most}], got {value}")


def check_one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return one of the given words, as it stands there, whatever the case it was written in.

    Raises:
        ToolError: It is another.
    """
    for choice in choices:
        if choice.lower() == value.lower():
            return choice
    raise ToolError(
        f"invalid argument: {name} must be one of {', '.join(choices)}, got {echo(value)}"
    )


def read_token(token: str) -> tuple[str, int]:
    """Return the text and the number after which a page begins; `next_page` writes them.

    Raises:
        ToolError: It is not a token that was given out.
    """
    number, slash, text = token.partition("/")
    if not slash or not re.fullmatch(r"[0-9]{1,18}", number):
        raise ToolError(
            f"invalid argument: {echo(token)} is not a page token; take it from the answer before"
        )
    return text, int(number)


def next_page(text: str, number: int) -> str:
    """Return the line with the token of the page that begins after a record, given by a text and a
    number.
    """
    return f"... (page_token: {number}/{text})"


def listing(heading: str, lines: Sequence[str], empty: str = "") -> str:
    """Return a list as text: a heading with the count, and a line or block for each item.

    Args:
        heading: The name of the items.
        lines: The items.
        empty: The whole text where there is none; the heading by default.
    """
    if not lines and empty:
        return empty
    return "\n".join([f"{heading} ({len(lines)}):", *(f"- {line}" for line in lines)])


def details(heading: str, *lines: tuple[str, object]) -> str:
    """Return a record as text: a heading, and a line for each field; an empty one is None."""
    return "\n".join([heading, *(f"{label}: {value or None}" for label, value in lines)])
