"""The parent's side of a worker process: it sends cases, and reads what a dead worker was doing."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from agentgym.testing.cases import Case, Finding, Report, unpack

Ledger = Literal["shared", "fresh", "none"]

# Seconds without a step after which a worker is terminated. Computation ends by its CPU time, so
# this is generous for busy machines.
PATIENCE = 300.0
_MODULE = "agentgym.testing.worker"
# Cases after which a worker restarts, so that library caches do not accumulate.
_RECYCLE = 2_000
_SIGPROF = getattr(signal, "SIGPROF", None)


class FuzzWorker:
    """A process that plays cases, started on demand and restarted after a death.

    Args:
        step_seconds: CPU seconds that a step may take.
        patience: Seconds without a step after which the process is terminated.
        environment: Environment variables that differ from this process's.
    """

    def __init__(
        self,
        step_seconds: float,
        patience: float = PATIENCE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._step_seconds, self._patience = step_seconds, patience
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self._folder = Path(tempfile.mkdtemp(prefix="agentgym-fuzz-"))
        self._journal = self._folder / "journal"
        self._process: subprocess.Popen[bytes] | None = None
        self._played = 0

    def play(self, case: Case, *, ledger: Ledger = "none", full: bool = False) -> Report:
        """Play a case and return its report, or one with a finding if the process died.

        Args:
            case: The case.
            ledger: The ledger of leaked resources: `shared` with earlier cases, `fresh` or
                `none`.
            full: Whether the report lists the replies.
        """
        if self._played >= _RECYCLE:
            self.stop()
        process = self._process or self._start()
        self._played += 1
        job = json.dumps({"case": case.to_dict(), "ledger": ledger, "full": full})
        line = b""
        with contextlib.suppress(OSError):
            assert process.stdin is not None  # it is a pipe
            process.stdin.write(job.encode("ascii") + b"\n")
            process.stdin.flush()
            line = self._read_line(process)
        if not line.endswith(b"\n"):
            return self._autopsy(case, process)
        return Report.from_dict(json.loads(line))

    def stop(self) -> None:
        """Terminate the process; the next case starts another."""
        process, self._process, self._played = self._process, None, 0
        if process is not None:
            process.kill()
            process.communicate()

    def close(self) -> None:
        """Terminate the process and remove its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "stderr").open("wb") as errors:
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", _MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environment,
            )
        settings = {
            "path": sys.path,
            "folder": str(self._folder),
            "step_seconds": self._step_seconds,
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(settings).encode("ascii") + b"\n")
        return process

    def _read_line(self, process: subprocess.Popen[bytes]) -> bytes:
        """Return the next line of the process; empty or incomplete if it ended or hung."""
        assert process.stdout is not None
        begin, size, parts = time.monotonic(), -1, []
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if selector.select(timeout=5.0):
                    part = os.read(process.stdout.fileno(), 1 << 20)
                    parts.append(part)
                    if not part or part.endswith(b"\n"):
                        return b"".join(parts)
                written = self._journal.stat().st_size if self._journal.exists() else -1
                if written != size:
                    begin, size = time.monotonic(), written
                elif time.monotonic() - begin > self._patience:
                    return b"".join(parts)

    def _autopsy(self, case: Case, process: subprocess.Popen[bytes]) -> Report:
        """Return what a dead or hung process was doing."""
        hangs = process.poll() is None
        with contextlib.suppress(subprocess.TimeoutExpired):
            hangs = process.wait(timeout=1.0 if hangs else None) is None
        self.stop()
        code = process.returncode
        errors = (self._folder / "stderr").read_text(encoding="utf-8", errors="replace")[-1_000:]
        lines = self._journal.read_bytes().splitlines() if self._journal.exists() else []
        if not lines:
            raise RuntimeError(f"a worker ended with code {code} before it played: {errors}")
        played = Case.from_dict(json.loads(lines[0]))
        actions = [unpack(json.loads(line)) for line in lines[1:]]
        if played.id == case.id and played.index == case.index:
            case = played
        if _SIGPROF is not None and code == -_SIGPROF:
            kind, text = "hang", f"a step took {self._step_seconds:g} s of processor time"
        elif hangs:
            kind, text = "hang", f"nothing went on for {self._patience:g} s"
        else:
            kind, text = "death", f"the process ended with code {code}: {errors}"
        finding = Finding(kind, text, kind, replace(case, actions=actions))
        return Report(len(actions), options=case.options or {}, actions=actions, findings=[finding])
