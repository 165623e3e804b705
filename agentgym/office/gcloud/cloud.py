"""Common parts of the services of Google Cloud: the project, the places, checks of arguments, and
the layout of answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentgym.text.tools import ToolError, echo

PROJECT = "local-project"
"""The one project of an office."""

REGIONS = {
    "africa-south1": "abc", "asia-east1": "abc", "asia-east2": "abc", "asia-northeast1": "abc", "asia-northeast2": "abc",
    "asia-northeast3": "abc", "asia-south1": "abc", "asia-south2": "abc", "asia-southeast1": "abc", "asia-southeast2": "abc",
    "australia-southeast1": "abc", "australia-southeast2": "abc", "europe-central2": "abc", "europe-north1": "abc",
    "europe-southwest1": "abc", "europe-west1": "bcd", "europe-west10": "abc", "europe-west12": "abc", "europe-west2": "abc",
    "europe-west3": "abc", "europe-west4": "abc", "europe-west6": "abc", "europe-west8": "abc", "europe-west9": "abc",
    "me-central1": "abc", "me-central2": "abc", "me-west1": "abc", "northamerica-northeast1": "abc",
    "northamerica-northeast2": "abc", "southamerica-east1": "abc", "southamerica-west1": "abc", "us-central1": "abcf",
    "us-east1": "bcd", "us-east4": "abc", "us-east5": "abc", "us-south1": "abc", "us-west1": "abc", "us-west2": "abc",
    "us-west3": "abc", "us-west4": "abc",
}  # fmt: skip
"""The letters of the zones of each region."""

ZONES = {f"{region}-{letter}": region for region, letters in REGIONS.items() for letter in letters}
"""The region of each zone."""


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
