"""Command lines on the workspace, with the tools of cli-mcp-server as the tasks set it up.

A line without operators is one program with its arguments, run without a shell, so that `*` and `$HOME` are
plain characters. A line with operators is run by a shell once each of its commands has been checked.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import shlex
from typing import ClassVar

from agentgym.office.files.shell import run_on
from agentgym.office.files.workspace import ROOT, Workspace, within
from agentgym.office.server import Server
from agentgym.sandboxes.namespaces import BASH
from agentgym.text.tools import ToolError, echo, tool

SECONDS = 60
"""Time of one command, as in the published tasks."""

ALLOWED_COMMANDS = tuple(
    "ls cat pwd echo cd mkdir touch rm cp mv find grep head tail wc sort uniq diff chmod stat which "
    "whoami date df du env sed awk cut tr basename dirname realpath md5sum sha256sum tar gzip gunzip "
    "zip unzip tree python".split()
)
"""The commands of the published tasks, but those that need a network or that not every host has."""

MAX_CHARS = 2_048
"""Characters of a line, as in the published tasks."""

_ENV = "/usr/bin/env"
"""Runs a program by its name, without a shell."""

_SCRIPTED = ("awk", "grep", "sed")
"""Commands whose first argument is a script or a pattern: `/x/d` is no path in it."""
_VALUED_FLAGS = ("-A", "-B", "-C", "-F", "-e", "-m", "-v")
"""Flags of theirs that take the next word, which then is not that argument."""

# Quoted text, an escaped character, an operator, a run of other text; `.` for what remains, such as
# a quotation mark without its partner.
_PIECE = re.compile(
    r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|&&|\|\||[|;\n<>]|[^'"\\|;\n<>&]+|.""", re.DOTALL
)
_OPERATORS = ("&&", "||", "|", ";", "\n")
_REDIRECTS = ("<", ">")


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
        return "\n".join(
            [
                "Security Rules:",
                "===============",
                f"Working Directory: {ROOT}",
                "",
                "Allowed Commands:",
                "-----------------",
                ", ".join(sorted(ALLOWED_COMMANDS)),
                "",
                "Allowed Flags:",
                "--------------",
                "All flags are allowed",
                "",
                "Security Limits:",
                "----------------",
                f"Max Command Length: {MAX_CHARS} characters",
                f"Command Timeout: {SECONDS} seconds",
                "",
            ]
        )


def parse_command(line: str, files: Workspace) -> list[str]:
    """Return the program and the arguments that carry out a command line.

    Args:
        line: The line.
        files: The workspace, in which the line will run.

    Raises:
        ToolError: The rules of the terminal forbid it.
    """
    if len(line) > MAX_CHARS:
        raise _violation(f"the command is {len(line)} characters long, at most {MAX_CHARS} are")
    pieces = _PIECE.findall(line.strip("\n"))
    commands = _split(pieces)
    if not commands:
        raise ToolError("security violation: the command is empty")
    directory = ROOT
    for command in commands:
        directory = _check(command, directory)
    if any(piece in _OPERATORS for piece in pieces):
        _check_substitution(pieces)
        return [BASH, "-c", line]
    name, *arguments = commands[0]
    if name == "cd":
        raise ToolError(
            f"invalid argument: cd alone has no effect, as each command starts in {ROOT}; write "
            "`cd DIRECTORY && COMMAND`"
        )
    return [_ENV, name, *_absolute_paths(name, arguments, files)]


def _violation(reason: str) -> ToolError:
    return ToolError(f"security violation: {reason} allowed")


def _split(pieces: list[str]) -> list[list[str]]:
    """Return the words of each command of a line.

    Raises:
        ToolError: The line has a redirect, or quotation marks without partners.
    """
    commands = [""]
    for piece in pieces:
        if piece in _REDIRECTS:
            raise ToolError(
                f"security violation: redirects ({piece}) are not supported; use pipes, and write "
                "files by `python -c` or another tool"
            )
        if piece in _OPERATORS:
            commands.append("")
        else:
            commands[-1] += piece
    return [words for command in commands if (words := _words(command))]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        problem = str(error)
        raise ToolError(
            f"security violation: {echo(command.strip())} cannot be parsed: "
            f"{problem[:1].lower()}{problem[1:]}"
        ) from None


def _check(words: list[str], directory: str) -> str:
    """Refuse a command that is not allowed; return the directory in which the next one runs."""
    name, *arguments = words
    if name not in ALLOWED_COMMANDS:
        raise _violation(f"the command {echo(name)} is not")
    for argument in _operands(name, arguments):
        path = posixpath.normpath(posixpath.join(directory, argument))
        if (_is_path(argument) or ".." in argument.split("/")) and not within(path, ROOT):
            raise _violation(f"the path {echo(argument)} is outside of {ROOT}, which is not")
    if name == "cd" and arguments:
        return posixpath.normpath(posixpath.join(directory, arguments[-1]))
    return directory


def _operands(name: str, arguments: list[str]) -> list[str]:
    """Return the arguments that may be paths."""
    operands = [
        argument
        for before, argument in zip([name, *arguments], arguments, strict=False)
        if not argument.startswith("-") and not (name in _SCRIPTED and before in _VALUED_FLAGS)
    ]
    return operands[1:] if name in _SCRIPTED else operands


def _is_path(argument: str) -> bool:
    """Return whether an argument is a path whatever there is in the workspace."""
    return argument == "." or (
        argument.startswith(("./", "../", "/")) and not argument.startswith("//")
    )


def _check_substitution(pieces: list[str]) -> None:
    """Refuse commands within commands, which would run without having been checked."""
    for piece in pieces:
        if not piece.startswith(("'", "\\")) and re.search(r"`|\$\(", re.sub(r"\\.", "", piece)):
            raise ToolError("security violation: command substitution is not supported")


def _absolute_paths(name: str, arguments: list[str], files: Workspace) -> list[str]:
    """Return the arguments with each path made absolute, as the published server does it."""
    operands = _operands(name, arguments)
    return [
        posixpath.normpath(posixpath.join(ROOT, argument))
        if argument in operands and (_is_path(argument) or _names_file(argument, files))
        else argument
        for argument in arguments
    ]


def _names_file(argument: str, files: Workspace) -> bool:
    """Return whether an argument with a slash is the relative path of something that there is."""
    with contextlib.suppress(ToolError):  # no path, or one that leads out of the workspace
        return "/" in argument and files.exists(argument)
    return False
