"""Memory managed by the policy: files that survive context edits."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium

from agentgym.assemble.wrapper_order import Stage, StagedWrapper
from agentgym.text.messages import Chat
from agentgym.text.tools import ToolError, Toolset, echo, tool
from agentgym.text.validation import check_choice, check_int
from agentgym.wrappers.memory_store import (
    ROOT,
    Delete,
    FileEdit,
    Files,
    MemoryLimits,
    Move,
    Write,
    apply_edit,
    canonical,
    run,
    within,
)

NOTES = f"""# Memory
The tool `memory` keeps text files under {ROOT}. View {ROOT} before anything else: it may hold what you need. \
The context may be cleared at any time, and only what is stored in the memory stays, so store what you find out and how far \
you have come as you go."""

_flock: Callable[[int, int], None] | None = None
with suppress(ImportError):  # missing on Windows and WebAssembly
    from fcntl import LOCK_EX
    from fcntl import flock as _flock

_MAX_CHARS = 1_000_000_000  # more than any disk of notes
_NAMESPACE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class MemoryTool(StagedWrapper[Chat, str, Chat, str]):
    """Wrapper that adds a tool `memory` to view, create, edit, delete and rename text files.

    Args:
        persist: `episode`: the memory is empty at each reset, and snapshots contain it.
            `namespace`: episodes, envs and processes share `folder/namespace` on disk, and
            snapshots do not contain it.
        namespace: The name of the shared memory: letters, digits and `._-`, not starting with a
            dot.
        folder: The folder of shared memories. Only trusted users may have write access.
        max_file_chars: The maximum characters per file.
        max_total_chars: The maximum characters of all files.
        max_files: The maximum number of files.

    Raises:
        ValueError: An option is invalid or unsuitable for this `persist`, or the wrapper is out of
            order.
        OSError: The folder cannot be created.

    Example:
        >>> env = MemoryTool(gymnasium.make("agentgym/ListWorld-v0"))
    """

    stage: ClassVar[Stage] = Stage.TOOLS

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        persist: Literal["episode", "namespace"] = "episode",
        namespace: str = "",
        folder: str = "",
        max_file_chars: int = 32_768,
        max_total_chars: int = 262_144,
        max_files: int = 64,
    ) -> None:
        check_choice("persist", persist, ("episode", "namespace"))
        check_int("max_file_chars", max_file_chars, 1, _MAX_CHARS)
        check_int("max_total_chars", max_total_chars, 1, _MAX_CHARS)
        check_int("max_files", max_files, 1, _MAX_CHARS)
        super().__init__(
            env,
            persist=persist,
            namespace=namespace,
            folder=folder,
            max_file_chars=max_file_chars,
            max_total_chars=max_total_chars,
            max_files=max_files,
        )
        limits = MemoryLimits(max_file_chars, max_total_chars, max_files)
        self.toolset = MemoryTools(limits, _shared(persist, namespace, folder, limits))
        self.world_env.mount(self.toolset, NOTES)


def _shared(persist: str, namespace: str, folder: str, limits: MemoryLimits) -> FolderStore | None:
    if persist == "episode":
        if namespace or folder:
            raise ValueError(
                "namespace and folder are for a memory that outlives the episode; add "
                "persist='namespace'"
            )
        return None
    if not isinstance(folder, str) or not folder:
        raise ValueError(
            "persist='namespace' keeps the memory on disk; give the path of a folder for it, got "
            f"{folder!r}"
        )
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise ValueError(
            "namespace must be 1 to 64 of A-Z, a-z, 0-9, '.', '_', '-', not beginning with '.', "
            f"got {namespace!r}"
        )
    return FolderStore(folder, namespace, limits)


class MemoryTools(Toolset):
    """Toolset of the memory.

    `files` maps paths to texts and is never modified in place.
    """

    episode_state: ClassVar[tuple[str, ...]] = ("files",)

    def __init__(self, limits: MemoryLimits, shared: FolderStore | None = None) -> None:
        self.limits = limits
        self.shared = shared
        self.files: Files = {}

    def begin(self) -> None:
        """Reset the memory for a new episode."""
        self.files = {}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Restore the files if a call fails; edits of a folder are atomic."""
        before = self.files
        try:
            yield
        except BaseException:
            self.files = before
            raise

    @tool
    def memory(
        self,
        command: Literal["view", "create", "str_replace", "insert", "delete", "rename"],
        path: str | None = None,
        view_range: list[int] | None = None,
        file_text: str | None = None,
        old_str: str | None = None,
        new_str: str | None = None,
        insert_line: int | None = None,
        insert_text: str | None = None,
        old_path: str | None = None,
        new_path: str | None = None,
    ) -> str:
        """Read and write text files under /memories. Each command takes the arguments that name it, and no others.

        Args:
            command: What to do.
            path: All but rename: the file or directory, such as /memories/notes.md.
            view_range: view, optional: first and last line to show of a file, from 1; -1 as last is the end.
            file_text: create: the whole text of the file, which is overwritten if it exists; directories are made as needed.
            old_str: str_replace: the text to replace, which must occur exactly once.
            new_str: str_replace: what to put in its place, empty to remove it.
            insert_line: insert: the number of the line to insert after, 0 for the top.
            insert_text: insert: the text to insert, as lines of their own.
            old_path: rename: the file or directory to rename or move.
            new_path: rename: its new path, at which there must be nothing.
        """
        arguments = {name: value for name, value in locals().items() if value is not None}
        del arguments["self"], arguments["command"]
        if self.shared is not None:
            return self.shared.run(command, arguments)
        edit, answer = run(self.files, command, arguments, self.limits)
        self.files = apply_edit(self.files, edit)
        return answer


class FolderStore:
    """Memory in a folder of UTF-8 files that processes can share.

    Each command takes a lock and rereads the folder, and each edit takes effect in one rename, so a
    killed process leaves either the old or the new state; a power loss may cost the newest edits.
    Links and other files that are not memory files are neither shown, followed nor changed.

    Raises:
        ValueError: The folder is a link, or the system has no file locks.
    """

    def __init__(self, folder: str, namespace: str, limits: MemoryLimits) -> None:
        if _flock is None:
            raise ValueError(
                f"this system ({sys.platform}) has no file locks for a shared memory; use "
                "persist='episode'"
            )
        base = Path(folder).absolute()
        self.limits = limits
        self._root = base / namespace
        # Namespaces contain no tilde, so these names cannot collide with one.
        self._lock, self._scratch = base / f".{namespace}~lock", base / f".{namespace}~scratch"
        if self._root.is_symlink():
            raise ValueError(
                f"{self._root} is a link, which a memory does not follow; name the folder that it "
                "leads to"
            )
        self._root.mkdir(parents=True, exist_ok=True)

    def run(self, command: str, arguments: Mapping[str, Any]) -> str:
        """Run a command and return its answer.

        Raises:
            ToolError: The command failed and changed nothing.
        """
        try:
            with _locked(self._lock):
                files, strange = self._read()
                edit, answer = run(files, command, arguments, self.limits)
                if edit is not None:
                    _check_strange(edit, strange)
                    self._carry_out(edit, files)
                return answer
        except OSError as error:
            raise ToolError(
                f"the memory cannot be used now ({error.strerror or 'refused'}); nothing was "
                "changed"
            ) from error

    def _read(self) -> tuple[Files, list[str]]:
        if self._root.is_symlink():
            raise ToolError("the memory cannot be used, for its folder is a link; go on without it")
        self._root.mkdir(exist_ok=True)
        files: dict[str, str] = {}
        strange: list[str] = []
        pending = [(str(self._root), ROOT)]
        while pending:
            real, path = pending.pop()
            for entry in list(os.scandir(real)):
                name = f"{path}/{entry.name}"
                if not _is_canonical(name):
                    strange.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, name))
                elif (text := self._text(entry)) is None:
                    strange.append(name)
                else:
                    files[name] = text
        return files, strange

    def _text(self, entry: os.DirEntry[str]) -> str | None:
        most = 4 * self.limits.total_chars  # UTF-8 uses up to 4 bytes per character
        if not entry.is_file(follow_symlinks=False):
            return None
        if entry.stat(follow_symlinks=False).st_size > most:
            return None
        try:
            text = Path(entry.path).read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            return None
        return None if "\0" in text else text

    def _real(self, path: str) -> Path:
        return self._root / path[len(ROOT) + 1 :]

    def _carry_out(self, edit: FileEdit, files: Files) -> None:
        if os.path.lexists(self._scratch):
            shutil.rmtree(self._scratch)  # left by a killed process
        self._scratch.mkdir()
        old, new = self._real(edit.path), self._scratch / "text"
        try:
            match edit:
                case Write(path, text):
                    new.write_bytes(text.encode("utf-8"))
                    new.replace(old if path in files else _vacant(old))
                case Delete():
                    old.rename(new)
                case Move(_, target):
                    old.rename(_vacant(self._real(target)))
            with suppress(OSError):  # the first non-empty directory ends the loop
                for parent in old.relative_to(self._root).parents[:-1]:
                    (self._root / parent).rmdir()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)


def _vacant(place: Path) -> Path:
    for folder, _, _ in os.walk(place, topdown=False):
        Path(folder).rmdir()  # empty folders left by a killed process
    if os.path.lexists(place):  # case-insensitive disks have several names for a file
        raise ToolError("the disk takes this path for that of another file; choose another name")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _is_canonical(path: str) -> bool:
    try:
        return canonical(path) == path
    except ToolError:
        return False


def _check_strange(edit: FileEdit, strange: list[str]) -> None:
    for path in (edit.path, edit.target) if isinstance(edit, Move) else (edit.path,):
        for name in strange:
            if within(name, path) or within(path, name):
                raise ToolError(
                    f"what is at {echo(name)} is no text file and must stay as it is; choose "
                    "another path"
                )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    assert _flock is not None  # `FolderStore` has checked it
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        _flock(lock, LOCK_EX)
        yield
    finally:
        os.close(lock)
