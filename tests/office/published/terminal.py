"""Calls of the terminal."""

from __future__ import annotations

from agentgym.office.files.terminal import Terminal
from tests.helpers import needs_workbench
from tests.office.published import Call, Difference


def prepared() -> Terminal:
    needs_workbench()
    server = Terminal()
    server.context.files.write("d/a.txt", "one\ntwo\n")
    return server


CALLS = [
    Call(
        "run_command",
        {"command": "cat d/a.txt none"},
        r"one\ntwo\ncat: none: No such file or directory\n\n[^\n]* return code 1",
    ),
    Call("run_command", {"command": "find ."}, r"/workspace\n/workspace/d\n.*return code 0"),
    Call("run_command", {"command": "cd d && cat a.txt | wc -l"}, r"2\n\n[^\n]* return code 0"),
    Call(
        "show_security_rules",
        {},
        r"[^\n]+:\n=+\nWorking Directory: /workspace\n"
        r"\nAllowed Commands:\n-+\nawk, [a-z0-9, ]*wc, which, whoami, zip\n"
        r"\nAllowed Flags:\n-+\n[^\n]+\n"
        r"\nSecurity Limits:\n-+\nMax Command Length: 2048 characters\nCommand Timeout: 60 seconds\n",
    ),
]
DIFFERENCES = {
    "run_command": Difference(
        "Operators and redirects are found as a shell finds them, so `;`, `|` and `>` in quotes are "
        "plain text and a script of awk, sed or grep is not taken for a path; a newline separates "
        "commands; command substitution is refused, since it would run what the rules forbid; a "
        "refusal is flagged as an error."
    ),
    "show_security_rules": Difference(
        "Only commands that can run here are listed: there is no network, and programs that not "
        "every host has are left out (file, ps, git and others)."
    ),
}
