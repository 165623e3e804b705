"""Compute Engine: instances whose states change by operations, which take their time on the
clock of the episode.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from agentgym.envs.loca.servers.context import iso
from agentgym.envs.loca.servers.gcloud.cloud import (
    PROJECT,
    REGIONS,
    ZONES,
    check_name,
    check_one_of,
    check_range,
)
from agentgym.envs.loca.servers.server import Server
from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo, tool

COMPUTE_SCHEMA = """
CREATE TABLE instances (id INTEGER PRIMARY KEY, name TEXT, zone TEXT, machine_type TEXT, created TEXT, started TEXT, stopped TEXT,
    nat_ip TEXT, status TEXT, meanwhile TEXT, until TEXT);
CREATE TABLE operations (id INTEGER PRIMARY KEY, name TEXT UNIQUE, zone TEXT, kind TEXT, instance INTEGER REFERENCES instances(id),
    begun TEXT, until TEXT);
CREATE INDEX instance_names ON instances(zone, name);
"""
# An instance has its status from the moment `until` on, and the one of `meanwhile` before; so
# nothing has to happen at that moment.

MAX_INSTANCES = 100
"""Instances of a project; it bounds what a policy can make."""

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
    def compute_list_instances(self, zone: str = "") -> Row:
        """List the instances of a zone, or of all zones."""
        if zone:
            _region(zone)
        rows = self._server.store.find(
            "instances", order="zone, name, id", **({"zone": zone} if zone else {})
        )
        return {
            "kind": "compute#instanceList",
            "items": [self._show_instance(row) for row in rows if self._status_of(row) != _GONE],
        }

    @tool
    def compute_create_instance(
        self, instance_name: str, zone: str, machine_type: str = "e2-micro"
    ) -> Row:
        """Create an instance; it runs when the operation that this gives is done.

        Args:
            instance_name: At most 63 characters: a-z, 0-9 and -, a letter first.
            zone: Where, such as us-central1-a.
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
    def compute_delete_instance(self, instance_name: str, zone: str) -> Row:
        """Delete an instance; it is gone when the operation that this gives is done."""
        return self._operate(self._ready_instance(instance_name, zone), "delete", "STOPPING", _GONE)

    @tool
    def compute_start_instance(self, instance_name: str, zone: str) -> Row:
        """Start an instance that is stopped; it gets another external address."""
        return self._operate(
            self._ready_instance(instance_name, zone), "start", "STAGING", "RUNNING"
        )

    @tool
    def compute_stop_instance(self, instance_name: str, zone: str) -> Row:
        """Stop a running instance."""
        return self._operate(
            self._ready_instance(instance_name, zone), "stop", "STOPPING", "TERMINATED"
        )

    @tool
    def compute_restart_instance(self, instance_name: str, zone: str) -> Row:
        """Reset a running instance, as by its button; it keeps its addresses."""
        row = self._ready_instance(instance_name, zone)
        if row["status"] != "RUNNING":
            raise ToolError(
                f"conflict: instance {echo(instance_name)} is {row['status']}, only a running one can be restarted"
            )
        return self._operate(row, "reset", "RUNNING", "RUNNING")

    @tool
    def compute_get_instance(self, instance_name: str, zone: str) -> Row:
        """Get state, machine type and addresses of an instance. While an operation on it is under way, looking takes a second."""
        row = self._instance(instance_name, zone)
        if row["until"] > self._present():
            self._server.context.clock.tick()
        return self._show_instance(row)

    @tool
    def compute_list_zones(self) -> Row:
        """List all zones."""
        return {
            "kind": "compute#zoneList",
            "items": [{"name": z, "region": ZONES[z], "status": "UP"} for z in sorted(ZONES)],
        }

    @tool
    def compute_wait_for_operation(
        self, operation_name: str, zone: str, timeout_minutes: int = 5
    ) -> Row:
        """Wait until an operation is done, or the time is over; this takes as long as it does.

        Args:
            operation_name: The name that the call gave which began the operation.
            zone: Its zone.
            timeout_minutes: The most minutes to wait, at most 60.
        """
        check_range("timeout_minutes", timeout_minutes, 1, 60)
        operations = self._server.store.find("operations", name=operation_name, zone=zone)
        if not operations:
            raise ToolError(
                f"not found: there is no operation {echo(operation_name)} in zone {echo(zone)}"
            )
        for _ in range(60 * timeout_minutes):
            if operations[0]["until"] <= self._present():
                break
            self._server.context.clock.tick()
        return self._show_operation(operations[0])

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
        rows = [
            (row["zone"], row["name"], self._status_of(row))
            for row in self._server.store.find("instances", order="zone, name, id")
        ]
        return {(zone, name): status for zone, name, status in rows if status != _GONE}

    # Shared by the tools.

    def _present(self) -> str:
        return iso(self._server.context.clock.now())

    def _status_of(self, row: Row) -> str:
        return str(row["meanwhile"] if row["until"] > self._present() else row["status"])

    def _check_new(self, name: str, zone: str, machine_type: str) -> None:
        rule = "at most 63 of a-z, 0-9 and -, a letter first and no - last"
        check_name("instance", name, r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", rule)
        _region(zone)
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
        store, at = self._server.store, iso(when)
        record = {
            "name": name, "zone": zone, "machine_type": machine_type, "created": at, "started": at, "nat_ip": self._address(),
            "status": "RUNNING", "meanwhile": "RUNNING", "until": "",
        }  # fmt: skip
        return store.get("instances", store.insert("instances", **record))

    def _instance(self, name: str, zone: str) -> Row:
        _region(zone)
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
    ) -> Row:
        """Begin an operation on an instance.

        Starting what runs and stopping what is stopped does nothing, and is no error.
        """
        when = when or self._server.context.clock.tick()
        idle = kind in ("start", "stop") and row["status"] == status
        until = iso(when + timedelta(seconds=1 if idle else SECONDS[kind]))
        changes: Row = {
            "start": {"started": iso(when), "nat_ip": self._address()},
            "stop": {"stopped": until},
        }.get(kind, {})
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
            record = {
                "name": name,
                "zone": row["zone"],
                "kind": kind,
                "instance": row["id"],
                "begun": iso(when),
                "until": until,
            }
            operation = self._server.store.insert("operations", **record)
        return self._show_operation(self._server.store.get("operations", operation))

    def _address(self) -> str:
        digits = self._server.context.new_id("address", 6)
        return ".".join(["34", *(str(int(digits[k : k + 2], 16)) for k in (0, 2, 4))])

    def _show_instance(self, row: Row) -> Row:
        status = self._status_of(row)
        place = 128 + 2 * list(REGIONS).index(ZONES[row["zone"]])
        address = f"10.{place}.{(row['id'] + 1) // 256}.{(row['id'] + 1) % 256}"
        access = [
            {
                "type": "ONE_TO_ONE_NAT",
                "name": "External NAT",
                **({"natIP": row["nat_ip"]} if status == "RUNNING" else {}),
            }
        ]
        resource = {
            "kind": "compute#instance", "id": str(row["id"]), "name": row["name"], "zone": row["zone"], "status": status,
            "machineType": row["machine_type"], "creationTimestamp": row["created"], "lastStartTimestamp": row["started"],
            "networkInterfaces": [{"name": "nic0", "network": "default", "networkIP": address, "accessConfigs": access}],
        }  # fmt: skip
        return resource | ({"lastStopTimestamp": row["stopped"]} if row["stopped"] else {})

    def _show_operation(self, row: Row) -> Row:
        is_done = row["until"] <= self._present()
        instance = self._server.store.get("instances", row["instance"])["name"]
        resource = {
            "kind": "compute#operation", "id": str(row["id"]), "name": row["name"], "zone": row["zone"],
            "operationType": row["kind"], "status": "DONE" if is_done else "RUNNING", "progress": 100 if is_done else 0,
            "insertTime": row["begun"], "startTime": row["begun"],
            "targetLink": f"projects/{PROJECT}/zones/{row['zone']}/instances/{instance}",
        }  # fmt: skip
        return resource | ({"endTime": row["until"]} if is_done else {})


def _region(zone: str) -> str:
    """Return the region of a zone."""
    if zone not in ZONES:
        raise ToolError(
            f"invalid argument: there is no zone {echo(zone)}; compute_list_zones lists them"
        )
    return ZONES[zone]
