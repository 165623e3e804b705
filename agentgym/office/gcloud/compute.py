"""Compute Engine, whose API is disabled in the project."""

from __future__ import annotations

from agentgym.office.disabled import disabled_tool

_COMPUTE = "the Compute Engine API is"


class Compute:
    """Signatures of the virtual-machine tools."""

    @disabled_tool(_COMPUTE)
    def compute_list_instances(self, zone: str = "") -> None:
        """List the instances of a zone, or of all zones.

        Args:
            zone: The zone; all by default.
        """

    @disabled_tool(_COMPUTE)
    def compute_create_instance(
        self, instance_name: str, zone: str, machine_type: str = "e2-micro"
    ) -> None:
        """Create an instance; it runs when the operation is done.

        Args:
            instance_name: At most 63 characters: a-z, 0-9 and -, a letter first.
            zone: Zone, such as us-central1-a.
            machine_type: Such as e2-micro or n2-standard-4.
        """

    @disabled_tool(_COMPUTE)
    def compute_delete_instance(self, instance_name: str, zone: str) -> None:
        """Delete an instance; it is gone when the operation is done.

        Args:
            instance_name: The instance.
            zone: Its zone.
        """

    @disabled_tool(_COMPUTE)
    def compute_start_instance(self, instance_name: str, zone: str) -> None:
        """Start an instance that is stopped; it gets another external address.

        Args:
            instance_name: The instance.
            zone: Its zone.
        """

    @disabled_tool(_COMPUTE)
    def compute_stop_instance(self, instance_name: str, zone: str) -> None:
        """Stop a running instance.

        Args:
            instance_name: The instance.
            zone: Its zone.
        """

    @disabled_tool(_COMPUTE)
    def compute_restart_instance(self, instance_name: str, zone: str) -> None:
        """Reset a running instance; it keeps its addresses.

        Args:
            instance_name: The instance.
            zone: Its zone.
        """

    @disabled_tool(_COMPUTE)
    def compute_get_instance(self, instance_name: str, zone: str) -> None:
        """Get state, machine type and addresses of an instance.

        Args:
            instance_name: The instance.
            zone: Its zone.
        """

    @disabled_tool(_COMPUTE)
    def compute_list_zones(self) -> None:
        """List all zones."""

    @disabled_tool(_COMPUTE)
    def compute_wait_for_operation(
        self, operation_name: str, zone: str, timeout_minutes: int = 5
    ) -> None:
        """Wait until an operation is done.

        Args:
            operation_name: Name of the operation, from the call that started it.
            zone: Its zone.
            timeout_minutes: Maximum minutes to wait, up to 60.
        """
