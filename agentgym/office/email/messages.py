"""Mails and their addresses, in the form in which the mailboxes store them."""

from __future__ import annotations

import functools
import html as html_entities
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from agentgym.text.tools import ToolError, echo

MAX_SUBJECT = 998
"""Characters of a subject; RFC 5322, section 2.1.1, allows no longer line."""

MAX_ATTACHMENTS_BYTES = 25 * 2**20
"""Bytes of the attachments of a mail, as many as Gmail sends."""

MAX_ATTACHMENTS = 100
"""Attachments of a mail; a message of thousands of parts would take long to parse."""

MAX_NAME = 200
"""Characters of a person's or a file's name, and bytes of the latter: file systems take 255."""

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
ADDRESS = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_ENTRY = re.compile(
    rf'(?:(?:"((?:[^"\\]|\\.)*)"\s*|([^"<>,;@\\]*))<({ADDRESS.pattern})>|({ADDRESS.pattern}))\s*(?:,\s*|\Z)'
)
"""An entry of an address list.

The library parses such lists recursively and in quadratic time, this does so in linear time.
"""

CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
"""Characters that a header cannot carry: controls, line ends of all kinds, lone surrogates."""

_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,240}>")
"""A Message-ID that fits into a line of a header that is not folded."""

_MAX_REFERENCES = 20
"""Message-IDs in References; RFC 5537, section 3.4.4, keeps the first and the last ones of more."""

_MAX_ADDRESS = 254
"""Characters of an address; RFC 5321, section 4.5.3.1.3, allows no longer path."""

_SHORT_LIST = 500
"""Characters of an address list that is parsed once: the same few people write most mails."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail. Addresses are written `a@x.org` or `Ada <a@x.org>`, several with commas between.

    Attributes:
        sender: Who wrote it.
        to: To whom.
        subject: The subject, in one line.
        body: The text.
        date: When it was written; it must have a time zone.
        html: The text as HTML, if it has that too.
        cc: Who gets a copy.
        bcc: Who gets a copy without the others' knowledge.
        attachments: The bytes of each attached file by its name.
        message_id: Its Message-ID; the server gives it one when it is empty.
        in_reply_to: The Message-ID of what it answers.
        references: The Message-IDs of the thread, oldest first.
        read: Whether its owner has read it.
        important: Whether its owner has marked it.
        folder: Where in the mailbox it is.
        id: Its id in the mailbox.
        origin: `sent` if it was really sent with the tools, `filled` if a task delivered it,
            `bounce` if the server returned one to its author, `import` or `draft`.
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
    in_reply_to: str = ""
    references: str = ""
    read: bool = False
    important: bool = False
    folder: str = ""
    id: str = ""
    origin: str = ""

    @property
    def text(self) -> str:
        """The text; that of the HTML where there is no other one."""
        return text_of(self.body, self.html)

    @property
    def parts(self) -> list[str]:
        """The texts of its parts, the one that mail programs show first: the HTML, even if it shows
        nothing.
        """
        html, body = (self.html or "").strip(), self.body.strip()
        texts = [_html_to_text(html)] if html else []
        return [*texts, body] if body or not texts else texts

    @property
    def recipients(self) -> list[str]:
        """The addresses in to, cc and bcc in small letters, none twice."""
        return list(
            dict.fromkeys(
                address.lower()
                for part in (self.to, self.cc, self.bcc)
                for _, address in addresses(part)
            )
        )


def text_of(body: str, html: str | None) -> str:
    """Return the text of a mail; that of its HTML where it has no other one."""
    return body or _html_to_text(html or "")


def addresses(text: str) -> list[tuple[str, str]]:
    """Return the name (often empty) and the address of each entry of an address list, none twice.

    Raises:
        ToolError: Something in it is no address.
    """
    return list(_short_list(text) if len(text) <= _SHORT_LIST else _parse_list(text))


def _parse_list(text: str) -> tuple[tuple[str, str], ...]:
    entries: dict[str, tuple[str, str]] = {}
    rest, position = text.strip().rstrip(","), 0
    has_control = CONTROL.search(rest)
    while position < len(rest):
        entry = _ENTRY.match(rest, position)
        if has_control or entry is None or entry.end() - position > MAX_NAME + _MAX_ADDRESS:
            raise ToolError(
                f"invalid argument: {echo(text)} is no list of e-mail addresses; write a@x.org, "
                "Ada <b@y.org>"
            )
        quoted, plain = entry[1], entry[2]
        name = (plain or "") if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        address = entry[3] or entry[4]
        entries.setdefault(address.casefold(), (name.strip(), address))
        position = entry.end()
    return tuple(entries.values())


_short_list = functools.lru_cache(maxsize=4096)(_parse_list)


def format_address(name: str, address: str) -> str:
    """Return an entry of an address list, with its name as it is read rather than in ASCII."""
    if not name:
        return address
    if not re.fullmatch(r"[\w !#$%&'*+/=?^`{|}~-]+", name):
        escaped = re.sub(r'(["\\])', r"\\\1", name)
        name = f'"{escaped}"'
    return f"{name} <{address}>"


def normalize(mail: Mail) -> Mail:
    """Return a mail in the form that it is stored in.

    Raises:
        ToolError: Something in it cannot be part of a message.
    """
    senders = addresses(mail.sender)
    if len(senders) != 1:
        raise ToolError(f"invalid argument: a mail has one sender, got {echo(mail.sender)}")
    if CONTROL.search(mail.subject) or len(mail.subject) > MAX_SUBJECT:
        raise ToolError(
            f"invalid argument: a subject is one line of at most {MAX_SUBJECT} characters, got "
            f"{echo(mail.subject)}"
        )
    size = sum(map(len, mail.attachments.values()))
    if len(mail.attachments) > MAX_ATTACHMENTS or size > MAX_ATTACHMENTS_BYTES:
        raise ToolError(
            f"limit exceeded: a mail has at most {MAX_ATTACHMENTS} attachments of "
            f"{MAX_ATTACHMENTS_BYTES} bytes together"
        )
    if mail.date.tzinfo is None or not 1900 <= mail.date.year <= 9998:
        raise ToolError(
            "invalid argument: the date of a mail has a time zone and a year from 1900 to 9998, "
            f"got {mail.date}"
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
        date=_with_whole_offset(mail.date.replace(microsecond=0)),
        attachments=_with_free_names(mail.attachments),
        message_id="".join(_MESSAGE_ID.findall(mail.message_id)[:1]),
        in_reply_to="".join(_MESSAGE_ID.findall(mail.in_reply_to)[:1]),
        references=_trim_references(mail.references),
    )


def file_name(name: str) -> str:
    """Return the name of a file without folders and control characters, as attachments have it."""
    last = CONTROL.sub("_", re.split(r"[/\\]", name)[-1]).strip()[:MAX_NAME]
    last = last.encode()[:MAX_NAME].decode(errors="ignore")
    return last if last.strip(".") else "attachment"


def iso_date(date: datetime) -> str:
    """Return a date as it is shown: ISO 8601 with its own offset."""
    return date.isoformat().replace("+00:00", "Z")


def _trim_references(references: str) -> str:
    """Return the Message-IDs of a thread without the middle of a long one."""
    ids = _MESSAGE_ID.findall(references)
    if len(ids) > _MAX_REFERENCES:
        ids = [ids[0], *ids[1 - _MAX_REFERENCES :]]
    return " ".join(ids)


def _format_all(text: str) -> str:
    return ", ".join(format_address(*entry) for entry in addresses(text))


def _clean_text(text: str) -> str:
    """Return a text with simple line ends, and without what UTF-8 or a message cannot carry."""
    return re.sub("[\0\ud800-\udfff]", "\ufffd", text).replace("\r\n", "\n").replace("\r", "\n")


def _html_to_text(html: str) -> str:
    """Return the text of HTML."""
    # No pattern can run over more than one tag, so their time is linear.
    text = re.sub(r"(?i)<(style|script|title)\b[^<>]*>[^<]*</\1\s*>", "", html)
    text = re.sub(r"(?i)<(?:br|/p|/div|/li|/tr|/h[1-6])\b[^<>]*>", "\n", text)
    return html_entities.unescape(re.sub(r"<[^<>]*>", "", text)).strip()


def _with_whole_offset(date: datetime) -> datetime:
    """Return the same moment with an offset in minutes, which a Date header can carry."""
    offset = date.utcoffset()
    return date.astimezone(UTC) if offset is not None and offset.total_seconds() % 60 else date


def _with_free_names(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return attachments under names that attachments may have, none twice."""
    renamed: dict[str, bytes] = {}
    for name, data in files.items():
        renamed[free_name(renamed, file_name(name))] = bytes(data)
    return renamed


def free_name(files: Mapping[str, bytes], name: str) -> str:
    """Return a name that no file has: itself, or with a number."""
    return next(numbered for numbered in numbered_names(name) if numbered not in files)


def numbered_names(name: str) -> Iterator[str]:
    """Yield the name of a file, and the same with the numbers from 2 on: `a.txt`, `a (2).txt`."""
    yield name
    stem, dot, suffix = name.rpartition(".")
    for count in itertools.count(2):
        yield f"{stem} ({count}).{suffix}" if dot and stem else f"{name} ({count})"
