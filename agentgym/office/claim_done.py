"""Server with the tool that ends the task."""

from __future__ import annotations

from agentgym.office.server import Server
from agentgym.text.tools import tool


class ClaimDone(Server):
    """Lets the agent declare the task done."""

    name = "claim_done"

    @tool(final=True)
    def claim_done(self) -> str:
        """Declare the task done. This ends the episode, and the final state of the office is
        checked.
        """
        return "The task is claimed to be done."
