"""Conversion between mails and RFC 5322 messages, based on the standard library's `email`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.charset import Charset
from email.errors import HeaderParseError
from email.header import Header, decode_header, make_header
from email.message import Message
from email.mime.application import MIMEApplication
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.utils import format_datetime, formataddr, parsedate_to_datetime
from typing import Any

from agentgym.office.email.messages import (
    ADDRESS,
    CONTROL,
    MAX_ATTACHMENTS,
    MAX_NAME,
    MAX_SUBJECT,
    Mail,
    addresses,
    format_address,
    free_name,
    normalize,
)
from agentgym.office.files.media_types import BYTES, media_type
from agentgym.text.tools import ToolError

_MAX_HEADER = 10_000  # maximum decoded length of a header, which bounds the time for a hostile one

# Start of an encoded word (RFC 2047): a plain text that contains it must be encoded too.
_ENCODED = "=?"

_UTF8 = Charset("utf-8")


def render(mail: Mail) -> bytes:
    """Return a mail as an RFC 5322 message with CRLF line breaks.

    The result, including the boundaries of parts, is deterministic.
    """
    texts = [_text(mail.body, "plain")] if mail.body or mail.html is None else []
    if mail.html is not None:
        texts.append(_text(mail.html, "html"))
    seed = f"{mail.message_id}\n{mail.body}\n{mail.html}"
    root: Any = texts[0] if len(texts) == 1 else _multipart("alternative", texts, seed)
    if mail.attachments:
        files = [_attachment(name, data) for name, data in mail.attachments.items()]
        root = _multipart("mixed", [root, *files], seed)
    del root["MIME-Version"]
    for name, value in _headers(mail).items():
        if value or name == "Subject":
            root[name] = value
    root["MIME-Version"] = "1.0"
    data: bytes = root.as_bytes(policy=policy.compat32.clone(linesep="\r\n"))
    return data


def headers_of(mail: Mail) -> dict[str, str]:
    """Return the decoded headers of a mail's message."""
    return {name: _readable(str(value)) for name, value in message_from_bytes(render(mail)).items()}


def parse(data: bytes, fallback: Mail) -> Mail:
    """Parse an RFC 5322 message; missing fields are taken from `fallback`.

    Raises:
        ToolError: The message cannot be stored.
    """
    try:
        return _to_mail(message_from_bytes(data), fallback)
    except RecursionError:
        raise ToolError(
            "invalid argument: the parts of the message are nested too deeply"
        ) from None


def _to_mail(message: Message, fallback: Mail) -> Mail:
    texts: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for part in message.walk():
        if part.is_multipart() or len(files) > MAX_ATTACHMENTS:
            continue
        payload, kind = part.get_payload(decode=True), part.get_content_type()
        content = payload if isinstance(payload, bytes) else b""
        name, disposition = part.get_filename(), part.get_content_disposition()
        is_text = kind in ("text/plain", "text/html") and disposition != "attachment"
        if name or not is_text:
            files[free_name(files, _readable(name or "attachment"))] = content
        else:
            texts.setdefault(kind, _decode(content, part.get_content_charset("utf-8")))
    return normalize(
        replace(
            fallback,
            sender=next(_people(message["From"]), fallback.sender),
            to=", ".join(_people(message["To"])),
            cc=", ".join(_people(message["Cc"])),
            bcc=", ".join(_people(message["Bcc"])),
            subject=_readable(str(message["Subject"] or ""))[:MAX_SUBJECT],
            date=_date(message["Date"], fallback.date),
            message_id=str(message["Message-ID"] or ""),
            in_reply_to=str(message["In-Reply-To"] or ""),
            references=str(message["References"] or ""),
            body=texts.get("text/plain", ""),
            html=texts.get("text/html"),
            attachments=files,
        )
    )


def _headers(mail: Mail) -> dict[str, str | Header]:
    subject: str | Header = mail.subject
    if not mail.subject.isascii() or _ENCODED in mail.subject:
        subject = Header(mail.subject, "utf-8", header_name="Subject")
    return {
        "Message-ID": mail.message_id,
        "Date": format_datetime(mail.date),
        "From": _encoded(mail.sender),
        "To": _encoded(mail.to),
        "Cc": _encoded(mail.cc),
        "Bcc": _encoded(mail.bcc),
        "Subject": subject,
        "In-Reply-To": mail.in_reply_to,
        "References": mail.references,
    }


def _encoded(entries: str) -> str:
    return ", ".join(
        f"{_UTF8.header_encode(name)} <{address}>"
        if _ENCODED in name
        else formataddr((name, address))
        for name, address in addresses(entries)
    )


def _text(text: str, kind: str) -> Message:
    """Return a text part, in base64 if the plain text is not a legal message."""
    is_legal = text.isascii() and all(
        len(line) < MAX_SUBJECT and not CONTROL.search(line.replace("\t", ""))
        for line in text.split("\n")
    )
    return MIMEText(text, kind, "us-ascii" if is_legal else "utf-8")


def _attachment(name: str, data: bytes) -> Message:
    part = MIMEApplication(data)
    del part["MIME-Version"]
    part.set_type(content_type(name))
    part.add_header(
        "Content-Disposition",
        "attachment",
        filename=name if name.isascii() else ("utf-8", "", name),
    )
    return part


def content_type(name: str) -> str:
    """Return the media type for a file name; multi-part types become plain bytes."""
    kind = media_type(name)
    return BYTES if kind.startswith(("message/", "multipart/")) else kind


def _multipart(kind: str, parts: Sequence[Message], seed: str) -> Message:
    boundary = "=_" + hashlib.sha256(f"{kind}\n{seed}".encode()).hexdigest()[:32]
    message = MIMEMultipart(kind, boundary)
    for part in parts:
        del part["MIME-Version"]
        message.attach(part)
    return message


def _readable(header: str) -> str:
    """Unfold a header and decode its encoded words if possible."""
    flat = re.sub(r"\r?\n", "", header[:_MAX_HEADER])
    with suppress(HeaderParseError, LookupError, ValueError):
        flat = str(make_header(decode_header(flat)))
    return CONTROL.sub(" ", flat)


def _people(header: str | None) -> Iterator[str]:
    """Yield the entries of an address header; if it is malformed, the addresses near its start."""
    text = re.sub(r"\r?\n", "", str(header or ""))
    try:
        entries = addresses(text)
    except ToolError:
        entries = [("", match[0]) for match in ADDRESS.finditer(text[:1_000])]
    for name, address in entries:
        yield format_address(_readable(name)[:MAX_NAME].strip(), address)


def _decode(content: bytes, charset: str) -> str:
    try:
        return content.decode(charset, "replace")
    except (LookupError, ValueError):
        return content.decode("utf-8", "replace")


def _date(header: str | None, fallback: datetime) -> datetime:
    try:
        date = parsedate_to_datetime(str(header))
    except (TypeError, ValueError, OverflowError):
        return fallback
    return date if date.tzinfo else date.replace(tzinfo=UTC)
