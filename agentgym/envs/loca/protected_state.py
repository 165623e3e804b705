"""What no task asks for: that anything else in the services of an office stays as it was."""

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
"""Tables that reading and sending change; what else may not be changed in them is told apart
below.
"""

_MOMENTS = {"spreadsheets": ("modified",), "users": ("last_login",)}
"""Columns that tell when something was done, not what."""


def untouched(office: Office, mutable_tables: Collection[str]) -> dict[str, str]:
    """A hash of each part of the services that a task leaves alone, by its name.

    Args:
        office: The office.
        mutable_tables: The tables that the work changes, as `server.table`; the task itself looks at
            what is in them.
    """
    free = _READING | set(mutable_tables)
    found: dict[str, str] = {}
    for server in office.toolsets():
        store = server.store
        found |= {
            f"{server.name}.{table}": store.fingerprint(table, without=_MOMENTS.get(table, ()))
            for table in store.tables()
            if f"{server.name}.{table}" not in free
        }
        found |= _more(server)
    return found


def _more(server: Server) -> Mapping[str, str]:
    """What the tables of a server do not tell, or tell among what may change."""
    if isinstance(server, Email):
        # A mail that was really sent is the task's to judge. Any other has to be where it was, read
        # or not; drafts are left-overs.
        columns = "mails.id, user, folder, message, is_important"
        sql = f"SELECT {columns} FROM mails JOIN messages ON messages.id = message WHERE origin <> 'sent'"
        return {"email.mails": _hash(server.store.rows(f"{sql} ORDER BY mails.id"))}
    if isinstance(server, GoogleCloud):
        return {
            "google_cloud.tables": _hash(
                sorted(map(str, (*server.engine.schemas, *server.engine.tables)))
            )
        }
    return {}


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def changes(
    office: Office, mutable_tables: Collection[str], before: Mapping[str, str]
) -> Iterator[str]:
    """The parts that are no longer as they were, each in a sentence."""
    now = untouched(office, mutable_tables)
    yield from (
        f"{name}: something was added, changed or removed"
        for name in before
        if now[name] != before[name]
    )
