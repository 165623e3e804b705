"""Memory managed by the policy: files that survive context edits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

import gymnasium

from agentgym.assemble.wrapper_order import Stage, StagedWrapper
from agentgym.text.messages import Chat
from agentgym.text.tools import Toolset, tool
from agentgym.text.validation import check_int
from agentgym.wrappers.memory_store import ROOT, Files, MemoryLimits, run

NOTES = f"""# Memory
The tool `memory` keeps text files under {ROOT}. View {ROOT} before anything else: it may hold what you need. \
The context may be cleared at any time, and only what is stored in the memory stays, so store what you find out and how far \
you have come as you go."""

_MAX_CHARS = 1_000_000_000  # no realistic notes are longer


class MemoryTool(StagedWrapper[Chat, str, Chat, str]):
    """Wrapper that adds a tool `memory` to view, create, edit, delete and rename text files.

    Each reset empties the memory; snapshots include its files.

    Args:
        max_file_chars: The maximum number of characters per file.
        max_total_chars: The maximum number of characters of all files together.
        max_files: The maximum number of files.

    Example:
        >>> env = MemoryTool(gymnasium.make("agentgym/ListWorld-v0"))
    """

    stage: ClassVar[Stage] = Stage.TOOLS

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        max_file_chars: int = 32_768,
        max_total_chars: int = 262_144,
        max_files: int = 64,
    ) -> None:
        check_int("max_file_chars", max_file_chars, 1, _MAX_CHARS)
        check_int("max_total_chars", max_total_chars, 1, _MAX_CHARS)
        check_int("max_files", max_files, 1, _MAX_CHARS)
        super().__init__(
            env,
            max_file_chars=max_file_chars,
            max_total_chars=max_total_chars,
            max_files=max_files,
        )
        limits = MemoryLimits(max_file_chars, max_total_chars, max_files)
        self.toolset = MemoryTools(limits)
        self.world_env.mount(self.toolset, NOTES)


class MemoryTools(Toolset):
    """Toolset of the memory; `files` maps paths to texts and is never modified in place."""

    episode_state: ClassVar[tuple[str, ...]] = ("files",)

    def __init__(self, limits: MemoryLimits) -> None:
        self.limits = limits
        self.files: Files = {}

    def begin(self) -> None:
        self.files = {}

    @contextmanager
    def transaction(self) -> Iterator[None]:
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
        self.files, answer = run(self.files, command, arguments, self.limits)
        return answer
