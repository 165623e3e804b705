"""Mails as records and as RFC 5322 messages, with the standard library's `email` between the two."""

from __future__ import annotations

import hashlib
import html as html_entities
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

from agentgym.envs.loca.servers.files.media_types import BYTES, media_type
from agentgym.tools import ToolError, echo

MAX_SUBJECT = 998
"""Characters of a subject; RFC 5322, section 2.1.1, allows no longer line."""

MAX_ATTACHMENTS_BYTES = 25 * 2**20
MAX_ATTACHMENTS = 100
MAX_NAME = 200

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_ADDRESS = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_ENTRY = re.compile(
    rf'(?:(?:"((?:[^"\\]|\\.)*)"\s*|([^"<>,;@\\]*))<({_ADDRESS.pattern})>|({_ADDRESS.pattern}))\s*(?:,\s*|\Z)'
)
"""An entry of an address list. The library reads such lists recursively and in quadratic time, this in linear time."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,240}>")
_MAX_REFERENCES = 20
_MAX_HEADER = 10_000
_MAX_ADDRESS = 254
_ENCODED = "=?"
_UTF8 = Charset("utf-8")


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
        bcc: Who gets a copy that the others do not know of.
        attachments: The bytes of each attached file by its name.
        message_id: Its Message-ID; given by the server when empty.
        in_reply_to: The Message-ID of what it answers.
        references: The Message-IDs of the thread, oldest first.
        read: Whether its owner has read it.
        important: Whether its owner has marked it.
        folder: Where in the mailbox it is.
        id: Its id in the mailbox.
        origin: `sent` if it was really sent with the tools, `filled` if a task delivered it, `import` or `draft`.
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
        """The text; that of the HTML where there is no other."""
        return self.body or _html_to_text(self.html or "")

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


def addresses(text: str) -> list[tuple[str, str]]:
    """The name (often empty) and the address of each entry of an address list, none twice.

    Raises:
        ToolError: Something in it is no address.
    """
    found: dict[str, tuple[str, str]] = {}
    rest, place = text.strip().rstrip(","), 0
    odd = _CONTROL.search(rest)
    while place < len(rest):
        entry = _ENTRY.match(rest, place)
        if odd or entry is None or entry.end() - place > MAX_NAME + _MAX_ADDRESS:
            raise ToolError(
                f"invalid argument: {echo(text)} is no list of e-mail addresses; write a@x.org, Ada <b@y.org>"
            )
        name = (
            (entry[2] or "").strip()
            if entry[1] is None
            else re.sub(r"\\(.)", r"\1", entry[1]).strip()
        )
        address = entry[3] or entry[4]
        found.setdefault(address.casefold(), (name, address))
        place = entry.end()
    return list(found.values())


def format_address(name: str, address: str) -> str:
    """An entry of an address list, its name as it is read rather than as ASCII."""
    if not name:
        return address
    quoted = (
        name
        if re.fullmatch(r"[\w !#$%&'*+/=?^`{|}~-]+", name)
        else '"{}"'.format(re.sub(r'(["\\])', r"\\\1", name))
    )
    return f"{quoted} <{address}>"


def normalize(mail: Mail) -> Mail:
    """A mail in the form that it is kept in.

    Raises:
        ToolError: Something in it cannot be part of a message.
    """
    senders = addresses(mail.sender)
    if len(senders) != 1:
        raise ToolError(f"invalid argument: a mail has one sender, got {echo(mail.sender)}")
    if _CONTROL.search(mail.subject) or len(mail.subject) > MAX_SUBJECT:
        raise ToolError(
            f"invalid argument: a subject is one line of at most {MAX_SUBJECT} characters, got {echo(mail.subject)}"
        )
    if (
        len(mail.attachments) > MAX_ATTACHMENTS
        or sum(map(len, mail.attachments.values())) > MAX_ATTACHMENTS_BYTES
    ):
        raise ToolError(
            f"limit exceeded: a mail has at most {MAX_ATTACHMENTS} attachments of {MAX_ATTACHMENTS_BYTES} bytes together"
        )
    if mail.date.tzinfo is None or not 1900 <= mail.date.year <= 9998:
        raise ToolError(
            f"invalid argument: the date of a mail has a time zone and a year from 1900 to 9998, got {mail.date}"
        )
    references = _MESSAGE_ID.findall(mail.references)
    if len(references) > _MAX_REFERENCES:
        references = [references[0], *references[1 - _MAX_REFERENCES :]]
    return replace(
        mail,
        sender=format_address(*senders[0]),
        to=_format_all(mail.to),
        cc=_format_all(mail.cc),
        bcc=_format_all(mail.bcc),
        subject=mail.subject.strip(),
        body=_lines(mail.body),
        html=None if mail.html is None else _lines(mail.html),
        date=_to_the_minute(mail.date.replace(microsecond=0)),
        attachments=_named(mail.attachments),
        message_id="".join(_MESSAGE_ID.findall(mail.message_id)[:1]),
        in_reply_to="".join(_MESSAGE_ID.findall(mail.in_reply_to)[:1]),
        references=" ".join(references),
    )


def render(mail: Mail) -> bytes:
    """A mail as an RFC 5322 message with CRLF line ends. All of it follows from the mail, the boundaries of its parts too."""
    texts = [_text(mail.body, "plain")] if mail.body or mail.html is None else []
    if mail.html is not None:
        texts.append(_text(mail.html, "html"))
    seed = f"{mail.message_id}\n{mail.body}\n{mail.html}"
    root: Any = texts[0] if len(texts) == 1 else _multipart("alternative", texts, seed)
    if mail.attachments:
        root = _multipart(
            "mixed",
            [root, *(_attachment(name, data) for name, data in mail.attachments.items())],
            seed,
        )
    del root["MIME-Version"]
    for name, value in _headers(mail).items():
        if value or name == "Subject":
            root[name] = value
    root["MIME-Version"] = "1.0"
    data: bytes = root.as_bytes(policy=policy.compat32.clone(linesep="\r\n"))
    return data


def headers_of(mail: Mail) -> dict[str, str]:
    """The headers of the message that a mail is, as they are read."""
    return {name: _readable(str(value)) for name, value in message_from_bytes(render(mail)).items()}


def parse(data: bytes, fallback: Mail) -> Mail:
    """The mail that an RFC 5322 message is; what it lacks is taken from another.

    Raises:
        ToolError: It cannot be kept.
    """
    try:
        return _read(message_from_bytes(data), fallback)
    except RecursionError:
        raise ToolError(
            "invalid argument: the parts of the message are nested too deeply"
        ) from None


def _read(message: Message, fallback: Mail) -> Mail:
    """The mail that a parsed message is."""
    texts: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for part in message.walk():
        if part.is_multipart() or len(files) > MAX_ATTACHMENTS:
            continue
        payload, kind = part.get_payload(decode=True), part.get_content_type()
        content = payload if isinstance(payload, bytes) else b""
        if (
            part.get_filename()
            or part.get_content_disposition() == "attachment"
            or kind not in ("text/plain", "text/html")
        ):
            files[_free_name(files, _readable(part.get_filename() or "attachment"))] = content
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


def file_name(name: str) -> str:
    """The name of a file as an attachment may have it: without folders and without control characters."""
    plain = _CONTROL.sub("_", re.split(r"[/\\]", name)[-1]).strip()[:MAX_NAME]
    while len(plain.encode()) > MAX_NAME:
        plain = plain[:-1]
    return plain if plain.strip(".") else "attachment"


def iso_date(date: datetime) -> str:
    """A date as it is shown: ISO 8601 with its own offset."""
    return date.isoformat().replace("+00:00", "Z")


def _format_all(text: str) -> str:
    return ", ".join(format_address(*entry) for entry in addresses(text))


def _lines(text: str) -> str:
    """A text with the line ends that texts have here, and without what UTF-8 or a message cannot carry."""
    return re.sub("[\0\ud800-\udfff]", "\ufffd", text).replace("\r\n", "\n").replace("\r", "\n")


def _html_to_text(html: str) -> str:
    """The text of HTML. No pattern here can run over more than one tag, so their time is linear."""
    text = re.sub(r"(?i)<(style|script|title)\b[^<>]*>[^<]*</\1\s*>", "", html)
    text = re.sub(r"(?i)<(?:br|/p|/div|/li|/tr|/h[1-6])\b[^<>]*>", "\n", text)
    return html_entities.unescape(re.sub(r"<[^<>]*>", "", text)).strip()


def _to_the_minute(date: datetime) -> datetime:
    """The same moment with an offset that a Date header can carry."""
    offset = date.utcoffset()
    return date.astimezone(UTC) if offset is not None and offset.total_seconds() % 60 else date


def _named(files: Mapping[str, bytes]) -> dict[str, bytes]:
    named: dict[str, bytes] = {}
    for name, data in files.items():
        named[_free_name(named, file_name(name))] = bytes(data)
    return named


def _free_name(taken: Mapping[str, bytes], name: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    count = 1
    free = name
    while free in taken:
        count += 1
        free = f"{stem} ({count}).{suffix}" if dot and stem else f"{name} ({count})"
    return free


def _headers(mail: Mail) -> dict[str, str | Header]:
    subject = mail.subject
    return {
        "Message-ID": mail.message_id,
        "Date": format_datetime(mail.date),
        "From": _encoded(mail.sender),
        "To": _encoded(mail.to),
        "Cc": _encoded(mail.cc),
        "Bcc": _encoded(mail.bcc),
        "Subject": subject
        if subject.isascii() and _ENCODED not in subject
        else Header(subject, "utf-8", header_name="Subject"),
        "In-Reply-To": mail.in_reply_to,
        "References": mail.references,
    }


def _encoded(entries: str) -> str:
    """An address list in ASCII."""
    return ", ".join(
        f"{_UTF8.header_encode(name)} <{address}>"
        if _ENCODED in name
        else formataddr((name, address))
        for name, address in addresses(entries)
    )


def _text(text: str, kind: str) -> Message:
    """A part of text: as it is where that is a legal message, in base64 otherwise."""
    plain = text.isascii() and all(
        len(line) < MAX_SUBJECT and not _CONTROL.search(line.replace("\t", ""))
        for line in text.split("\n")
    )
    return MIMEText(text, kind, "us-ascii" if plain else "utf-8")


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
    """The media type of a file, by its name; one that is made of parts is given as bytes."""
    kind = media_type(name)
    return BYTES if kind.startswith(("message/", "multipart/")) else kind


def _multipart(kind: str, parts: Sequence[Message], seed: str) -> Message:
    made = MIMEMultipart(kind, "=_" + hashlib.sha256(f"{kind}\n{seed}".encode()).hexdigest()[:32])
    for part in parts:
        del part["MIME-Version"]
        made.attach(part)
    return made


def _readable(header: str) -> str:
    """A header without its folding and with its encoded words decoded."""
    flat = re.sub(r"\r?\n", "", header[:_MAX_HEADER])
    try:
        flat = str(make_header(decode_header(flat)))
    except (HeaderParseError, LookupError, ValueError):
        return _CONTROL.sub(" ", flat)
    return _CONTROL.sub(" ", flat)


def _people(header: str | None) -> Iterator[str]:
    """The entries of an address header; only the addresses in its beginning where it is no list of them."""
    text = re.sub(r"\r?\n", "", str(header or ""))
    try:
        entries = addresses(text)
    except ToolError:
        entries = [("", found[0]) for found in _ADDRESS.finditer(text[:1_000])]
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
