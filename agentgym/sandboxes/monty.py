"""The default sandbox: a subset of Python in an interpreter written in Rust (`pydantic-monty`)."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

from agentgym.sandboxes.base import (
    DEFAULT_LIMITS,
    NOT_JSON,
    CallBroker,
    Functions,
    Limits,
    RunResult,
    Stopped,
)
from agentgym.text.requirements import install_command
from agentgym.text.tools import MAX_DEPTH, ToolError, nests_deeper


class MontySandbox:
    """Monty, an interpreter for a subset of Python, run in shared worker processes.

    The interpreter provides no files, sockets, processes, environment or third-party modules.
    """

    requirement: ClassVar[str] = "code"
    rules: ClassVar[str] = (
        "The interpreter knows a subset of Python: it has no class inheritance, no `yield`, no "
        "`del`, no `super` and "
        "no method decorators. These modules can be imported: asyncio, base64, bisect, "
        "collections, copy, csv, dataclasses, "
        "datetime, decimal, functools, hashlib, itertools, json, math, random, re, time, tomllib, "
        "typing, unicodedata. "
        "There are no files, no network and no processes, and the clock stands still."
    )

    def __init__(self) -> None:
        _monty()

    def run(
        self, code: str, functions: Functions, limits: Limits = DEFAULT_LIMITS, seed: int = 0
    ) -> RunResult:
        """Run code in a new session."""
        broker = CallBroker(code, functions, limits)
        run = _MontyRun(broker, functions)
        try:
            broker.check()
            policy = {**_OS_POLICY, "random_start": {"seed": seed}}
            allowed = {
                "max_feed_duration_secs": limits.seconds,
                "max_memory": limits.memory_mb * 2**20,
                # Calls and name lookups suspend a run: allow two per call, and 1,000 more.
                "max_suspensions": 2 * limits.calls + 1_000,
            }
            with _pool().checkout(limits=allowed, os_policy=policy) as session:
                run.play(session)
            return broker.end()
        except Stopped as stop:
            return broker.end(stop.kind, str(stop))
        except _monty().MontyError as error:
            return run.explain(error)


class _MontyRun:
    def __init__(self, broker: CallBroker, functions: Functions) -> None:
        self._broker = broker
        self._names = {name: _stub(name) for name in functions}
        self._worker: int | None = None
        self._overflow: Stopped | None = None

    def play(self, session: Any) -> None:
        monty = _monty()
        self._worker = session.worker_pid
        session.feed_run("ToolError = RuntimeError")
        step = self._advance(
            session.feed_start, self._broker.code, print_callback=self._print, inputs=self._names
        )
        while not isinstance(step, monty.MontyComplete):
            self._broker.left()
            if not isinstance(step, monty.FunctionSnapshot):
                step = self._advance(step.resume)
            elif step.is_os_function:
                step = self._advance(step.resume_not_handled)
            else:
                step = self._advance(step.resume, self._answer(step))
        if self._overflow:
            raise self._overflow

    def _advance(self, resume: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return resume(*args, **kwargs)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            # `resume` converts call arguments, and cannot convert a 5,000-digit integer.
            raise Stopped("exception", f"a value cannot leave the sandbox: {error}") from None

    def _answer(self, step: Any) -> dict[str, Any]:
        name = step.function_name
        if name not in self._names:
            return {"exc_type": "NameError", "message": f"name '{name}' is not defined"}
        try:
            args, kwargs = _to_json([step.args, step.kwargs])
            return {"return_value": self._broker.call(name, args, kwargs)}
        except ToolError as error:
            return {"exc_type": "RuntimeError", "message": str(error)}

    def _print(self, stream: str, text: str) -> None:
        try:
            if not self._overflow:
                self._broker.write(text)
        except Stopped as stop:
            # An exception raised here would surface only at the next call, after more output.
            self._overflow = stop
            if self._worker is not None:
                os.kill(
                    self._worker, getattr(signal, "SIGKILL", signal.SIGTERM)
                )  # Windows terminates a process that gets SIGTERM

    def explain(self, error: Any) -> RunResult:
        end = self._broker.end
        if self._overflow:
            return end(self._overflow.kind, str(self._overflow))
        late = self._broker.too_late()
        if isinstance(error, _monty().MontyCrashedError):
            if error.timed_out:
                return end(late.kind, str(late))
            return end("crash", "the interpreter died")
        text, inner = error.display("type-msg"), error.exception()
        if isinstance(inner, TimeoutError) and "time limit exceeded" in text:
            return end(late.kind, str(late))
        if isinstance(inner, RuntimeError) and "suspension limit" in text:
            return end(
                "calls", "the code asked the host for names and calls too often and was stopped"
            )
        frames = [(frame.line, frame.function_name or "<module>") for frame in error.traceback()]
        if isinstance(inner, MemoryError):
            return end("memory", text, frames)
        refused = isinstance(inner, (SyntaxError, NotImplementedError))
        return end("refused" if refused else "exception", text, frames)


def _pool() -> Any:
    if _POOLS and os.getpid() not in _POOLS:
        raise RuntimeError(
            "Monty cannot run in a process that was forked after Monty's first run; start processes "
            "with the method 'spawn' or 'forkserver' (AsyncVectorEnv(..., context='spawn')), "
            "or fork before the first run"
        )
    with _STARTING:
        if not _POOLS:
            pool = _monty().Monty(max_processes=_MAX_WORKERS)
            pool.__enter__()
            _POOLS[os.getpid()] = pool
        return _POOLS[os.getpid()]


_MAX_WORKERS = 64  # maximum number of worker processes, even with more threads
_STARTING = threading.Lock()
_POOLS: dict[int, Any] = {}  # contains at most one pool, keyed by process id
# OS requests without an entry give the same answer in every run anyway.
_OS_POLICY: dict[str, Any] = {
    "datetime": dt.datetime(2025, 1, 1, tzinfo=dt.UTC),
    "sleep": "zero",
}


def _stub(name: str) -> Callable[..., str]:
    def stub(*args: Any, **kwargs: Any) -> str:
        raise AssertionError(f"the host must answer calls to {name}")

    stub.__name__ = name
    return stub


def _to_json(value: Any) -> Any:
    try:
        if nests_deeper(value, MAX_DEPTH):
            raise ValueError
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        raise ToolError(NOT_JSON) from None


def _monty() -> Any:
    try:
        return import_module("pydantic_monty")
    except ImportError as error:
        raise ImportError(
            f"the sandbox 'monty' needs pydantic-monty: {install_command('code')}"
        ) from error
