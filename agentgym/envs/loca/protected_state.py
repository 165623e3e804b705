"""Fingerprints of the parts of an office that a task must leave alone, and the differences that do
no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase

from agentgym.envs.loca.checks import hash_of
from agentgym.office.email.server import Email
from agentgym.office.office import Office
from agentgym.office.server import Server
from agentgym.office.warehouse.engine import Engine

DRAFTS, INSIGHTS = "email.drafts.*", "snowflake.insights*"
"""Harmless differences that the rules name."""

HARMLESS: Mapping[str, str] = {
    "/*+": "a new file or folder in the workspace",
    "own:/*": "changes to a file that the agent made and that is no output",
    "output:*.look": "how an output looks: quotes and line ends, fonts and widths",
    "*.session.*": "who is logged in, and other settings of a connection",
    DRAFTS: "drafts of mails",
    "email.received.mails.is_read": "which mails are read",
    "own:email.sent.mails*": "where the sender keeps the copy of a mail that was sent",
    "email.bounces.*": "reports on mails that were not delivered; such a mail itself counts",
    "canvas.users.last_login": "when a user has logged in",
    "canvas.participants*": "which conversations are read",
    "google_cloud.bigquery_jobs*": "the list of queries that were run",
    "google_sheet.spreadsheets.modified": "when a spreadsheet was changed last",
    INSIGHTS: "insights in the memo",
}
"""Differences from the right final state that no task minds, as patterns of their names, each with
what it is.

A name is `server.part.column` of a record that was changed, `server.part+` of a new one and
`server.part-` of one that is gone; of files it begins with the path. `output:` stands before the
path of a file that the task asks for, and `own:` before the name where the agent made the record or
file; a pattern without `own:` is for both.
"""

_ORIGINS = {"draft": "drafts", "bounce": "bounces", "sent": "sent"}
"""Names of parts by the origin of the mails in them; all other mails were received."""

_CHECKED_BY_TASK = {"email.mails", "email.messages", "email.attachments"}
"""Tables that sending changes: the task checks what was sent, `_mail_hash` covers other mails."""


def fingerprint_protected(
    office: Office, mutable_tables: Collection[str], harmless: Collection[str]
) -> dict[str, str]:
    """Hash each part of the services that a task leaves alone, by its name.

    Args:
        office: The office.
        mutable_tables: The tables that the work changes, as `server.table`; the task itself checks
            their records.
        harmless: Patterns of the names of differences that do not count.
    """
    hashes: dict[str, str] = {}
    for server in office.toolsets():
        patterns = [name for name in harmless if name.startswith((f"{server.name}.", "*"))]
        for table in server.store.tables():
            name = f"{server.name}.{table}"
            if name in mutable_tables or name in _CHECKED_BY_TASK or _fits(f"{name}+", patterns):
                continue
            without = [
                column
                for column in server.store.columns(table)
                if _fits(f"{name}.{column}", patterns)
            ]
            hashes[name] = server.store.fingerprint(table, without)
        hashes |= _other_hashes(server, mutable_tables, DRAFTS in harmless)
    return hashes


def _fits(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _other_hashes(
    server: Server, mutable_tables: Collection[str], drafts: bool
) -> Mapping[str, str]:
    """Hash the state of a server outside its tables, or in tables that reading changes; `drafts`
    if those do no harm.
    """
    if isinstance(server, Email):
        return {"email.mails": _mail_hash(server, drafts)}
    engine = getattr(server, "engine", None)
    if isinstance(engine, Engine):
        return _engine_hashes(server.name, engine, mutable_tables)
    return {}


def _mail_hash(server: Email, drafts: bool) -> str:
    """Hash the mails that must be where they were, read or not: all but those that were sent, of
    which bounces follow.
    """
    ignored = [origin for origin in _ORIGINS if origin != "draft" or drafts]
    sql = f"""SELECT mails.id, user, folder, message, is_important
        FROM mails JOIN messages ON messages.id = message
        WHERE origin NOT IN ({", ".join("?" * len(ignored))}) ORDER BY mails.id"""
    return hash_of(server.store.rows(sql, *ignored))


def _engine_hashes(
    server: str, engine: Engine, mutable_tables: Collection[str]
) -> Mapping[str, str]:
    """Hash the catalogue of a warehouse, as others see it: schemas, names and descriptions of all
    tables, and the columns of those that the work leaves alone.
    """
    schemas, tables = engine.committed_catalog()
    return {
        f"{server}.schemas": hash_of(
            sorted(
                (name, schema.comment, schema.notes, sorted(schema.functions.items()))
                for name, schema in schemas.items()
            )
        ),
        f"{server}.tables": hash_of(
            sorted((name, table.comment, table.view) for name, table in tables.items())
        ),
        f"{server}.columns": hash_of(
            sorted(
                (name, table.columns)
                for name, table in tables.items()
                if f"{server}.{'.'.join(name)}" not in mutable_tables
            )
        ),
    }


def unexpected_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each part whose fingerprint has changed."""
    yield from (
        f"{name}: something was added, changed or removed"
        for name in before
        if now[name] != before[name]
    )
