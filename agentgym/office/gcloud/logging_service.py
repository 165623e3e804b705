"""Cloud Logging: entries in the log bucket `_Default`."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from urllib.parse import unquote

from agentgym.office.context import iso
from agentgym.office.gcloud.cloud import PROJECT, check_name, check_one_of, check_range, listing
from agentgym.office.gcloud.log_filter import SEVERITIES, log_path, read_filter
from agentgym.office.server_state import ServerState
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

Payload: TypeAlias = str | dict[str, Any]

# As in Cloud Logging.
_RETENTION = timedelta(days=30)
_LOCATION = f"projects/{PROJECT}/locations/global/buckets/"

LOGGING_SCHEMA = """
CREATE TABLE log_entries (id INTEGER PRIMARY KEY, log TEXT, insert_id TEXT, timestamp TEXT, severity TEXT, payload JSON);
CREATE INDEX log_names ON log_entries(log);
CREATE INDEX log_times ON log_entries(timestamp, id);
"""

MAX_ENTRY_BYTES = 256 * 1024  # as in Cloud Logging
MAX_SHOWN = 200  # maximum message length in lists, as in the published server


class Logging(ServerState):
    """Logs. Strings are stored as textPayload, and objects as jsonPayload."""

    @tool
    def logging_write_log(
        self, log_name: str, message: str | dict[str, Any], severity: str = "INFO"
    ) -> str:
        """Write an entry to a log; a missing log is created.

        Args:
            log_name: The log.
            message: Text, or an object to write a structured entry.
            severity: DEFAULT, DEBUG, INFO, NOTICE, WARNING, ERROR, CRITICAL, ALERT or EMERGENCY.
        """
        record = self._write(log_name, message, severity, self.tick())
        return f"Wrote an entry to log {_short(record['log'])} with severity {record['severity']}"

    @tool
    def logging_read_logs(
        self,
        log_filter: str = "",
        max_entries: int = 50,
        log_bucket: str = "",
        page_token: str = "",
    ) -> str:
        """Read log entries, latest first. In a list, messages are cut at 200 characters; a single entry is shown in full.

        Args:
            log_filter: Filter in the Logging query language, such as LOG_ID("name") AND severity>=ERROR AND textPayload:"a";
                supports AND, OR, NOT, =, !=, <, <=, >, >=, : (contains) and :* for logName, severity, timestamp, insertId,
                receiveTimestamp, textPayload, jsonPayload.x and resource.x. All by default.
            max_entries: Maximum number of entries, up to 1000.
            log_bucket: The log bucket to read from; only _Default exists.
            page_token: Token of the next page, from the previous answer.
        """
        test = read_filter(log_filter)
        check_range("max_entries", max_entries, 1, 1000)
        if page_token:
            raise ToolError(
                "not supported: page_token; raise max_entries, or limit the timestamp in log_filter"
            )
        if log_bucket.removeprefix(_LOCATION).removeprefix("global/") not in ("", "_Default"):
            raise ToolError(f"not found: there is no log bucket {echo(log_bucket)}")
        sql = "SELECT * FROM log_entries WHERE timestamp >= ? ORDER BY timestamp DESC, id DESC"
        rows = self.store.rows(sql, self._oldest())
        matches = [row for row in rows if test(_show(row))]
        if not matches:
            return "No log entries match."
        entries = matches[:max_entries]
        is_list = len(entries) > 1
        parts = [f"Log entries ({len(entries)}):"]
        for row in entries:
            parts.append(_show_lines(row, shorten=is_list))
        if len(matches) > max_entries:
            parts.append(f"... ({len(matches) - max_entries} more)")
        return "\n\n".join(parts)

    @tool
    def logging_list_logs(self) -> str:
        """List the logs that have entries."""
        sql = "SELECT DISTINCT log FROM log_entries WHERE timestamp >= ? ORDER BY log"
        logs = self.store.rows(sql, self._oldest())
        return listing("Logs", [_short(row["log"]) for row in logs], "No logs have entries.")

    @tool
    def logging_delete_log(self, log_name: str) -> str:
        """Delete all entries of a log; the next entry recreates the log.

        Args:
            log_name: The log.
        """
        log = _log(log_name)
        if not self.store.delete("log_entries", log=log):
            raise ToolError(f"not found: the log {echo(log_name)} has no entries")
        self.tick()
        return f"Deleted log {_short(log)}"

    def log(
        self, name: str, payload: Payload, severity: str = "DEFAULT", when: datetime | None = None
    ) -> None:
        """Write an entry to a log; the default time is now."""
        self._write(name, payload, severity, iso(when or self.context.clock.now()))

    def log_entries(self, name: str) -> list[Row]:
        """Return a log's entries in the API's format, oldest first."""
        rows = self.store.find("log_entries", "timestamp, id", log=log_path(name))
        return [_show(row) for row in rows]

    def _write(self, log: str, payload: Payload, severity: str, when: str) -> Row:
        level = check_one_of("severity", severity, tuple(SEVERITIES))
        if len(json.dumps(payload, ensure_ascii=False).encode()) > MAX_ENTRY_BYTES:
            raise ToolError(f"limit exceeded: an entry may have at most {MAX_ENTRY_BYTES} bytes")
        kind = "textPayload" if isinstance(payload, str) else "jsonPayload"
        record: Row = {
            "log": _log(log),
            "timestamp": when,
            "severity": level,
            "payload": {kind: payload},
            "insert_id": self.context.new_id("log entry"),
        }
        self.store.insert("log_entries", **record)
        return record

    def _oldest(self) -> str:
        return iso(self.context.clock.now() - _RETENTION)


def _log(name: str) -> str:
    check_name(
        "log",
        name.removeprefix(f"projects/{PROJECT}/logs/"),
        r"(?!projects/)(?:[A-Za-z0-9/_.-]|%2F){1,512}",
        f"1 to 512 letters, digits and / _ - . (after projects/{PROJECT}/logs/, if that is given)",
    )
    return log_path(name)


def _show(row: Row) -> Row:
    return {
        "logName": row["log"],
        "insertId": row["insert_id"],
        "timestamp": row["timestamp"],
        "receiveTimestamp": row["timestamp"],
        "severity": row["severity"],
        "resource": {"type": "global", "labels": {"project_id": PROJECT}},
        **row["payload"],
    }


def _show_lines(row: Row, *, shorten: bool) -> str:
    [message] = row["payload"].values()
    if not isinstance(message, str):
        message = json.dumps(message, ensure_ascii=False)
    if shorten and len(message) > MAX_SHOWN:
        message = f"{message[:MAX_SHOWN]}..."
    heading = f"[{row['timestamp']}] {row['severity']} - {_short(row['log'])}:"
    return f"{heading}\n{message}".replace("\n", "\n  ")


def _short(log: str) -> str:
    return unquote(log.removeprefix(f"projects/{PROJECT}/logs/"))
