"""Run files, which have one writer at a time and are replaced atomically."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, Any, Self, TypeVar

from agentgym.training.rollout.lines import read_chunks, torn_at

T = TypeVar("T")
# Longer settings are not quoted in errors; wrappers' settings have thousands of characters.
_SHOWN = 160
LOCK = ".lock"
# Errors raised by file systems without locks, such as Lustre without the mount option `flock`.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

if sys.platform == "win32":
    import msvcrt

    # Windows blocks reads of locked bytes, so lock a byte beyond the lock holder's description.
    _BEYOND = 1 << 30

    def _try_lock(descriptor: int) -> None:
        os.lseek(descriptor, _BEYOND, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class RunLockedError(OSError):
    """Error raised when another process is writing to the folder or file."""


class OtherRunError(ValueError):
    """A folder or log belongs to another run."""


class DamagedFileError(ValueError):
    """Error for an unreadable line of a run's file, or for the whole file if `line` is None."""

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        super().__init__(path, problem, line)
        self.path, self.problem, self.line = path, problem, line

    def __str__(self) -> str:
        where, run = str(self.path), self.path.parent
        if self.line:
            where, run = f"{self.path}, line {self.line}", self.path
        return f"{where}: {self.problem}; to repair it: agentgym doctor {run} --repair"


class RunLock:
    """Lock that a writer holds on a folder or file; a missing folder is created.

    The system releases the lock when the process ends, and forked processes do not inherit the
    lock. One lock object may be entered repeatedly, from any thread. Two lock objects for the same
    path exclude each other, even in one process.

    Raises:
        RunLockedError: Raised on entering if another writer holds the lock.
        OSError: Raised on entering if the lock file cannot be created or locked.
    """

    def __init__(self, target: Path, *, folder: bool = True) -> None:
        self.target, self._folder = target, folder
        self.path = target / LOCK if folder else target.with_name(target.name + LOCK)
        self._depth, self._descriptor, self._mutex = 0, -1, threading.Lock()

    def __enter__(self) -> Self:
        with self._mutex:
            if not self._depth:
                self._acquire()
            self._depth += 1
        return self

    def __exit__(self, *error: object) -> None:
        with self._mutex:
            self._depth -= 1
            if self._depth or self._descriptor < 0:
                return
            with suppress(OSError):  # Windows cannot remove open files
                self.path.unlink()
            self._close()

    def check(self) -> None:
        """Raise `RunLockedError` if another writer holds the lock, without writing to the file."""
        with (
            suppress(FileNotFoundError, PermissionError),
            self.path.open("rb+", buffering=0) as file,
        ):
            self._lock(file.fileno())

    def _acquire(self) -> None:
        if not self._folder:
            check_regular(self.target)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while self._descriptor < 0:
            with ExitStack() as stack:
                # A downloaded folder may contain a link to one of the user's files.
                flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
                descriptor = os.open(self.path, flags, 0o666)
                stack.callback(os.close, descriptor)
                self._lock(descriptor)
                # The last holder may have removed the lock file after this process opened it.
                if self._is_current(descriptor):
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, _holder().encode())
                    stack.pop_all()
                    self._descriptor = descriptor
        _HELD.add(self)

    def _lock(self, descriptor: int) -> None:
        try:
            _try_lock(descriptor)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise OSError(
                    f"the file system of {self.target} does not support locks ({error.strerror}), so two "
                    "processes could corrupt a run there; choose a folder on another file system"
                ) from None
            raise RunLockedError(
                f"{self.target} is being written by {_describe(descriptor)}; wait until that "
                "process has ended, stop it, or choose another place"
            ) from None

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        _HELD.discard(self)
        os.close(self._descriptor)
        self._descriptor = -1

    def _forget(self) -> None:
        # An open copy of the descriptor would hold the lock after the parent's death. Closing the
        # copy does not release the lock.
        self._mutex = threading.Lock()
        self._close()


_HELD: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_HELD):
        lock._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _holder() -> str:
    return json.dumps(
        {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )


def _describe(descriptor: int) -> str:
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder: dict[str, Any] = json.loads(os.read(descriptor, 4096))
        who = f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process, which has just started"
    mine = holder["pid"] == os.getpid() and holder["host"] == socket.gethostname()
    return f"{who} (this process)" if mine else who


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a temporary file and rename the file when it is complete and flushed."""
    part = path.with_name(f"{path.name}.new")
    part.unlink(missing_ok=True)  # remove a link or a file left by an earlier process
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)  # noqa: PTH105 - atomic on every system
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def read_json(path: Path, read: Callable[[Any], T]) -> T | None:
    """Read a JSON settings file and convert it with `read`; return None if the file is missing.

    Raises:
        DamagedFileError: The file is unreadable, or `read` raised `ValueError`.
    """
    if not path.exists():
        return None
    try:
        if not (data := path.read_bytes()).strip():
            raise ValueError("it is empty")
        return read(json.loads(data))
    except (RecursionError, ValueError) as error:
        raise DamagedFileError(path, f"it contains no run settings ({error})") from None


def read_settings(path: Path, defaults: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read settings like `read_json`, and check names and types against the defaults."""
    return read_json(path, lambda data: check_settings(data, defaults))


def check_settings(settings: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, or raise `ValueError` if names or types differ from the defaults."""
    if not isinstance(settings, dict) or settings.keys() != defaults.keys():
        raise ValueError("setting names must match the defaults")
    for name, value in settings.items():
        expected = defaults[name]
        if None not in (value, expected) and type(value) is not type(expected):
            raise ValueError(f"{name} is {value!r}")
    return settings


def keep_settings(
    path: Path,
    settings: Mapping[str, Any],
    kept: Mapping[str, Any] | None,
    place: Path | None = None,
) -> None:
    """Write a run's settings, or raise `OtherRunError` if the existing settings (`kept`) differ."""
    if kept is None:
        write_text(path, json.dumps(settings, indent=1) + "\n")
    elif kept != settings:
        name = next(name for name in settings if kept.get(name) != settings[name])
        old, new = (json.dumps(run.get(name)) for run in (kept, settings))
        values = f" is {old} and not {new}" if len(old + new) < _SHOWN else " differs"
        raise OtherRunError(
            f"{place or path.parent} contains a run with other settings: its {name}{values} (see "
            f"{path.name}); choose another place, or delete that run"
        )


@contextmanager
def filling(folder: Path, last: str) -> Iterator[Path]:
    """Yield an empty folder, then move each of its files atomically to `folder`, ending with
    `last`.
    """
    part = folder / ".new"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        for file in sorted(part.iterdir(), key=lambda file: (file.name == last, file.name)):
            with file.open("rb+") as written:
                os.fsync(written.fileno())
            os.replace(file, folder / file.name)  # noqa: PTH105 - atomic on every system
    finally:
        shutil.rmtree(part, ignore_errors=True)
    _sync_folder(folder)


def append_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Append text to a file like `append_bytes`."""
    append_bytes(path, text.encode("utf-8"), sync=sync)


def append_bytes(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Append whole lines to a file; after an error, the file is unchanged."""
    check_no_link(path)
    with path.open("ab", buffering=0) as file:
        end, rest = file.seek(0, os.SEEK_END), memoryview(data)
        try:
            while rest:
                rest = rest[file.write(rest) :]
            if sync:
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                file.truncate(end)
            raise


def cut_torn_line(path: Path) -> None:
    """Remove an incomplete last line."""
    check_no_link(path)
    if path.exists() and (keep := torn_at(path)) != path.stat().st_size:
        with path.open("rb+") as file:
            file.truncate(keep)


def check_no_link(path: Path) -> None:
    """Raise `OSError` if a path is a symbolic link."""
    # A link in a downloaded folder may point to any file.
    if path.is_symlink():
        raise OSError(errno.ELOOP, "this is a link; give the file that it points to", str(path))


def check_regular(path: Path) -> None:
    """Raise `ValueError` unless a path is a regular file."""
    # Reading a pipe would block, and a device may be endless.
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device or a pipe"
        raise ValueError(f"{path} is {what}; give a file, such as runs/mine.jsonl")


def whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield a file's complete lines, numbered from 1."""
    if path.exists():
        check_regular(path)
        lines = chain.from_iterable(chunk.lines for chunk in read_chunks(path))
        yield from enumerate(lines, 1)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # Windows cannot open folders, and some file systems cannot sync them
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
