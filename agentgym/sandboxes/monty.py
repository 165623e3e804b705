"""Where code that a policy wrote runs: the interface of a sandbox, its limits, and the default sandbox on `pydantic-monty`.

The code is hostile by assumption. It reaches the host through the functions it is given and through nothing else; a call blocks
until the host has answered it, runs exactly once, and no code is ever run again to get back to where it was.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field

from agentgym.arguments import check_choice
from agentgym.config import Config
from agentgym.tools import ToolError, echo

Kind = Literal["", "exception", "timeout", "memory", "output", "calls", "crash", "refused"]
Functions = Mapping[str, Callable[..., str]]
"""What code may call, by name. A function takes whatever arguments code gives, and refuses a call with `ToolError`, which code can
catch."""

SANDBOXES = ("monty", "bubblewrap")
MAX_ERROR_CHARS = 1_000

_MAX_FRAMES = 6
_SHOWN_LINE = 100


@dataclass(frozen=True)
class Limits(Config):
    """What one run may use up.

    Attributes:
        seconds: Of the clock on the wall, calls included.
        memory_mb: Memory of the interpreter beyond what it takes to start.
        output_chars: Characters that the code may print.
        calls: Calls of functions.
        code_chars: The length of the code.

    Raises:
        ValueError: A limit is out of range.
    """

    seconds: Annotated[float, Field(ge=0.05, le=3_600.0)] = 10.0
    memory_mb: Annotated[int, Field(ge=8, le=65_536)] = 256
    output_chars: Annotated[int, Field(ge=1, le=10_000_000)] = 20_000
    calls: Annotated[int, Field(ge=0, le=1_000_000)] = 1_000
    code_chars: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run.

    Attributes:
        stdout: What the code printed, up to the limit.
        error: Why it did not finish, in words for the policy; empty if it did.
        kind: The class of that reason. `refused` means that nothing ran; after any other, what ran has had its effects.
    """

    stdout: str
    error: str = ""
    kind: Kind = ""


class Sandbox(Protocol):
    """Runs code. It holds no state of an episode: each run is a fresh session, and any number of threads may run code at once.

    Attributes:
        rules: What code must know of this interpreter, in words for the policy.
    """

    rules: ClassVar[str]

    def run(self, code: str, functions: Functions, limits: Limits = DEFAULT_LIMITS) -> RunResult:
        """Run code to its end or to a limit; what it does raises nothing here, what a function raises (but `ToolError`) does."""


def make_sandbox(name: str) -> Sandbox:
    """The sandbox of a name.

    Args:
        name: `monty` (a subset of Python, quick) or `bubblewrap` (full CPython in Linux namespaces).

    Raises:
        ValueError: There is no such sandbox.
        ImportError: Its package is not installed.
        RuntimeError: It cannot run on this host.
    """
    check_choice("sandbox", name, SANDBOXES)
    if name == "monty":
        return MontySandbox()
    from agentgym.sandboxes.bubblewrap import BubblewrapSandbox  # noqa: PLC0415 - it imports this module

    return BubblewrapSandbox()


class Stopped(Exception):
    """A run that has to end here, with the reason in words for the policy."""

    def __init__(self, kind: Kind, error: str) -> None:
        super().__init__(error)
        self.kind = kind


class CallBroker:
    """The host's side of one run, the same for every sandbox: answers calls, keeps the output, counts both."""

    def __init__(self, code: str, functions: Functions, limits: Limits) -> None:
        self.code = code
        self.limits = limits
        self.deadline = time.monotonic() + limits.seconds
        self._functions = functions
        self._calls = 0
        self._printed: list[str] = []
        self._room = limits.output_chars

    def check(self) -> None:
        """Refuse code that is too long."""
        if len(self.code) > self.limits.code_chars:
            raise Stopped("refused", f"the code is {len(self.code)} characters long, at most {self.limits.code_chars} are allowed")

    def left(self) -> float:
        """Seconds until the deadline."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise self.too_late()
        return seconds

    def too_late(self) -> Stopped:
        """The end of a run that takes too long."""
        return Stopped("timeout", f"the code was stopped after {self.limits.seconds:g} seconds")

    def write(self, text: str) -> None:
        """Keep what the code printed.

        Raises:
            Stopped: There is no room for all of it.
        """
        self._printed.append(text[: self._room])
        if len(text) > self._room:
            self._room = 0
            raise Stopped("output", f"the code printed more than {self.limits.output_chars} characters and was stopped")
        self._room -= len(text)

    def call(self, name: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Answer one call.

        Raises:
            ToolError: The call was refused.
            Stopped: It is one too many, or too late.
        """
        self.left()
        self._calls += 1
        if self._calls > self.limits.calls:
            raise Stopped("calls", f"the code made more than {self.limits.calls} calls and was stopped")
        function = self._functions.get(name) if isinstance(name, str) else None
        if function is None:
            raise ToolError(f"there is no function {echo(name)}; functions: {', '.join(self._functions)}")
        return function(*args, **kwargs)

    def end(self, kind: Kind = "", message: str = "", frames: Sequence[tuple[int, str]] = ()) -> RunResult:
        """What came of the run.

        Args:
            kind: Why it ended early; `refused` counts only if nothing was called or printed.
            message: The reason in words.
            frames: Line and function of each call under way in the code, outermost first.
        """
        stdout = "".join(self._printed)
        if kind == "refused" and (self._calls or stdout):
            kind = "exception"
        if len(message) > MAX_ERROR_CHARS:
            message = f"{message[:MAX_ERROR_CHARS]}… ({len(message)} characters)"
        lines = self.code.splitlines()
        for line, function in frames[-_MAX_FRAMES:]:
            source = lines[line - 1].strip()[:_SHOWN_LINE] if 0 < line <= len(lines) else ""
            message += f"\n  at line {line}{'' if function == '<module>' else f' in {function[:_SHOWN_LINE]}'}: {source}"
        # Code may raise a text with lone surrogates, which no chat can carry.
        return RunResult(stdout, message.encode("utf-8", "replace").decode("utf-8"), kind)


class MontySandbox:
    """Monty, an interpreter of a subset of Python in Rust, in worker processes that all sandboxes of this process share.

    The language itself has no way out: no file, socket, process, environment or foreign module exists in it. Clock, `random` and
    hashes are the same at every run.

    Raises:
        ImportError: `pydantic-monty` is not installed.
    """

    rules: ClassVar[str] = (
        "The interpreter knows a subset of Python: it has no class inheritance, no `yield`, no `del`, no `super` and "
        "no method decorators. These modules can be imported: asyncio, base64, bisect, collections, copy, csv, dataclasses, "
        "datetime, decimal, functools, hashlib, itertools, json, math, random, re, time, tomllib, typing, unicodedata. "
        "There are no files, no network and no processes, and the clock stands still."
    )

    def __init__(self) -> None:
        _monty()

    def run(self, code: str, functions: Functions, limits: Limits = DEFAULT_LIMITS) -> RunResult:
        """Run code in a session of its own."""
        monty = _monty()
        account = CallBroker(code, functions, limits)
        run = _MontyRun(account, functions)
        try:
            account.check()
            with _POOL.get().checkout(limits=_limits(limits), os_policy=_OS_POLICY) as session:
                run.play(session)
            return account.end()
        except Stopped as stop:
            return account.end(stop.kind, str(stop))
        except monty.MontyError as error:
            return run.explain(error)


class _MontyRun:
    """One run in a session of Monty."""

    def __init__(self, account: CallBroker, functions: Functions) -> None:
        self._account = account
        self._names = {name: _stub(name) for name in functions}
        self._worker: int | None = None
        self._full: Stopped | None = None

    def play(self, session: Any) -> None:
        """Feed the code and answer it until it ends."""
        monty = _monty()
        self._worker = session.worker_pid
        session.feed_run("ToolError = RuntimeError")
        step = self._advance(session.feed_start, self._account.code, print_callback=self._print, inputs=self._names)
        while not isinstance(step, monty.MontyComplete):
            self._account.left()
            if not isinstance(step, monty.FunctionSnapshot):
                step = self._advance(step.resume)
            elif step.is_os_function:
                step = self._advance(step.resume_not_handled)
            else:
                step = self._advance(step.resume, self._answer(step))
        if self._full:
            raise self._full

    def _advance(self, resume: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return resume(*args, **kwargs)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            # The arguments of a call become objects of the host in here; an integer of 5000 digits does not.
            raise Stopped("exception", f"a value cannot leave the sandbox: {error}") from None

    def _answer(self, step: Any) -> dict[str, Any]:
        name = step.function_name
        if name not in self._names:
            return {"exc_type": "NameError", "message": f"name '{name}' is not defined"}
        try:
            args, kwargs = _as_json([step.args, step.kwargs])
            return {"return_value": self._account.call(name, args, kwargs)}
        except ToolError as error:
            return {"exc_type": "RuntimeError", "message": str(error)}

    def _print(self, stream: str, text: str) -> None:
        try:
            if not self._full:
                self._account.write(text)
        except Stopped as stop:
            # An exception in here would wait for the code's next call; until then the code would go on printing.
            self._full = stop
            if self._worker is not None:
                os.kill(self._worker, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows ends a process by the latter

    def explain(self, error: Any) -> RunResult:
        """What came of a run that Monty broke off."""
        monty = _monty()
        end = self._account.end
        if self._full:
            return end(self._full.kind, str(self._full))
        if isinstance(error, monty.MontyCrashedError):
            late = self._account.too_late()
            return end(late.kind, str(late)) if error.timed_out else end("crash", "the interpreter died")
        text, inner = error.display("type-msg"), error.exception()
        if isinstance(inner, TimeoutError) and "time limit exceeded" in text:
            return end("timeout", str(self._account.too_late()))
        if isinstance(inner, RuntimeError) and "suspension limit" in text:
            return end("calls", "the code asked the host for names and calls too often and was stopped")
        frames = [(frame.line, frame.function_name or "<module>") for frame in error.traceback()]
        if isinstance(inner, MemoryError):
            return end("memory", text, frames)
        refused = isinstance(inner, (SyntaxError, NotImplementedError))
        return end("refused" if refused else "exception", text, frames)


class _Pool:
    """The worker processes of this process, started when first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._pool: Any = None

    def get(self) -> Any:
        """The pool of workers.

        Raises:
            RuntimeError: This process was forked from one that had it; Monty's threads did not come along.
        """
        if self._owner not in (0, os.getpid()):
            raise RuntimeError(
                "this process was forked from one that had run code in a sandbox, which Monty does not survive; start processes "
                "with the method 'spawn' or 'forkserver' (AsyncVectorEnv(..., context='spawn')), or fork before the first run"
            )
        with self._lock:
            if self._pool is None:
                self._pool = _monty().Monty(max_processes=_MAX_WORKERS)
                self._pool.__enter__()
                self._owner = os.getpid()
            return self._pool


_MAX_WORKERS = 64
_POOL = _Pool()
_OS_POLICY: dict[str, Any] = {
    "datetime": dt.datetime(2025, 1, 1, tzinfo=dt.UTC),
    "sleep": "zero",
    "random_start": {"seed": 0},
}


def _limits(limits: Limits) -> dict[str, Any]:
    # A function whose name is read, rather than called, takes a suspension as a call does, and so does each unknown name.
    suspensions = 2 * limits.calls + 1_000
    memory = limits.memory_mb * 2**20
    return {"max_feed_duration_secs": limits.seconds, "max_memory": memory, "max_suspensions": suspensions}


def _stub(name: str) -> Callable[..., str]:
    """What stands for a function inside; only its name crosses over."""

    def stub(*args: Any, **kwargs: Any) -> str:
        raise AssertionError(f"{name} is answered by the host's loop")

    stub.__name__ = name
    return stub


def _as_json(value: Any) -> Any:
    """The arguments of a call as JSON would carry them: tuples as lists, nothing that JSON has no word for."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise ToolError("arguments must be JSON: strings, finite numbers, booleans, None, lists and dicts of these") from None


def _monty() -> Any:
    try:
        return import_module("pydantic_monty")
    except ImportError as error:
        raise ImportError("the sandbox 'monty' needs pydantic-monty: pip install 'agentgym[code]'") from error
