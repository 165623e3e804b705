"""Fingerprints of the state that an agent must not change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase

from agentgym.envs.loca.checks import hash_of
from agentgym.office.email.server import Email
from agentgym.office.office import Office
from agentgym.office.server import Server
from agentgym.office.warehouse.engine import SQLEngine

# Harmless differences that tasks mention in their rules.
DRAFTS, INSIGHTS = "email.drafts.*", "snowflake.insights*"

# `server.part.column` means a changed record, `server.part+` a new record and `server.part-` a
# removed record. `output:` matches only required files; `own:` matches only what the agent created.
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
    "google_cloud.bigquery_jobs*": "the list of queries that were run",
    "google_sheet.spreadsheets.modified": "when a spreadsheet was changed last",
    INSIGHTS: "insights in the memo",
}

# Maps the origin of an email to a part of the mailbox; all other origins belong to `received`.
_ORIGINS = {"draft": "drafts", "bounce": "bounces", "sent": "sent"}

# Sending an email changes these tables. `_mail_hash` covers all emails except sent emails.
_CHECKED_BY_TASK = {"email.mails", "email.messages", "email.attachments"}


def fingerprint_protected(
    office: Office, mutable_tables: Collection[str], harmless: Collection[str]
) -> dict[str, str]:
    """Hash each part of the services' state, excluding mutable tables and harmless differences."""
    hashes: dict[str, str] = {}
    for server in office.toolsets():
        patterns = [name for name in harmless if name.startswith((f"{server.name}.", "*"))]
        for table in server.store.tables():
            name = f"{server.name}.{table}"
            if name in mutable_tables or name in _CHECKED_BY_TASK or _fits(f"{name}+", patterns):
                continue
            columns = server.store.columns(table)
            without = [column for column in columns if _fits(f"{name}.{column}", patterns)]
            hashes[name] = server.store.fingerprint(table, without)
        hashes |= _other_hashes(server, mutable_tables, DRAFTS in harmless)
    return hashes


def _fits(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _other_hashes(
    server: Server, mutable_tables: Collection[str], drafts: bool
) -> Mapping[str, str]:
    if isinstance(server, Email):
        return {"email.mails": _mail_hash(server, drafts)}
    engine = getattr(server, "engine", None)
    if isinstance(engine, SQLEngine):
        return _engine_hashes(server.name, engine, mutable_tables)
    return {}


def _mail_hash(server: Email, drafts: bool) -> str:
    ignored = [origin for origin in _ORIGINS if origin != "draft" or drafts]
    sql = f"""SELECT mails.id, user, folder, message, is_important
        FROM mails JOIN messages ON messages.id = message
        WHERE origin NOT IN ({", ".join("?" * len(ignored))}) ORDER BY mails.id"""
    return hash_of(server.store.rows(sql, *ignored))


def _engine_hashes(
    server: str, engine: SQLEngine, mutable_tables: Collection[str]
) -> Mapping[str, str]:
    described, columns = [], []
    for name, table in engine.tables.items():
        described.append((name, table.comment))
        if f"{server}.{'.'.join(name)}" not in mutable_tables:
            columns.append((name, table.columns))
    named = [(name, schema.comment, schema.notes) for name, schema in engine.schemas.items()]
    return {
        f"{server}.schemas": hash_of(sorted(named)),
        f"{server}.tables": hash_of(sorted(described)),
        f"{server}.columns": hash_of(sorted(columns)),
    }


def unexpected_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each changed part."""
    for name in before:
        if now[name] != before[name]:
            yield f"{name}: something was added, changed or removed"
