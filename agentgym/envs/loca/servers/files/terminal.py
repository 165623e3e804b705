"""Command lines on the workspace, with the tools of cli-mcp-server as the tasks set it up."""

from __future__ import annotations

from typing import ClassVar

from agentgym.envs.loca.servers.files.command_line import (
    ALLOWED_COMMANDS,
    MAX_CHARS,
    parse_command,
)
from agentgym.envs.loca.servers.files.shell import run_on
from agentgym.envs.loca.servers.files.workspace import ROOT
from agentgym.envs.loca.servers.server import Server
from agentgym.tools import tool

SECONDS = 60
"""Time of one command, as in the published tasks."""


class Terminal(Server):
    """Runs commands in a sandbox (see `agentgym.sandboxes.workbench`), in which there is the
    workspace and no network.

    What a command did to files stays done if it then fails or is stopped, as on a real machine.
    Commands share files and nothing else: each starts in the workspace, and processes end with the
    command that started them.
    """

    name: ClassVar[str] = "terminal"

    def close(self) -> None:
        """End the sandbox."""
        self.context.close()

    @tool
    def run_command(self, command: str) -> str:
        """Run a command line in `/workspace` and show what it prints.

        Allowed commands: ls, cat, pwd, echo, cd, mkdir, touch, rm, cp, mv, find, grep, head, tail, wc, sort, uniq, diff, chmod,
        stat, which, whoami, date, df, du, env, sed, awk, cut, tr, basename, dirname, realpath, md5sum, sha256sum, tar, gzip,
        gunzip, zip, unzip, tree, python. All flags are allowed.
        The operators &&, ||, ; and | are supported, redirects and command substitution are not. Only a line with operators expands
        * and $VARIABLES.
        There is no network and no /proc. The clock is that of the office; while a command runs, it goes on only by what is slept.

        Args:
            command: The command line, such as `ls -l` or `cat file.txt`.
        """
        outcome, lost = run_on(
            self.context, parse_command(command, self.context.files), ROOT, SECONDS
        )
        end = (
            f"The command was {outcome.stopped}."
            if outcome.stopped
            else f"Command completed with return code {outcome.code}"
        )
        return "\n".join([f"{outcome.stdout}{outcome.stderr}", *filter(None, [lost]), end])

    @tool
    def show_security_rules(self) -> str:
        """Show which commands are allowed here, and their limits."""
        sections = {
            "Allowed Commands:": ", ".join(sorted(ALLOWED_COMMANDS)),
            "Allowed Flags:": "All flags are allowed",
            "Security Limits:": f"Max Command Length: {MAX_CHARS} characters\nCommand Timeout: {SECONDS} seconds",
        }
        parts = [f"{title}\n{'-' * len(title)}\n{text}\n" for title, text in sections.items()]
        heading = "Security Rules:"
        first = f"{heading}\n{'=' * len(heading)}\nWorking Directory: {ROOT}\n"
        return "\n".join([first, *parts])
