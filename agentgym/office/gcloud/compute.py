"""Compute Engine: instances whose states change by operations, which take their time on the
clock of the episode.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from agentgym.office.context import iso
from agentgym.office.gcloud.cloud import (
    REGIONS,
    ZONES,
    check_name,
    check_one_of,
    check_range,
    details,
    listing,
)
from agentgym.office.server import Server
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

COMPUTE_SCHEMA = """
CREATE TABLE instances (id INTEGER PRIMARY KEY, name TEXT, zone TEXT, machine_type TEXT, created TEXT, nat_ip TEXT, status TEXT,
    meanwhile TEXT, until TEXT);
CREATE TABLE operations (id INTEGER PRIMARY KEY, name TEXT UNIQUE, zone TEXT, until TEXT);
CREATE INDEX instance_names ON instances(zone, name);
"""
# An instance has its status from the moment `until` on, and the one of `meanwhile` before; so
# nothing has to happen at that moment.

MAX_INSTANCES = 100
"""Instances of a project; it bounds what a policy can make."""

_VERBS = {
    "insert": "create",
    "delete": "delete",
    "start": "start",
    "stop": "stop",
    "reset": "restart",
}
"""The word for each operation."""

SECONDS = {"insert": 12, "delete": 15, "start": 8, "stop": 10, "reset": 3}
"""Duration of each operation: enough that a policy has to wait. One that finds nothing to do takes
a second.
"""

_GONE = "DELETED"
"""The status of an instance that is no longer shown."""
_SHARED = r"f1-micro|g1-small|e2-(?:micro|small|medium)"
"""Machine types with a shared core."""
_SIZED = (
    r"(?:c2|c3|c4|e2|n1|n2|n2d|n4|t2d)-(?:standard|highmem|highcpu)-(?:1|2|4|8|16|32|48|64|80|96)"
)
"""Machine types by family, memory for each core, and cores."""


class Compute:
    """Virtual machines of one project; every zone has the same machine types.

    Args:
        server: The server that this is a part of.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    @tool
    def compute_list_instances(self, zone: str = "") -> str:
        """List the instances of a zone, or of all zones.

        Args:
            zone: The zone; all by default.
        """
        if zone:
            _check_zone(zone)
        rows = self._server.store.find(
            "instances", order="zone, name, id", **({"zone": zone} if zone else {})
        )
        lines = [
            f"{row['name']}: {status} in {row['zone']}"
            for row in rows
            if (status := self._status_of(row)) != _GONE
        ]
        return listing("Instances", lines)

    @tool
    def compute_create_instance(
        self, instance_name: str, zone: str, machine_type: str = "e2-micro"
    ) -> str:
        """Create an instance; it runs when the operation is done.

        Args:
            instance_name: At most 63 characters: a-z, 0-9 and -, a letter first.
            zone: Zone, such as us-central1-a.
            machine_type: Such as e2-micro or n2-standard-4.
        """
        self._check_new(instance_name, zone, machine_type)
        if (
            self._server.store.value(
                "SELECT count(*) FROM instances WHERE status <> ? OR until > ?",
                _GONE,
                self._present(),
            )
            >= MAX_INSTANCES
        ):
            raise ToolError(f"limit exceeded: a project has at most {MAX_INSTANCES} instances")
        when = self._server.context.clock.tick()
        with self._server.store.change():
            row = self._new_instance(instance_name, zone, machine_type, when)
            return self._operate(row, "insert", "STAGING", "RUNNING", when)

    @tool
    def compute_delete_instance(self, instance_name: str, zone: str) -> str:
        """Delete an instance; it is gone when the operation is done.

        Args:
            instance_name: The instance.
            zone: Its zone.
        """
        return self._operate(self._ready_instance(instance_name, zone), "delete", "STOPPING", _GONE)

    @tool
    def compute_start_instance(self, instance_name: str, zone: str) -> str:
        """Start an instance that is stopped; it gets another external address.

        Args:
            instance_name: The instance.
            zone: Its zone.
        """
        return self._operate(
            self._ready_instance(instance_name, zone), "start", "STAGING", "RUNNING"
        )

    @tool
    def compute_stop_instance(self, instance_name: str, zone: str) -> str:
        """Stop a running instance.

        Args:
            instance_name: The instance.
            zone: Its zone.
        """
        return self._operate(
            self._ready_instance(instance_name, zone), "stop", "STOPPING", "TERMINATED"
        )

    @tool
    def compute_restart_instance(self, instance_name: str, zone: str) -> str:
        """Reset a running instance; it keeps its addresses.

        Args:
            instance_name: The instance.
            zone: Its zone.
        """
        row = self._ready_instance(instance_name, zone)
        if row["status"] != "RUNNING":
            raise ToolError(
                f"conflict: instance {echo(instance_name)} is {row['status']}, only a running one can be restarted"
            )
        return self._operate(row, "reset", "RUNNING", "RUNNING")

    @tool
    def compute_get_instance(self, instance_name: str, zone: str) -> str:
        """Get state, machine type and addresses of an instance. While an operation on it is under way, looking takes a second.

        Args:
            instance_name: The instance.
            zone: Its zone.
        """
        row = self._instance(instance_name, zone)
        if row["until"] > self._present():
            self._server.context.clock.tick()
        status = self._status_of(row)
        place = 128 + 2 * list(REGIONS).index(ZONES[row["zone"]])
        return details(
            f"Instance {row['name']}",
            ("Status", status),
            ("Zone", row["zone"]),
            ("Machine Type", row["machine_type"]),
            ("Created", row["created"]),
            ("Internal IP", f"10.{place}.{(row['id'] + 1) // 256}.{(row['id'] + 1) % 256}"),
            *([("External IP", row["nat_ip"])] if status == "RUNNING" else []),
            ("Boot Disk", row["name"]),
            ("Network Tags", ""),
            ("Labels", ""),
        )

    @tool
    def compute_list_zones(self) -> str:
        """List all zones."""
        return listing("Zones", sorted(ZONES))

    @tool
    def compute_wait_for_operation(
        self, operation_name: str, zone: str, timeout_minutes: int = 5
    ) -> str:
        """Wait until an operation is done; this takes as long as it does.

        Args:
            operation_name: Its name, from the answer of the call that began it.
            zone: Its zone.
            timeout_minutes: Maximum minutes to wait, up to 60.
        """
        check_range("timeout_minutes", timeout_minutes, 1, 60)
        operations = self._server.store.find("operations", name=operation_name, zone=zone)
        if not operations:
            raise ToolError(
                f"not found: there is no operation {echo(operation_name)} in zone {echo(zone)}"
            )
        while operations[0]["until"] > self._present():  # less than the shortest timeout
            self._server.context.clock.tick()
        return f"Operation {operation_name} completed"

    # For authors of tasks.

    def add_instance(
        self,
        name: str,
        zone: str,
        machine_type: str = "e2-micro",
        *,
        status: str = "RUNNING",
        created: datetime | None = None,
    ) -> None:
        """Make an instance that is there from the beginning: RUNNING or TERMINATED."""
        self._check_new(name, zone, machine_type)
        row = self._new_instance(
            name, zone, machine_type, created or self._server.context.clock.now()
        )
        state = check_one_of("status", status, ("RUNNING", "TERMINATED"))
        self._server.store.update("instances", row["id"], status=state, meanwhile=state)

    def instances(self) -> dict[tuple[str, str], str]:
        """Return the status of each instance, by (zone, name)."""
        return {
            (row["zone"], row["name"]): status
            for row in self._server.store.find("instances", order="zone, name, id")
            if (status := self._status_of(row)) != _GONE
        }

    # Shared by the tools.

    def _present(self) -> str:
        return iso(self._server.context.clock.now())

    def _status_of(self, row: Row) -> str:
        return str(row["meanwhile"] if row["until"] > self._present() else row["status"])

    def _check_new(self, name: str, zone: str, machine_type: str) -> None:
        check_name(
            "instance",
            name,
            r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?",
            "at most 63 of a-z, 0-9 and -, a letter first and no - last",
        )
        _check_zone(zone)
        check_name(
            "machine type",
            machine_type,
            f"{_SHARED}|{_SIZED}",
            "one is e2-micro, another n2-standard-4",
        )
        if any(
            self._status_of(row) != _GONE
            for row in self._server.store.find("instances", name=name, zone=zone)
        ):
            raise ToolError(f"conflict: there is an instance {echo(name)} in {zone} already")

    def _new_instance(self, name: str, zone: str, machine_type: str, when: datetime) -> Row:
        store = self._server.store
        new_id = store.insert(
            "instances", name=name, zone=zone, machine_type=machine_type, created=iso(when), nat_ip=self._address(),
            status="RUNNING", meanwhile="RUNNING", until="",
        )  # fmt: skip
        return store.get("instances", new_id)

    def _instance(self, name: str, zone: str) -> Row:
        _check_zone(zone)
        for row in self._server.store.find("instances", name=name, zone=zone):
            if self._status_of(row) != _GONE:
                return row
        raise ToolError(f"not found: there is no instance {echo(name)} in zone {zone}")

    def _ready_instance(self, name: str, zone: str) -> Row:
        """Return an instance on which no operation is under way."""
        row = self._instance(name, zone)
        if row["until"] > self._present():
            raise ToolError(
                f"conflict: an operation on instance {echo(name)} is under way until {row['until']}; wait for it"
            )
        return row

    def _operate(
        self, row: Row, kind: str, meanwhile: str, status: str, when: datetime | None = None
    ) -> str:
        """Begin an operation on an instance.

        Starting what runs and stopping what is stopped does nothing, and is no error.
        """
        when = when or self._server.context.clock.tick()
        idle = kind in ("start", "stop") and row["status"] == status
        until = iso(when + timedelta(seconds=1 if idle else SECONDS[kind]))
        changes: Row = {"nat_ip": self._address()} if kind == "start" else {}
        with self._server.store.change():
            if not idle:
                self._server.store.update(
                    "instances",
                    row["id"],
                    status=status,
                    meanwhile=meanwhile,
                    until=until,
                    **changes,
                )
            name = f"operation-{self._server.context.new_id('operation')}"
            self._server.store.insert("operations", name=name, zone=row["zone"], until=until)
        return f"Started to {_VERBS[kind]} instance {row['name']} in zone {row['zone']} (operation {name})"

    def _address(self) -> str:
        digits = self._server.context.new_id("address", 6)
        return ".".join(["34", *(str(int(digits[k : k + 2], 16)) for k in (0, 2, 4))])


def _check_zone(zone: str) -> None:
    if zone not in ZONES:
        raise ToolError(
            f"invalid argument: there is no zone {echo(zone)}; compute_list_zones lists them"
        )
