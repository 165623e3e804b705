"""The end of the work."""

from __future__ import annotations

from typing import ClassVar

from agentgym.office.server import Server
from agentgym.text.tools import tool


class ClaimDone(Server):
    """Says that the task is done."""

    name: ClassVar[str] = "claim_done"

    @tool(final=True)
    def claim_done(self) -> str:
        """Say that the task is done. This ends the episode, and the state of the office is checked as it is then."""
        return "The task is claimed to be done."
