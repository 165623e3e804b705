"""Interrupts while the command line loads: there is nothing to undo yet, and no fault to trace."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path


def leave_quietly_on_interrupt() -> None:
    """Let an interrupt end the command `agentgym` with one word; in any other program, do nothing."""
    is_command = sys.orig_argv[1:3] == ["-m", "agentgym"] or Path(sys.argv[0]).stem == "agentgym"
    in_main_thread = threading.current_thread() is threading.main_thread()
    if is_command and in_main_thread and signal.getsignal(signal.SIGINT) is _DEFAULT:
        signal.signal(signal.SIGINT, _leave)


def loaded() -> None:
    """Let interrupts raise `KeyboardInterrupt` again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, _DEFAULT)


_DEFAULT = signal.default_int_handler


def _leave(number: int, frame: object) -> None:
    os.write(2, b"interrupted\n")  # a print could be interrupted in another one
    os._exit(128 + number)
