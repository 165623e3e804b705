"""Fingerprints of the state that an agent must not change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from agentgym.envs.loca.checks import hash_of
from agentgym.envs.loca.draws import load_texts
from agentgym.office.email.server import Email
from agentgym.office.office import Office
from agentgym.office.warehouse.engine import SQLEngine

# Harmless differences that tasks mention in their rules.
DRAFTS, INSIGHTS = "email.drafts.*", "snowflake.insights*"

# `server.part.column` means a changed record, `server.part+` a new record and `server.part-` a
# removed record. `output:` matches only required files; `own:` matches only what the agent created.
HARMLESS: Mapping[str, str] = load_texts("harmless")

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
        engine = getattr(server, "engine", None)
        if isinstance(engine, SQLEngine):
            hashes |= _engine_hashes(server.name, engine, mutable_tables)
        if isinstance(server, Email):
            hashes["email.mails"] = _mail_hash(server, DRAFTS in harmless)
    return hashes


def _fits(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _mail_hash(server: Email, drafts: bool) -> str:
    ignored = ["bounce", "sent"]
    if drafts:
        ignored.append("draft")
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
