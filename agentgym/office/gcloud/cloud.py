"""Parts shared by the Google Cloud services: regions, argument checks and text layout."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentgym.text.tools import ToolError, echo

PROJECT = "local-project"  # an office has one project

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
    """Raise `ToolError` if a name does not match its pattern."""
    if not re.fullmatch(pattern, name):
        raise ToolError(f"invalid argument: {echo(name)} is not a valid {kind} name: {rule}")


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Raise `ToolError` if a number is out of range."""
    if not least <= value <= most:
        raise ToolError(f"invalid argument: {name} must be in [{least}, {most}], got {value}")


def check_one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return the matching choice, ignoring case, or raise `ToolError`."""
    for choice in choices:
        if choice.lower() == value.lower():
            return choice
    raise ToolError(
        f"invalid argument: {name} must be one of {', '.join(choices)}, got {echo(value)}"
    )


def read_token(token: str) -> tuple[str, int]:
    """Parse a `next_page` token, or raise `ToolError`."""
    number, slash, text = token.partition("/")
    if not slash or not re.fullmatch(r"[0-9]{1,18}", number):
        raise ToolError(
            f"invalid argument: {echo(token)} is not a page token; take it from the previous answer"
        )
    return text, int(number)


def next_page(text: str, number: int) -> str:
    """Return the line with the token for the page after a record."""
    return f"... (page_token: {number}/{text})"


def listing(heading: str, lines: Sequence[str], empty: str = "") -> str:
    """Format a counted heading and one line or block per item, or `empty` without items."""
    if not lines and empty:
        return empty
    return "\n".join([f"{heading} ({len(lines)}):", *(f"- {line}" for line in lines)])


def details(heading: str, *lines: tuple[str, object]) -> str:
    """Format a heading and a line per field, `None` if empty."""
    return "\n".join([heading, *(f"{label}: {value or None}" for label, value in lines)])
