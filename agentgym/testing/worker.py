"""Worker process of a fuzzer: it reads cases as JSON lines, plays them and writes reports.

A journal records each reply before it is played, and the kernel kills a process whose step takes
too much CPU time, so that the parent can name what hung or died.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from agentgym.testing.cases import Case, pack
from agentgym.testing.episode import Monitor, play
from agentgym.testing.resources import ResourceLedger
from agentgym.text.tokens import counter
from agentgym.wrappers import ContextBudget


class Journal(Monitor):
    """Monitor that writes each reply to a file before it is played, and sets the kernel's timer.

    Args:
        path: The file; it contains only the current episode.
        step_seconds: CPU seconds after which the kernel kills the process, even inside
            non-Python code.
    """

    def __init__(self, path: Path, step_seconds: float) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._step_seconds = step_seconds
        # The default action of this signal kills the process, whatever it is doing.
        self._timer = getattr(signal, "setitimer", None)

    def begin(self, case: Case) -> None:
        """Start the journal of an episode."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        self._write(case.to_dict())

    def before(self, action: str) -> None:
        """Write a reply and start its timer."""
        self._write(pack(action))
        self._set(self._step_seconds)

    def pause(self) -> None:
        """Stop the timer."""
        self._set(0.0)

    def _write(self, value: Any) -> None:
        os.write(self._file, json.dumps(value).encode("ascii") + b"\n")

    def _set(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer(signal.ITIMER_PROF, seconds)


def main() -> None:
    """Serve cases from standard input until it ends.

    The first line contains `path`, the import path of the parent, `folder`, this worker's own
    folder, and `step_seconds`.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # a world's output must not mix with the answers
    settings = json.loads(sys.stdin.readline())
    sys.path[:] = settings["path"]
    folder = Path(settings["folder"])
    tempfile.tempdir = str(folder / "tmp")
    Path(tempfile.tempdir).mkdir(parents=True, exist_ok=True)
    monitor = Journal(folder / "journal", settings["step_seconds"])
    ledger = ResourceLedger()
    # The vocabulary loads on first use, which would count as work of that step.
    counter(ContextBudget().counter).length("a text")
    for line in sys.stdin:
        job = json.loads(line)
        ledgers = {"shared": ledger, "fresh": ResourceLedger(), "none": None}
        report = play(Case.from_dict(job["case"]), monitor, ledgers[job["ledger"]])
        if not job["full"]:
            report.actions = []
        answers.write(json.dumps(report.to_dict(), default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
