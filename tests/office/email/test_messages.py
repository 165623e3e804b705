"""Mails as other programs show them, and exported files."""

from __future__ import annotations

import pytest

from agentgym.office.email.messages import Mail
from tests.office.prepared import ADA, BOB, DAY, office
from tests.office.test_laws import run


@pytest.mark.parametrize(
    ("body", "html", "parts"),
    [
        ("text ", None, ["text"]),
        ("text", "  ", ["text"]),
        ("text", "<b>other</b>", ["other", "text"]),
        ("", "<b>other</b>", ["other"]),
        ("text", "<a@b.org>", ["", "text"]),  # mail programs show the HTML, which is empty
        ("", None, [""]),
    ],
)
def test_parts_are_in_display_order(body: str, html: str, parts: list[str]) -> None:
    assert Mail(BOB, ADA, "subject", body, DAY, html=html).parts == parts


def test_hostile_texts_take_linear_time() -> None:
    server = office()
    for text in (
        "<" * 200_000,
        "<style>" * 30_000,
        "&" * 200_000,
        '"' * 200_000,
        "(" * 99 + "x" * 100_000,
        "from:" * 40_000,
        f"{BOB}," * 20_000,
    ):
        for tool, arguments in (
            ("send_email", {"to": BOB, "subject": "x", "body": "", "html_body": text}),
            ("send_email", {"to": text, "subject": "x", "body": ""}),
            ("search_emails", {"query": text}),
        ):
            run(server, tool, arguments)
