"""Terminal server with the tools of cli-mcp-server, configured as in the published tasks.

A command line without operators runs one program without a shell. A command line with operators
runs in a shell after each command has been checked.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import shlex

from agentgym.office.files.shell import run_on
from agentgym.office.files.workspace import ROOT, Workspace, within
from agentgym.office.server import Server
from agentgym.sandboxes.namespaces import BASH
from agentgym.text.tools import ToolError, echo, tool

SECONDS = 60  # as published

# The published commands, except network tools and tools that some hosts lack.
ALLOWED_COMMANDS = tuple(
    "ls cat pwd echo cd mkdir touch rm cp mv find grep head tail wc sort uniq diff chmod stat which "
    "whoami date df du env sed awk cut tr basename dirname realpath md5sum sha256sum tar gzip gunzip "
    "zip unzip python".split()
)

MAX_CHARS = 2_048  # as published

_ENV = "/usr/bin/env"  # env runs a program without a shell

# Programs whose first argument is a script or pattern, even if it looks like a path.
_SCRIPTED = ("awk", "grep", "sed")
# The argument after one of these flags is the value of the flag, not a script.
_VALUED_FLAGS = ("-A", "-B", "-C", "-F", "-e", "-m", "-v")

# Matches quoted text, an escaped character, an operator, other text, or an unpaired quotation mark.
_PIECE = re.compile(
    r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|&&|\|\||[|;\n<>]|[^'"\\|;\n<>&]+|.""", re.DOTALL
)
_RULES = f"""\
Security Rules:
===============
Working Directory: {ROOT}

Allowed Commands:
-----------------
{", ".join(sorted(ALLOWED_COMMANDS))}

Allowed Flags:
--------------
All flags are allowed

Security Limits:
----------------
Max Command Length: {MAX_CHARS} characters
Command Timeout: {SECONDS} seconds
"""

_OPERATORS = ("&&", "||", "|", ";", "\n")
_REDIRECTS = ("<", ">")


class Terminal(Server):
    """Shell commands in a sandbox with the workspace but without network access.

    Each command starts in the workspace, and all processes end with the command. File changes
    remain if a command fails, but not if it is stopped.
    """

    name = "terminal"

    @tool
    def run_command(self, command: str) -> str:
        """Run a command line in `/workspace` and return its output.

        Allowed commands: ls, cat, pwd, echo, cd, mkdir, touch, rm, cp, mv, find, grep, head, tail, wc, sort, uniq, diff, chmod,
        stat, which, whoami, date, df, du, env, sed, awk, cut, tr, basename, dirname, realpath, md5sum, sha256sum, tar, gzip,
        gunzip, zip, unzip, python. All flags are allowed.
        The operators &&, ||, ; and | are supported; redirects and command substitution are not. * and $VARIABLES are expanded
        only in a line with operators.
        There is no network and no /proc. The clock is the office's; while a command runs, it advances only by sleeping.

        Args:
            command: The command line, such as `ls -l` or `cat file.txt`.
        """
        outcome, lost = run_on(
            self.context, parse_command(command, self.context.files), ROOT, SECONDS
        )
        lines = [f"{outcome.stdout}{outcome.stderr}"]
        if lost:
            lines.append(lost)
        if outcome.stopped:
            lines.append(f"The command was {outcome.stopped}.")
        else:
            lines.append(f"Command completed with return code {outcome.code}")
        return "\n".join(lines)

    @tool
    def show_security_rules(self) -> str:
        """Show the allowed commands and the limits."""
        return _RULES


def parse_command(line: str, files: Workspace) -> list[str]:
    """Check a command line and return the program and arguments that execute it."""
    if len(line) > MAX_CHARS:
        raise ToolError(
            f"security violation: a command may have at most {MAX_CHARS} characters, got "
            f"{len(line)}"
        )
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
            f"invalid argument: cd alone has no effect, because each command starts in {ROOT}; "
            "write `cd DIRECTORY && COMMAND`"
        )
    return [_ENV, name, *_absolute_paths(name, arguments, files)]


def _split(pieces: list[str]) -> list[list[str]]:
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
    words = [_words(command) for command in commands]
    return [each for each in words if each]


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
    """Raise if a command is not allowed; return the working directory after the command."""
    name, *arguments = words
    if name not in ALLOWED_COMMANDS:
        raise ToolError(f"security violation: the command {echo(name)} is not allowed")
    for argument in _operands(name, arguments):
        path = posixpath.normpath(posixpath.join(directory, argument))
        if (_is_path(argument) or ".." in argument.split("/")) and not within(path, ROOT):
            raise ToolError(
                f"security violation: the path {echo(argument)} is outside of {ROOT}; use another "
                "path"
            )
    if name == "cd" and arguments:
        return posixpath.normpath(posixpath.join(directory, arguments[-1]))
    return directory


def _operands(name: str, arguments: list[str]) -> list[str]:
    operands = []
    before = name
    for argument in arguments:
        is_value = name in _SCRIPTED and before in _VALUED_FLAGS
        if not argument.startswith("-") and not is_value:
            operands.append(argument)
        before = argument
    return operands[1:] if name in _SCRIPTED else operands


def _is_path(argument: str) -> bool:
    return argument == "." or (
        argument.startswith(("./", "../", "/")) and not argument.startswith("//")
    )


def _check_substitution(pieces: list[str]) -> None:
    """Reject command substitution, because nested commands would run unchecked."""
    for piece in pieces:
        if not piece.startswith(("'", "\\")) and re.search(r"`|\$\(", re.sub(r"\\.", "", piece)):
            raise ToolError("security violation: command substitution is not supported")


def _absolute_paths(name: str, arguments: list[str], files: Workspace) -> list[str]:
    operands = _operands(name, arguments)
    absolute = []
    for argument in arguments:
        if argument in operands and (_is_path(argument) or _names_file(argument, files)):
            argument = posixpath.normpath(posixpath.join(ROOT, argument))  # noqa: PLW2901
        absolute.append(argument)
    return absolute


def _names_file(argument: str, files: Workspace) -> bool:
    with contextlib.suppress(ToolError):  # the argument is not a path in the workspace
        return "/" in argument and files.exists(argument)
    return False
