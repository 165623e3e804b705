"""Cloud Logging: entries, and sinks that route them to log buckets and Cloud Storage."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from urllib.parse import unquote

from agentgym.office.context import iso
from agentgym.office.gcloud.cloud import (
    PROJECT,
    REGIONS,
    check_name,
    check_one_of,
    check_range,
    details,
    listing,
    next_page,
    read_token,
)
from agentgym.office.gcloud.log_filter import SEVERITIES, log_path, read_filter
from agentgym.office.gcloud.storage import Storage
from agentgym.office.server import Server
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

Payload: TypeAlias = str | dict[str, Any]

# The `_Required` sink's filter, as in Cloud Logging.
_AUDIT = 'LOG_ID("cloudaudit.googleapis.com/activity") OR LOG_ID("cloudaudit.googleapis.com/system_event")'
_STORAGE = "storage.googleapis.com"
_WRITER = f"serviceAccount:cloud-logs@{PROJECT}.iam.gserviceaccount.com"
_BUCKET = "logging.googleapis.com/projects/{}/locations/{}/buckets/{}"

LOGGING_SCHEMA = f"""
CREATE TABLE log_entries (id INTEGER PRIMARY KEY, log TEXT, insert_id TEXT, timestamp TEXT, received TEXT, severity TEXT,
    payload JSON);
CREATE TABLE log_buckets (id INTEGER PRIMARY KEY, name TEXT, location TEXT, retention_days INTEGER,
    UNIQUE (name, location));
CREATE TABLE log_routes (entry INTEGER REFERENCES log_entries(id) ON DELETE CASCADE, log_bucket INTEGER REFERENCES log_buckets(id),
    UNIQUE (log_bucket, entry));
CREATE INDEX log_route_entries ON log_routes(entry);
CREATE INDEX log_names ON log_entries(log);
CREATE INDEX log_times ON log_entries(timestamp, id);
CREATE TABLE log_sinks (id INTEGER PRIMARY KEY, name TEXT UNIQUE, destination TEXT, filter TEXT);
INSERT INTO log_buckets VALUES (1, '_Required', 'global', 400), (2, '_Default', 'global', 30);
INSERT INTO log_sinks VALUES
    (1, '_Required', '{_BUCKET.format(PROJECT, "global", "_Required")}', '{_AUDIT}'),
    (2, '_Default', '{_BUCKET.format(PROJECT, "global", "_Default")}', 'NOT ({_AUDIT})');
"""

MAX_ENTRY_BYTES = 256 * 1024  # as in Cloud Logging
MAX_SINKS = 200  # as in Cloud Logging
MAX_BUCKETS = 100  # as in Cloud Logging
MAX_SHOWN = 200  # where the published server cuts messages in lists
_MAX_NESTING = 50  # filters recurse
_CHUNK = 2_000  # entries read at a time for a selective filter, to bound memory


class Logging:
    """Logs. Text becomes a textPayload, an object a jsonPayload; entries without a sink are
    dropped.
    """

    def __init__(self, server: Server, storage: Storage) -> None:
        self._server = server
        self._storage = storage

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
        level = check_one_of("severity", severity, tuple(SEVERITIES))
        record = _record(log_name, message, level, iso(self._server.context.clock.tick()))
        with self._server.store.change():
            self._add_entries([record])
        return f"Wrote an entry to log {_short(record['log'])} with severity {level}"

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
                supports AND, OR, NOT, =, !=, <, <=, >, >=, : (contains), =~, !~ and :* for logName, severity, timestamp, insertId,
                receiveTimestamp, textPayload, jsonPayload.x and resource.x. All by default.
            max_entries: Maximum number of entries, up to 1000.
            log_bucket: A log bucket to read from; _Default and _Required by default.
            page_token: Token of the next page, from the previous answer.
        """
        test = read_filter(log_filter)
        check_range("max_entries", max_entries, 1, 1000)
        place = read_token(page_token) if page_token else ("\U0010ffff", 0)
        buckets = [self._server.store.get("log_buckets", k) for k in (1, 2)]
        if log_bucket:
            buckets = [self._log_bucket(log_bucket)]
        where, values = self._kept_in(buckets)
        sql = f"SELECT * FROM log_entries WHERE {where} AND (timestamp, id) < (?, ?) ORDER BY timestamp DESC, id DESC LIMIT ?"
        matches: list[Row] = []
        size = max_entries + 1  # one more reveals whether there is a next page
        while len(matches) <= max_entries:
            rows = self._server.store.rows(sql, *values, *place, size)
            passed = test([_show(row) for row in rows])
            matches += itertools.compress(rows, passed)
            if len(rows) < size:
                break
            # Read larger and larger chunks for a selective filter.
            place, size = (rows[-1]["timestamp"], rows[-1]["id"]), min(4 * size, _CHUNK)
        if not matches:
            return "No log entries match."
        entries = matches[:max_entries]
        most = MAX_SHOWN if len(entries) > 1 else None
        parts = [f"Log entries ({len(entries)}):", *(_show_lines(row, most) for row in entries)]
        if len(matches) > max_entries:
            parts.append(next_page(entries[-1]["timestamp"], entries[-1]["id"]))
        return "\n\n".join(parts)

    @tool
    def logging_list_logs(self) -> str:
        """List the logs that have entries."""
        where, values = self._kept_in(self._server.store.find("log_buckets"))
        logs = self._server.store.rows(
            f"SELECT DISTINCT log FROM log_entries WHERE {where} ORDER BY log", *values
        )
        return listing("Logs", [_short(row["log"]) for row in logs], "No logs have entries.")

    @tool
    def logging_delete_log(self, log_name: str) -> str:
        """Delete all entries of a log in the log bucket _Default; the next entry recreates the log.

        Args:
            log_name: The log.
        """
        log = _log(log_name)
        sql = """SELECT entry FROM log_routes
            WHERE entry IN (SELECT id FROM log_entries WHERE log = ?) AND log_bucket = 2"""
        entries = [entry for (entry,) in self._server.store.tuples(sql, log)]
        if not entries:
            raise ToolError(f"not found: the log {echo(log_name)} has no entries in _Default")
        with self._server.store.change():
            for entry in entries:
                self._server.store.delete("log_routes", entry=entry, log_bucket=2)
                if not self._server.store.value("SELECT 1 FROM log_routes WHERE entry = ?", entry):
                    self._server.store.delete("log_entries", id=entry)
        self._server.context.clock.tick()
        return f"Deleted log {_short(log)}"

    @tool
    def logging_create_log_bucket(
        self, bucket_id: str, location: str = "global", retention_days: int = 30
    ) -> str:
        """Create a log bucket, to which sinks can route entries.

        Args:
            bucket_id: Its name: letters, digits, _, - and dots.
            location: global or a region.
            retention_days: Days to keep entries, 1 to 3650.
        """
        check_name(
            "log bucket",
            bucket_id,
            r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}",
            "1 to 100 letters, digits, _, - and dots",
        )
        place = check_one_of("location", location, ("global", *REGIONS))
        check_range("retention_days", retention_days, 1, 3650)
        if self._server.store.find("log_buckets", name=bucket_id, location=place):
            raise ToolError(f"conflict: log bucket {echo(bucket_id)} already exists in {place}")
        if self._server.store.value("SELECT count(*) FROM log_buckets") >= MAX_BUCKETS:
            raise ToolError(f"limit exceeded: a project has at most {MAX_BUCKETS} log buckets")
        self._server.context.clock.tick()
        self._server.store.insert(
            "log_buckets", name=bucket_id, location=place, retention_days=retention_days
        )
        return f"Created log bucket {bucket_id} with a retention of {retention_days} days"

    @tool
    def logging_list_log_buckets(self) -> str:
        """List the log buckets with their retention."""
        buckets = []
        for row in self._server.store.find("log_buckets", order="location, name"):
            text = details(
                row["name"],
                ("  Location", row["location"]),
                ("  Retention (days)", str(row["retention_days"])),
                ("  State", "ACTIVE"),
                ("  Locked", str(row["name"] == "_Required")),
            )
            buckets.append(text)
        return listing("Log buckets", buckets)

    @tool
    def logging_create_log_sink(
        self, sink_name: str, destination: str, log_filter: str = ""
    ) -> str:
        """Create a sink, which routes entries written from now on.

        Args:
            sink_name: Its name.
            destination: logging.googleapis.com/projects/…/locations/…/buckets/… or storage.googleapis.com/….
            log_filter: Filter of the entries to route, in the Logging query language; all by default.
        """
        check_name(
            "sink",
            sink_name,
            r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}",
            "1 to 100 letters, digits, _, - and dots",
        )
        read_filter(log_filter)
        target = self._sink_destination(destination)
        if self._server.store.find("log_sinks", name=sink_name):
            raise ToolError(f"conflict: sink {echo(sink_name)} already exists")
        if self._server.store.value("SELECT count(*) FROM log_sinks") >= MAX_SINKS:
            raise ToolError(f"limit exceeded: a project has at most {MAX_SINKS} sinks")
        self._server.context.clock.tick()
        self._server.store.insert(
            "log_sinks", name=sink_name, destination=target, filter=log_filter
        )
        fields = [("Destination", target), ("Writer Identity", _WRITER)]
        if log_filter:
            fields.insert(1, ("Filter", log_filter))
        text = details(f"Created log sink {sink_name}", *fields)
        return f"{text}\n\nThe writer identity already has access to the destination."

    @tool
    def logging_list_log_sinks(self) -> str:
        """List the sinks with destination and filter."""
        sinks = []
        for row in self._server.store.find("log_sinks", order="name"):
            text = details(
                row["name"],
                ("  Destination", row["destination"]),
                ("  Filter", row["filter"]),
                ("  Disabled", "False"),
            )
            sinks.append(text)
        return listing("Log sinks", sinks)

    @tool
    def logging_delete_log_sink(self, sink_name: str) -> str:
        """Delete a sink; entries that it has routed stay.

        Args:
            sink_name: The sink.
        """
        if sink_name in ("_Required", "_Default"):
            raise ToolError(f"permission denied: the sink {sink_name} cannot be deleted")
        if not self._server.store.delete("log_sinks", name=sink_name):
            raise ToolError(f"not found: there is no sink {echo(sink_name)}")
        self._server.context.clock.tick()
        return f"Deleted log sink {sink_name}"

    # For tasks.

    def log(
        self, name: str, payload: Payload, severity: str = "DEFAULT", when: datetime | None = None
    ) -> None:
        """Write an entry to a log; the time defaults to now."""
        self.log_all(name, [(when or self._server.context.clock.now(), severity, payload)])

    def log_all(self, name: str, entries: Iterable[tuple[datetime, str, Payload]]) -> None:
        """Write (time, severity, payload) entries, routed by the current sinks."""
        records = []
        for when, severity, payload in entries:
            level = check_one_of("severity", severity, tuple(SEVERITIES))
            records.append(_record(name, payload, level, iso(when)))
        with self._server.store.change():
            self._add_entries(records)

    def log_entries(self, name: str, bucket: str = "_Default") -> list[Row]:
        """Return a log's entries in API form, oldest first."""
        sql = (
            "SELECT * FROM log_entries WHERE log = ? AND id IN "
            "(SELECT entry FROM log_routes WHERE log_bucket = ?) ORDER BY timestamp, id"
        )
        return [
            _show(row)
            for row in self._server.store.rows(sql, log_path(name), self._log_bucket(bucket)["id"])
        ]

    # Shared by the tools.

    def _add_entries(self, records: Sequence[Row]) -> None:
        start = 1 + (self._server.store.value("SELECT max(id) FROM log_entries") or 0)
        for record in records:
            record["insert_id"] = self._server.context.new_id("log entry")
        self._server.store.insert_all(
            "log_entries", [{"id": start + k, **record} for k, record in enumerate(records)]
        )
        entries = [_show(record) for record in records]
        routes: dict[tuple[int, int], None] = {}
        for sink in self._server.store.find("log_sinks"):
            places = [k for k, passed in enumerate(read_filter(sink["filter"])(entries)) if passed]
            service, _, place = sink["destination"].partition("/")
            if service == _STORAGE:
                self._write_lines(place, [entries[k] for k in places])
            else:
                bucket = self._log_bucket(place)["id"]
                routes |= dict.fromkeys((start + k, bucket) for k in places)
        self._server.store.insert_all(
            "log_routes", [{"entry": entry, "log_bucket": into} for entry, into in routes]
        )
        routed = {entry for entry, _ in routes}
        for entry in range(start, start + len(records)):
            if entry not in routed:  # no log bucket took it
                self._server.store.delete("log_entries", id=entry)

    def _write_lines(self, bucket: str, entries: Sequence[Row]) -> None:
        """Append entries, one per line, to hourly objects, dropping those above the quota."""
        lines: dict[str, str] = {}
        for entry in entries:
            day, hour = entry["timestamp"][:10].replace("-", "/"), entry["timestamp"][11:13]
            name = f"{entry['logName'].rpartition('/')[2]}/{day}/{hour}:00:00_{hour}:59:59_S0.json"
            lines[name] = f"{lines.get(name, '')}{json.dumps(entry, ensure_ascii=False)}\n"
        for name, text in lines.items():
            data = text.encode()
            if name in self._storage.objects(bucket, name):
                data = self._storage.read_object(bucket, name) + data
            if self._storage.room() >= len(data):
                self._storage.put_object(bucket, name, data)

    def _kept_in(self, buckets: Sequence[Row]) -> tuple[str, list[Any]]:
        now = self._server.context.clock.now()
        values: list[Any] = []
        for bucket in buckets:
            values += (iso(now - timedelta(days=bucket["retention_days"])), bucket["id"])
        one = "(timestamp >= ? AND EXISTS (SELECT 1 FROM log_routes WHERE log_bucket = ? AND entry = log_entries.id))"
        return f"({' OR '.join([one] * len(buckets))})", values

    def _log_bucket(self, name: str) -> Row:
        """Find a log bucket by name (if global), location/name or full name."""
        short = name.removeprefix(f"projects/{PROJECT}/").removeprefix("locations/")
        location, slash, bucket = short.replace("/buckets/", "/").rpartition("/")
        rows = self._server.store.find(
            "log_buckets", name=bucket, location=location if slash else "global"
        )
        if not rows:
            raise ToolError(f"not found: there is no log bucket {echo(name)}")
        return rows[0]

    def _sink_destination(self, text: str) -> str:
        service, _, place = text.replace("storage://", f"{_STORAGE}/").partition("/")
        if service == _STORAGE:
            if place not in self._storage.buckets():
                raise ToolError(f"not found: there is no bucket {echo(place)}")
            return f"{_STORAGE}/{place}"
        if service == "logging.googleapis.com":
            bucket = self._log_bucket(place)
            return _BUCKET.format(PROJECT, bucket["location"], bucket["name"])
        raise ToolError(
            f"invalid argument: destination must start with logging.googleapis.com/ or {_STORAGE}/, got {echo(text)}"
        )


def _log(name: str) -> str:
    check_name(
        "log",
        name.removeprefix(f"projects/{PROJECT}/logs/"),
        r"(?!projects/)(?:[A-Za-z0-9/_.-]|%2F){1,512}",
        f"1 to 512 letters, digits and / _ - . (after projects/{PROJECT}/logs/, if that is given)",
    )
    return log_path(name)


def _record(log: str, payload: Payload, severity: str, when: str) -> Row:
    """Return an entry's record without its id."""
    if (
        _nesting(payload) > _MAX_NESTING
        or len(json.dumps(payload, ensure_ascii=False).encode()) > MAX_ENTRY_BYTES
    ):
        raise ToolError(
            f"limit exceeded: an entry has at most {MAX_ENTRY_BYTES} bytes and {_MAX_NESTING} levels"
        )
    return {
        "log": _log(log),
        "timestamp": when,
        "received": when,
        "severity": severity,
        "payload": {"textPayload" if isinstance(payload, str) else "jsonPayload": payload},
    }


def _nesting(value: Any) -> int:
    levels, below = 0, [value]
    while below:
        levels += 1
        items: list[Any] = []
        for each in below:
            if isinstance(each, (dict, list)):
                items += each.values() if isinstance(each, dict) else each
        below = items
    return levels


def _show(row: Row) -> Row:
    return {
        "logName": row["log"], "insertId": row["insert_id"], "timestamp": row["timestamp"], "receiveTimestamp": row["received"],
        "severity": row["severity"], "resource": {"type": "global", "labels": {"project_id": PROJECT}}, **row["payload"],
    }  # fmt: skip


def _show_lines(row: Row, most: int | None) -> str:
    [payload] = row["payload"].values()
    message = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    if most is not None and len(message) > most:
        message = f"{message[:most]}..."
    heading = f"[{row['timestamp']}] {row['severity']} - {_short(row['log'])}:"
    return "\n".join([heading, *(f"  {line}" for line in message.split("\n"))])


def _short(log: str) -> str:
    """Return a log's name as callers write it."""
    return unquote(log.removeprefix(f"projects/{PROJECT}/logs/"))
