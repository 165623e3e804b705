"""Limits on argument lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.office.test_laws import call, refused
from tests.office.test_sessions import prepared

NINE = {"dateTime": "2025-03-01T09:00:00Z"}
EVENT = {"summary": "s", "start": NINE, "end": NINE}
MAIL = {"to": "bob@x.org", "subject": "s", "body": "b"}

# Each entry: server, tool, maximum size, arguments of a given size, and the error above the
# maximum.
LIMITS: list[tuple[str, str, int, Callable[[int], Mapping[str, Any]], str]] = [
    ("calendar", "create_event", 1_024, lambda n: {**EVENT, "summary": "x" * n}, "summary must have at most"),
    ("calendar", "create_event", 8_192, lambda n: {**EVENT, "description": "x" * n}, "description must have at most"),
    ("calendar", "create_event", 1_024, lambda n: {**EVENT, "location": "x" * n}, "location must have at most"),
    ("email", "create_folder", 100, lambda n: {"folder_name": "x" * n}, "1 to 100 characters"),
    ("email", "send_email", 998, lambda n: {**MAIL, "subject": "x" * n}, "at most 998 characters"),
    ("email", "send_email", 500, lambda n: {**MAIL, "to": ", ".join(f"u{k}@far.net" for k in range(n))}, "at most 500 recipients"),
    ("email", "search_emails", 50, lambda n: {"query": "a " * n}, "at most 50 words"),
    ("filesystem", "search_files", 100, lambda n: {"path": ".", "pattern": "*", "excludePatterns": ["x"] * n}, "at most 100"),
    ("google_cloud", "storage_create_bucket", 63, lambda n: {"bucket_name": "a" * n}, "is not a valid bucket name"),
    ("google_cloud", "logging_write_log", 512, lambda n: {"log_name": "x" * n, "message": "x"}, "is not a valid log name"),
    ("woocommerce", "woo_products_batch_update", 100, lambda n: {"delete": [1] * n}, "at most 100"),
]  # fmt: skip


@pytest.mark.parametrize(("server", "tool", "most", "arguments", "error"), LIMITS)
def test_arguments_have_limits(
    server: str, tool: str, most: int, arguments: Callable[[int], Mapping[str, Any]], error: str
) -> None:
    played = prepared(server)
    call(played, tool, **arguments(most))
    refused(played, tool, error, **arguments(most + 1))


@pytest.mark.parametrize("text", ["a\0", "a\x1b"])
@pytest.mark.parametrize("name", ["summary", "description", "location"])
def test_texts_of_events_have_no_control_characters(name: str, text: str) -> None:
    refused(
        prepared("calendar"), "create_event", f"{name} must have at most", **{**EVENT, name: text}
    )
