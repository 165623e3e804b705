"""RFC 5322 headers of a mail."""

from __future__ import annotations

import hashlib
from email.utils import format_datetime, formataddr

from agentgym.office.email.messages import CONTROL, MAX_SUBJECT, Mail, addresses
from agentgym.office.files.media_types import BYTES, media_type


def headers_of(mail: Mail) -> dict[str, str]:
    """Return a mail's decoded, non-empty headers."""
    headers = {
        "Content-Type": _message_type(mail),
        "Message-ID": mail.message_id,
        "Date": format_datetime(mail.date),
        "From": _decoded(mail.sender),
        "To": _decoded(mail.to),
        "Cc": _decoded(mail.cc),
        "Bcc": _decoded(mail.bcc),
        "In-Reply-To": mail.in_reply_to,
        "References": mail.references,
    }
    given = {name: value for name, value in headers.items() if value}
    return {**given, "Subject": mail.subject}


def content_type(name: str) -> str:
    """Return a file name's media type; multi-part types become plain bytes."""
    kind = media_type(name)
    return BYTES if kind.startswith(("message/", "multipart/")) else kind


def _decoded(entries: str) -> str:
    """Return an address list as mail readers show it: encoded names lose their quotes."""
    people = []
    for name, address in addresses(entries):
        is_plain = name.isascii() and "=?" not in name  # the start of an encoded word (RFC 2047)
        people.append(formataddr((name, address)) if is_plain else f"{name} <{address}>")
    return ", ".join(people)


def _message_type(mail: Mail) -> str:
    if mail.attachments:
        return _multipart_type("mixed", mail)
    if mail.html is None:
        return _text_type(mail.body, "plain")
    if not mail.body:
        return _text_type(mail.html, "html")
    return _multipart_type("alternative", mail)


def _multipart_type(kind: str, mail: Mail) -> str:
    seed = f"{kind}\n{mail.message_id}\n{mail.body}\n{mail.html}"
    return f'multipart/{kind}; boundary="=_{hashlib.sha256(seed.encode()).hexdigest()[:32]}"'


def _text_type(text: str, kind: str) -> str:
    """Return UTF-8 unless the text is a legal ASCII message."""
    has_control = CONTROL.search(text.replace("\t", "").replace("\n", ""))
    longest = max(len(line) for line in text.split("\n"))
    is_legal = text.isascii() and not has_control and longest < MAX_SUBJECT
    charset = "us-ascii" if is_legal else "utf-8"
    return f'text/{kind}; charset="{charset}"'
