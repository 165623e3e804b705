"""Calls of python_execute."""

from __future__ import annotations

from agentgym.office.files.python_execute import PythonExecute
from tests.helpers import needs_workbench
from tests.office.published import Call, Difference


def prepared() -> PythonExecute:
    needs_workbench()
    return PythonExecute()


INFO = (
    r"=== EXECUTION INFO ===\nReturn code: {}\nExecution time: \d+\.\d\d\d seconds\n"
    r"Timeout limit: {} seconds"
)
CALLS = [
    Call(
        "python_execute",
        {"code": "import sys\nprint(1)\nprint(2, file=sys.stderr)\nsys.exit(3)"},
        r"=== STDOUT ===\n1\n=== STDERR ===\n2\n" + INFO.format(3, 30),
    ),
    Call(
        "python_execute",
        {"code": "pass", "filename": "x.py", "timeout": 500},
        r"[^\n=]+\n" + INFO.format(0, 120),
    ),
    Call(
        "python_execute",
        {"code": "import time\ntime.sleep(9)", "timeout": 1},
        r"[^\n=]+\n=== EXECUTION TIMEOUT ===\n[^\n]*\b1 seconds\n[^\n]*\b1\.000 seconds\nThe workspace is unchanged\.",
    ),
]
DIFFERENCES = {
    "python_execute": Difference(
        "The time is that of the office's clock, so that an answer is the same in every run; input() "
        "meets an end of file in place of a wait until the timeout; a timeout below 1 is an error; "
        "what was printed before a timeout is shown."
    ),
}
