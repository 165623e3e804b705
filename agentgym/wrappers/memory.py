"""A memory that the policy keeps itself: text files under `/memories`, which stay when the context
is edited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

import gymnasium

from agentgym.arguments import check_choice, check_int
from agentgym.messages import Chat
from agentgym.stages import Stage, StagedWrapper
from agentgym.tools import Toolset, tool
from agentgym.wrappers.memory_folder import FolderStore
from agentgym.wrappers.memory_store import ROOT, Files, MemoryLimits, apply_edit, run

NOTES = f"""# Memory
The tool `memory` keeps text files under {ROOT}. View {ROOT} before anything else: it may hold what you need. \
The context may be cleared at any time, and only what is stored in the memory stays, so store what you find out and how far \
you have come as you go."""

_MAX_CHARS = 1_000_000_000  # more than any disk of notes; a larger number is a slip
_NAMESPACE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class MemoryTool(StagedWrapper[Chat, str, Chat, str]):
    """Wrapper that gives the policy a tool `memory` to view, create, edit, delete and rename text
    files.

    Args:
        env: The env to play.
        persist: `episode`: the memory is empty at each reset, and a snapshot of the env holds it.
            `namespace`: it lies in `folder/namespace` and is shared by all episodes, envs and
            processes that name the same; a snapshot does not hold it.
        namespace: The name of the shared memory: letters, digits and `._-`, not beginning with a
            dot.
        folder: The folder of shared memories on disk; it must not be writable for those who are not
            trusted.
        max_file_chars: The limit for the characters of one file.
        max_total_chars: The limit for the characters of all files.
        max_files: The limit for the number of files.

    Raises:
        ValueError: An option is unknown, out of range, missing or not of this `persist`, or the
            wrapper is out of order.
        OSError: The folder cannot be made.

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

    Attributes:
        files: The memory of the episode, path to text; never changed in place, and empty where the
            memory lies in a folder.
    """

    episode_state: ClassVar[tuple[str, ...]] = ("files",)

    def __init__(self, limits: MemoryLimits, shared: FolderStore | None = None) -> None:
        self.limits = limits
        self.shared = shared
        self.files: Files = {}

    def begin(self) -> None:
        """Forget the last episode."""
        self.files = {}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Return to the files before a call that fails; a folder is changed by whole files."""
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
        parameters = dict(locals())
        arguments = {
            name: value
            for name, value in parameters.items()
            if name not in ("self", "command") and value is not None
        }
        if self.shared is not None:
            return self.shared.run(command, arguments)
        edit, answer = run(self.files, command, arguments, self.limits)
        self.files = apply_edit(self.files, edit)
        return answer
