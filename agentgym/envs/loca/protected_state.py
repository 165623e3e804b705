"""Fingerprints of the parts of an office that a task must leave alone."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping

from agentgym.envs.loca.servers.email.server import Email
from agentgym.envs.loca.servers.gcloud.google_cloud import GoogleCloud
from agentgym.envs.loca.servers.office import Office
from agentgym.envs.loca.servers.server import Server

_READING = {
    "email.mails", "email.messages", "email.attachments", "canvas.participants", "google_cloud.bigquery_jobs",
    "google_cloud.operations",
}  # fmt: skip
"""Tables that reading and sending change; `_more` covers the rest of their content."""

_MOMENTS = {"spreadsheets": ("modified",), "users": ("last_login",)}
"""Columns with the time of an action, which reading changes too."""


def fingerprint_protected(office: Office, mutable_tables: Collection[str]) -> dict[str, str]:
    """Hash each part of the services that a task leaves alone, by its name.

    Args:
        office: The office.
        mutable_tables: The tables that the work changes, as `server.table`; the task itself checks
            their records.
    """
    mutable = _READING | set(mutable_tables)
    hashes: dict[str, str] = {}
    for server in office.toolsets():
        store = server.store
        hashes |= {
            f"{server.name}.{table}": store.fingerprint(table, without=_MOMENTS.get(table, ()))
            for table in store.tables()
            if f"{server.name}.{table}" not in mutable
        }
        hashes |= _special_hashes(server)
    return hashes


def _special_hashes(server: Server) -> Mapping[str, str]:
    """Hash the state of a server outside its tables, or in tables that reading changes."""
    if isinstance(server, Email):
        # The task itself checks the mails that were sent, of which bounces follow. Any other must
        # be where it was, read or not.
        columns = "mails.id, user, folder, message, is_important"
        sql = f"""SELECT {columns} FROM mails JOIN messages ON messages.id = message
            WHERE origin NOT IN ('sent', 'bounce') ORDER BY mails.id"""
        return {"email.mails": _hash(server.store.rows(sql))}
    if isinstance(server, GoogleCloud):
        return {
            "google_cloud.tables": _hash(
                sorted(map(str, (*server.engine.schemas, *server.engine.tables)))
            )
        }
    return {}


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def unexpected_changes(
    office: Office, mutable_tables: Collection[str], before: Mapping[str, str]
) -> Iterator[str]:
    """Yield a sentence for each part that has changed."""
    now = fingerprint_protected(office, mutable_tables)
    yield from (
        f"{name}: something was added, changed or removed"
        for name in before
        if now[name] != before[name]
    )
