"""Emails and addresses, normalized for storage."""

from __future__ import annotations

import functools
import html as html_entities
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from agentgym.text.tools import ToolError, echo

MAX_SUBJECT = 998  # maximum line length in RFC 5322, section 2.1.1

MAX_ATTACHMENTS_BYTES = 25 * 2**20  # per email, as in Gmail

MAX_ATTACHMENTS = 100  # no task needs more

# Maximum characters and bytes of a name; file systems allow 255 bytes.
MAX_NAME = 200

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_ADDRESS = rf"{_ATOM}(?:\.{_ATOM})*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*"
# Matches an address-list entry in linear time; the standard library's parser takes quadratic time.
_ENTRY = re.compile(
    rf'(?:(?:"((?:[^"\\]|\\.)*)"\s*|([^"<>,;@\\]*))<({_ADDRESS})>|({_ADDRESS}))\s*(?:,\s*|\Z)'
)

# Characters that a header cannot contain.
CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")

_MAX_ADDRESS = 254  # maximum path length in RFC 5321, section 4.5.3.1.3


@dataclass(frozen=True, slots=True)
class Mail:
    """An email. Addresses are `a@x.org` or `Ada <a@x.org>`, separated by commas.

    Attributes:
        date: Date with a time zone.
        attachments: The contents of the attached files, by name.
        message_id: Message-ID, which the server assigns.
        origin: `sent` by a tool, `filled` by a task, `bounce` from the server, or `draft`.
    """

    sender: str
    to: str
    subject: str
    body: str
    date: datetime
    html: str | None = None
    cc: str = ""
    bcc: str = ""
    attachments: Mapping[str, bytes] = field(default_factory=dict)
    message_id: str = ""
    read: bool = False
    important: bool = False
    folder: str = ""
    id: str = ""
    origin: str = ""

    @property
    def text(self) -> str:
        return text_of(self.body, self.html)

    @property
    def parts(self) -> list[str]:
        """The HTML part (if any), converted to text, and then the plain text."""
        html, body = (self.html or "").strip(), self.body.strip()
        parts = [_html_to_text(html)] if html else []
        if body or not html:
            parts.append(body)
        return parts

    @property
    def recipients(self) -> list[str]:
        recipients: list[str] = []
        for part in (self.to, self.cc, self.bcc):
            recipients += [address.lower() for _, address in addresses(part)]
        return list(dict.fromkeys(recipients))


def text_of(body: str, html: str | None) -> str:
    """Return the plain text or, if empty, the HTML converted to text."""
    return body or _html_to_text(html or "")


@functools.lru_cache(maxsize=4_096)  # cached, because most emails go to the same addresses
def addresses(text: str) -> tuple[tuple[str, str], ...]:
    """Parse an address list into distinct (name, address) pairs; names may be empty."""
    entries: dict[str, tuple[str, str]] = {}
    rest, position = text.strip().rstrip(","), 0
    has_control = CONTROL.search(rest)
    while position < len(rest):
        entry = _ENTRY.match(rest, position)
        if has_control or entry is None or entry.end() - position > MAX_NAME + _MAX_ADDRESS:
            raise ToolError(
                f"invalid argument: {echo(text)} is not a list of e-mail addresses such as a@x.org, "
                "Ada <b@y.org>"
            )
        quoted, plain = entry[1], entry[2]
        name = plain or ""
        if quoted is not None:
            name = re.sub(r"\\(.)", r"\1", quoted)
        address = entry[3] or entry[4]
        entries.setdefault(address.casefold(), (name.strip(), address))
        position = entry.end()
    return tuple(entries.values())


def format_address(name: str, address: str) -> str:
    """Format an address-list entry with a readable, unencoded name."""
    if not name:
        return address
    if not re.fullmatch(r"[\w !#$%&'*+/=?^`{|}~-]+", name):
        escaped = re.sub(r'(["\\])', r"\\\1", name)
        name = f'"{escaped}"'
    return f"{name} <{address}>"


def normalize(mail: Mail) -> Mail:
    """Normalize an email for storage."""
    senders = addresses(mail.sender)
    if len(senders) != 1:
        raise ToolError(f"invalid argument: an email must have one sender, got {echo(mail.sender)}")
    if CONTROL.search(mail.subject) or len(mail.subject) > MAX_SUBJECT:
        raise ToolError(
            f"invalid argument: a subject must be one line of at most {MAX_SUBJECT} characters, got "
            f"{echo(mail.subject)}"
        )
    size = sum(map(len, mail.attachments.values()))
    if len(mail.attachments) > MAX_ATTACHMENTS or size > MAX_ATTACHMENTS_BYTES:
        raise ToolError(
            f"limit exceeded: an email may have at most {MAX_ATTACHMENTS} attachments with "
            f"{MAX_ATTACHMENTS_BYTES} bytes in total"
        )
    if mail.date.tzinfo is None or not 1900 <= mail.date.year <= 9998:
        raise ToolError(
            "invalid argument: the date of an email must have a time zone and a year from 1900 to "
            f"9998, got {mail.date}"
        )
    return replace(
        mail,
        sender=format_address(*senders[0]),
        to=_format_all(mail.to),
        cc=_format_all(mail.cc),
        bcc=_format_all(mail.bcc),
        subject=mail.subject.strip(),
        body=_clean_text(mail.body),
        html=None if mail.html is None else _clean_text(mail.html),
        date=mail.date.replace(microsecond=0),
    )


def file_name(name: str) -> str:
    """Strip directories and control characters from a file name."""
    _, _, last = name.replace("\\", "/").rpartition("/")
    last = CONTROL.sub("_", last).strip()[:MAX_NAME]
    last = last.encode()[:MAX_NAME].decode(errors="ignore")
    return last if last.strip(".") else "attachment"


def _format_all(text: str) -> str:
    return ", ".join(format_address(*entry) for entry in addresses(text))


def _clean_text(text: str) -> str:
    return re.sub("[\0\ud800-\udfff]", "\ufffd", text).replace("\r\n", "\n").replace("\r", "\n")


def _html_to_text(html: str) -> str:
    # Repetitions stop at the next `<`, so matching takes linear time.
    text = re.sub(r"(?i)<(style|script|title)\b[^<>]*>[^<]*</\1\s*>", "", html)
    text = re.sub(r"(?i)<(?:br|/p|/div|/li|/tr|/h[1-6])\b[^<>]*>", "\n", text)
    return html_entities.unescape(re.sub(r"<[^<>]*>", "", text)).strip()


def numbered_names(name: str) -> Iterator[str]:
    """Yield a file name, then numbered variants: `a.txt`, `a (2).txt`."""
    yield name
    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem:  # names without an extension, such as `README`
        stem, suffix = name, ""
    else:
        suffix = f".{suffix}"
    for count in itertools.count(2):
        yield f"{stem} ({count}){suffix}"
