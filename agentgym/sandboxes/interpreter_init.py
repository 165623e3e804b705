"""The program inside the `bubblewrap` sandbox, which runs code and forwards its calls to the host.

The program uses only the standard library. The host does not trust the program's messages.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import resource
import sys

TYPE_CHECKING = False  # importing `typing` would take a third of the start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Report = tuple[str, str, list[tuple[int, str]]]


def send(channel: int, message: Any) -> None:
    """Send a line of JSON to the host."""
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(channel, data) :]


def bind(
    name: str, refusal: type[Exception], longest: int, ask: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return a function that forwards the code's calls to the host."""

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            size = len(json.dumps([args, kwargs], allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            raise refusal(
                "arguments must be JSON: strings, finite numbers, booleans, None, lists and dicts "
                "of these"
            ) from None
        if size > longest:
            raise refusal(f"arguments must have at most {longest} characters, got {size}")
        answer = ask({"call": [name, args, kwargs]})
        if "error" in answer:
            raise refusal(answer["error"])
        return answer["text"]

    function.__name__ = function.__qualname__ = name
    return function


def describe(error: BaseException, kind: str) -> Report:
    """Return the kind, message and frames of an exception in the code."""
    frames, trace = [], error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == "<code>":
            frames.append((trace.tb_lineno, trace.tb_frame.f_code.co_name))
        trace = trace.tb_next
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - `str` may run the policy's code, which may raise anything
        text = ""
    if isinstance(error, SyntaxError):
        text = error.msg
        frames = frames or [(error.lineno or 0, "<module>")]
    return kind, f"{type(error).__name__}: {text[:10_000]}".removesuffix(": "), frames[-10:]


def execute(code: str, names: dict[str, Any]) -> Report:
    """Run the code and return its outcome."""
    try:
        program = compile(code, "<code>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        return describe(error, "refused")
    try:
        exec(program, names)
    except MemoryError as error:
        names.clear()  # frees memory that `describe` needs
        return describe(error, "memory")
    except BaseException as error:  # noqa: BLE001 - the policy sees any exception of its code, even SystemExit
        return describe(error, "exception")
    return "", "", []


def main() -> None:
    """Run one job."""
    channel = os.dup(0)  # the code's stdin is empty
    nothing, end_of_nothing = os.pipe()
    os.dup2(nothing, 0)
    os.close(nothing)
    os.close(end_of_nothing)
    lines = open(channel, "rb", closefd=False)  # noqa: SIM115 - a descriptor, open until the end
    lock = _thread.allocate_lock()

    def ask(message: Any) -> Any:
        with lock:
            send(channel, message)
            return json.loads(lines.readline())

    refusal = type("ToolError", (RuntimeError,), {"__module__": "__main__"})
    job = ask({"ready": True})
    functions = {name: bind(name, refusal, job["longest"], ask) for name in job["names"]}
    for limit, most in job["limits"].items():
        resource.setrlimit(getattr(resource, limit), (most, most))
    end = execute(job["code"], {"__name__": "__main__", "ToolError": refusal, **functions})
    with contextlib.suppress(
        OSError, ValueError, AttributeError
    ):  # the code may have closed or replaced stdout
        sys.stdout.flush()
    send(channel, {"done": end})
    os._exit(0)


if __name__ == "__main__":
    main()
