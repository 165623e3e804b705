"""The memory tool: commands, storage, path traversal, and atomic changes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
import unicodedata
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentgym
from agentgym import ToolCall, ToolError
from agentgym.assemble.wrapper_order import Stage
from agentgym.wrappers import memory as module
from agentgym.wrappers.memory import MemoryTool, MemoryTools
from agentgym.wrappers.memory_store import _COMMANDS, Files, MemoryLimits

ROOMY, SMALL = MemoryLimits(32_768, 262_144, 64), MemoryLimits(9, 20, files=4)
ACUTE, DECOMPOSED = "\u00e9", "e\u0301"
TAKES = {command: takes for command, (_, takes) in _COMMANDS.items()}


class Memory(MemoryTools):
    """The tool over a dict or a folder, with positional arguments and access to its whole content."""

    def __init__(self, folder: Path | None = None, limits: MemoryLimits = ROOMY) -> None:
        super().__init__(
            limits, None if folder is None else module.FolderStore(str(folder), "mine", limits)
        )

    def __call__(self, command: Any, *values: Any) -> str:
        return self.memory(command, **dict(zip(TAKES[command], values, strict=False)))

    def all(self) -> Files:
        if self.shared is None:
            return self.files
        with module._locked(self.shared._lock):
            return self.shared._read()[0]

    def refuses(self, why: str, *call: Any) -> None:
        before = self.all()
        with pytest.raises(ToolError, match=why) as caught:
            self(*call)
        assert self.all() == before
        assert len(str(caught.value)) < 500


@pytest.fixture(params=["dict", "folder"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Memory:
    return Memory(tmp_path if request.param == "folder" else None)


class Naive:
    """A naive model of the commands."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, ...], str] = {}

    def names(self, path: str) -> tuple[str, ...]:
        assert all([path[:1] == "/", path[:2] != "//", "\x07" not in path])
        first, *names = [
            name for name in unicodedata.normalize("NFC", path).split("/") if name not in ("", ".")
        ] or [""]
        assert all([first == "memories", ".." not in names, len(names) <= 8])
        return tuple(names)

    def tree(self, top: tuple[str, ...]) -> list[tuple[str, ...]]:
        return [file for file in self.files if file[: len(top)] == top]

    def write(self, file: tuple[str, ...], text: str) -> None:
        after = {**self.files, file: text}
        assert all(
            [
                len(text) <= SMALL.file_chars,
                len(after) <= SMALL.files,
                len("".join(after.values())) <= SMALL.total_chars,
            ]
        )
        self.files = after

    def create(self, path: str, text: str) -> None:
        file = self.names(path)
        assert file in self.files or not any(
            [not file, self.tree(file), *(file[:k] in self.files for k in range(len(file)))]
        )
        self.write(file, text)

    def str_replace(self, path: str, old: str, new: str) -> None:
        text = self.files.get(self.names(path), "")
        places = [k for k in range(len(text)) if old and text[k : k + len(old)] == old]
        assert len(places) == 1
        self.write(self.names(path), text[: places[0]] + new + text[places[0] + len(old) :])

    def insert(self, path: str, line: int, inserted: str) -> None:
        assert all([self.names(path) in self.files, inserted])
        text = self.files[self.names(path)]
        old, new = (
            each[:-1] if each[-1] == "" else each
            for each in (text.split("\n"), inserted.split("\n"))
        )
        assert 0 <= line <= len(old)
        last = inserted if line == len(old) else text
        self.write(
            self.names(path),
            "\n".join([*old[:line], *new, *old[line:]]) + "\n" * last.endswith("\n"),
        )

    def delete(self, path: str) -> None:
        gone = self.tree(self.names(path))
        assert all([gone, self.names(path)])
        self.files = {file: text for file, text in self.files.items() if file not in gone}

    def rename(self, old_path: str, new_path: str) -> None:
        old, new = self.names(old_path), self.names(new_path)
        assert all([old, new, self.tree(old), not self.tree(new), new[: len(old)] != old])
        assert not any(new[:k] in self.files for k in range(len(new)))
        moved = {file: new + file[len(old) :] for file in self.tree(old)}
        assert all(len(file) <= 8 for file in moved.values())
        self.files = {moved.get(file, file): text for file, text in self.files.items()}


GOOD = ["/memories/a", "/memories/a/b", "/memories/b/", "/memories/./b/a", f"/memories/b/a/{ACUTE}"]
BAD = ["/memories/..", "/", "", "a", "//memories/a", "/memories/\x07", "/memories/1/2/3/4/5/6/7/8"]
PATHS = st.one_of(
    st.sampled_from(GOOD),
    st.lists(st.sampled_from(["a", "b", "a.x", "a-", DECOMPOSED, ".", ""]), max_size=4).map(
        lambda n: "/".join(["/memories", *n])
    ),
    st.sampled_from(BAD),
)
TEXTS = st.text("ab\n\r\t" + ACUTE, max_size=10)
COMMANDS = st.one_of(
    *[st.tuples(st.just("create"), PATHS, TEXTS)] * 2,
    st.tuples(st.just("str_replace"), PATHS, st.text("ab\n", max_size=2), TEXTS),
    st.tuples(st.just("insert"), PATHS, st.integers(-1, 4), TEXTS),
    st.tuples(st.just("delete"), PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
)


def agree(memory: Memory, commands: list[Any]) -> None:
    naive = Naive()
    for command, *values in commands:
        try:
            getattr(naive, command)(*values)
        except AssertionError:
            memory.refuses(".", command, *values)
        else:
            memory(command, *values)
        assert memory.all() == {
            "/".join(("/memories", *file)): text for file, text in naive.files.items()
        }


@settings(max_examples=250, deadline=None)
@given(st.lists(COMMANDS, max_size=12), st.integers(0, 3))
def test_the_commands_do_what_a_plain_implementation_does(commands: list[Any], kind: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        agree(Memory(None if kind else Path(folder), SMALL), commands)
        assert all(
            names or files
            for top, names, files in os.walk(folder)
            if top not in (folder, f"{folder}/mine")
        )
        assert {path.name for path in Path(folder).iterdir()} <= {"mine", ".mine~lock"}


def test_views(memory: Memory) -> None:
    assert memory("view", "/memories") == "/memories/ is empty"
    assert (
        memory("create", "/memories/d/e/f/g", "12345")
        == "created /memories/d/e/f/g (characters: 5)"
    )
    memory("create", "/memories/d/z", "1")
    memory("create", "/memories/d-", "")
    answer = (
        memory("view", "/memories/")
        .replace("\n/memories/", " ")
        .replace("files: ", "")
        .replace("characters: ", "")
    )
    assert answer == "/memories/ (3, 6) d/ (2, 6) d/e/ (1, 5) d/z (1) d- (0)"
    assert memory("view", "/memories/d-") == "/memories/d- is an empty file"
    memory("create", "/memories/d-", "a\r\n\tb\u2028\n\n")
    assert (
        memory("view", "/memories/d-")
        == "/memories/d-, lines 1 to 3 of 3:\n1\ta\r\n2\t\tb\u2028\n3\t\n"
    )
    assert memory("view", "/memories/d-", [3, -1]).endswith("lines 3 to 3 of 3:\n3\t\n")
    wrong_ranges = [[2, 1], [0, 1], [5, 9], [4, -1], [-1, -1], [1, -2], [1], [1, 2, 3], []]
    for wrong in [*wrong_ranges, [True, 2], [1, True]]:
        memory.refuses("view_range must be", "view", "/memories/d-", wrong)


REFUSED = """
str_replace f aa x: begins at line 1 and again at line 1; include more
str_replace f B x: does not contain old_str; view it
str_replace d a x: is a directory, not a file; view it
view nothing: there is no .*; view /memories to see
create d/1 x: is a directory; name a file in it
create f/g x: is a file, so nothing can be below it
create f: ^create takes path, file_text: file_text is missing$
delete .: itself cannot be deleted
rename / /memories/n: itself cannot be renamed
rename d /memories/d/1/x: itself or in it
rename d /memories/f: already; delete it first
rename d /memories/f/x: nothing can be below it
rename d /memories/x/y/d: more than 8 names
"""


def test_commands_that_are_refused(memory: Memory) -> None:
    memory("create", "/memories/f", "aaa\nb\nb")
    memory("create", "/memories/d/1/2/3/4/5/6", "")
    for line in REFUSED.strip().split("\n"):
        call, why = line.split(": ", 1)
        command, path, *values = call.split()
        memory.refuses(why, command, f"/memories/{path}", *values)
    with pytest.raises(
        ToolError,
        match=r"^view takes path, view_range .optional.: path is missing, old_path is not one of them",
    ):
        memory.memory("view", old_path="/memories")
    memory.refuses("is a directory, view_range is for files", "view", "/memories/d", [1, 2])
    memory.refuses("old_str is empty", "str_replace", "/memories/f", "", "x")
    memory.refuses("insert_text is empty", "insert", "/memories/f", 0, "")
    for wrong, number in [("a\0", -1), ("\ud800", 4), ("\udfffb", True)]:
        memory.refuses("file_text contains NUL or a lone surrogate", "create", "/memories/f", wrong)
        memory.refuses("insert_line must be in .0, 3.", "insert", "/memories/f", number, "x")


def test_limits(tmp_path: Path) -> None:
    large, memory = Memory(tmp_path), Memory(tmp_path, SMALL)
    for path, text in [("0", "123456789"), ("1", "12345678"), ("2", "123"), ("d/3", "")]:
        memory("create", f"/memories/{path}", text)
    for call in (["insert", "/memories/0", 0, "\n"], ["create", "/memories/4", "0" * 10]):
        memory.refuses("would be 10 characters long, at most 9", *call)
    memory.refuses("would hold 21 characters, at most 20", "create", "/memories/2", "1234")
    memory.refuses("holds 4 files, at most 4", "create", "/memories/4", "")
    large("create", "/memories/d/4", "1234567890a")
    # Content over the limits can still be viewed, moved and shortened.
    memory("rename", "/memories/d", "/memories/e")
    memory("str_replace", "/memories/e/4", "a", "")
    memory.refuses("at most 9", "str_replace", "/memories/e/4", "1", "00")
    assert memory("delete", "/memories/e") == "deleted /memories/e (files: 2)"


ATTACKS = {
    "contains '..'": "/memories/../x /memories/./.. /memories/a/../../x /memories/a/../a /../memories/x",
    "not in the memory": "//memories/x ///memories/x /memoriesevil/x.txt /Memories/x / /etc/x x ~/x",
    "backslash": r"\..\ /memories/..\x C:\x",
    "control character": "/memories/a\0b /memories/a\x07b /memories/\x7f /memories/\u2028 /memories/\ud800",
    "more than 8 names": "/memories/1/2/3/4/5/6/7/8/9",
    "more than 255 bytes": f"/memories/{'n' * 256} /memories/{ACUTE * 128}",
    "too long": f"/memories/{'n' * 5_000} /memories/" + "\u0315\u0300" * 100_000,
}


@pytest.mark.parametrize("why", ATTACKS)
def test_paths_that_are_refused(memory: Memory, why: str) -> None:
    memory("create", "/memories/a/b", "x")
    paths = ATTACKS[why].split(" ")
    for path in paths:
        memory.refuses(why, "create", path, "")
        memory.refuses(why, "str_replace", path, "x", "")
        memory.refuses(why, "insert", path, 0, "x")
        memory.refuses(why, "view", path)
        memory.refuses(why, "delete", path)
        memory.refuses(why, "rename", path, "/memories/c")
        memory.refuses(why, "rename", "/memories/a", path)


def test_texts_are_kept_verbatim_in_files_of_odd_names(memory: Memory) -> None:
    names = ["%2e%2e/x", "\uff0e\uff0e/x", "~", "...", " ", ".hidden", "memories/memories"]
    names += ["/".join(["n" * 255] * 8), "a", "a.b"]
    texts = ["", "\n", "a", "a\n", "a\r\nb\r", "\t\ta  ", "\ufeffx", "😀\u0301", "\x0b\x1b"]
    texts += ["\u2028b\x85"]
    for name, text in zip(names, texts, strict=True):
        memory("create", "/memories/x", text)
        memory("insert", "/memories/x", 0, "top\r\n")
        memory("str_replace", "/memories/x", "top\r\n", "")
        memory("rename", "/memories/x", f"/memories//./{name}/")
    assert memory.all() == {
        f"/memories/{name}": text for name, text in zip(names, texts, strict=True)
    }


def test_what_is_no_text_file_is_neither_shown_nor_followed_nor_touched(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "store")
    inside, outside = tmp_path / "store" / "mine", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (inside / "d").mkdir()
    (inside / "file").symlink_to(outside / "secret")
    (inside / "d" / "folder").symlink_to(outside)
    os.mkfifo(inside / "pipe")
    contents = {"binary": b"\xff", "nul": b"\0", DECOMPOSED: b"", "a\\b": b""}
    for name, content in {**contents, "big": b"x" * (4 * 262_144 + 1)}.items():
        (inside / name).write_bytes(content)
    before = sorted(inside.rglob("*"))
    memory("create", "/memories/ok", "x")
    assert memory.all() == {"/memories/ok": "x"}
    for name in "file file/x d/folder d/folder/secret d pipe binary nul big".split():
        why, path = "is no text file and must stay", f"/memories/{name}"
        memory.refuses(why, "create", path, "")
        memory.refuses(why, "rename", "/memories/ok", path)
    memory("create", "/memories/d/x", "x")
    memory.refuses("must stay", "delete", "/memories/d")
    memory("delete", "/memories/d/x")
    memory("delete", "/memories/ok")
    assert (sorted(inside.rglob("*")), (outside / "secret").read_text()) == (before, "secret")
    inside.rename(tmp_path / "moved")
    inside.symlink_to(outside)
    with pytest.raises(ToolError, match="its folder is a link"):
        memory("view", "/memories")
    with pytest.raises(ValueError, match="is a link, which a memory does not follow"):
        Memory(tmp_path / "store")


@pytest.mark.parametrize(
    "call", ["create /memories/a/b new", "delete /memories/a", "rename /memories/a /memories/x/y"]
)
def test_who_is_killed_leaves_the_old_state_or_the_new_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str
) -> None:
    ends = []
    for last in range(20):
        memory, fuse = Memory(tmp_path / str(last)), [0] * last
        memory("create", "/memories/a/b", "old")
        before = memory.all()
        with monkeypatch.context() as patch, suppress(IndexError):
            for name in ("mkdir", "write_bytes", "replace", "rename", "rmdir", "rmtree"):
                owner: Any = module.shutil if name == "rmtree" else Path
                real = getattr(owner, name)
                # Each call consumes a piece of the fuse; without one it raises.
                burn = lambda *v, real=real, fuse=fuse, **o: (fuse.pop(), real(*v, **o))[1]  # noqa: E731
                patch.setattr(owner, name, burn)
            memory(*call.split())
        ends.append(memory.all())
        memory("create", "/memories/x" if before == ends[-1] else "/memories/z", "next")
    changes = [old != new for old, new in pairwise(ends)]
    assert (ends[0], sum(changes), changes.index(True) > 1) == (before, 1, True)


def test_a_disk_that_fails_or_ignores_case_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    memory = Memory(tmp_path)
    memory("create", "/memories/a", "x")
    for name, call in {
        "write_bytes": ["create", "/memories/b/c", ""],
        "rename": ["delete", "/memories/a"],
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, lambda *_: (tmp_path / "nowhere").stat())
            memory.refuses(
                r"cannot be used now \(No such file or directory\); nothing was changed", *call
            )
    with monkeypatch.context() as patch:
        patch.setattr(module.FolderStore, "_read", lambda _: ({}, []))
        memory.refuses("takes this path for that of another file", "create", "/memories/a", "y")
    assert memory.all() == {"/memories/a": "x"}


HAMMER = """
import sys
from agentgym.wrappers.memory import FolderStore, MemoryLimits
store, name = FolderStore(sys.argv[1], "mine", MemoryLimits(32_768, 262_144, 64)), sys.argv[2]
for k in range(60):
    store.run("insert", {"path": "/memories/log", "insert_line": 0, "insert_text": f"{name}{k}"})
    store.run("create", {"path": f"/memories/{name}/1", "file_text": name * 5_000})
    store.run("rename", {"old_path": f"/memories/{name}", "new_path": f"/memories/{name}{k}"})
    store.run("delete", {"path": f"/memories/{name}{k}"})
"""


@pytest.mark.rotation
def test_two_processes_may_share_a_memory(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory("create", "/memories/log", "")
    both = [subprocess.Popen([sys.executable, "-c", HAMMER, str(tmp_path), name]) for name in "pq"]
    while None in [each.poll() for each in both]:
        time.sleep(0.01)
        assert all(
            text in ("p" * 5_000, "q" * 5_000)
            for path, text in memory.all().items()
            if path != "/memories/log"
        )
    assert [each.returncode for each in both] == [0, 0]
    log = sorted(f"{name}{k}" for name in "pq" for k in range(60))
    assert {path: sorted(text.split()) for path, text in memory.all().items()} == {
        "/memories/log": log
    }


def test_a_system_without_file_locks_shares_no_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_flock", None)
    with pytest.raises(
        ValueError, match="no file locks for a shared memory; use persist='episode'"
    ):
        Memory(tmp_path)


def started(**options: Any) -> MemoryTool:
    env = MemoryTool(agentgym.make("ListWorld", items=40, removals=30), **options)
    env.reset(seed=0)
    return env


def ask(env: gymnasium.Env[Any, Any], command: str, *values: Any) -> str:
    call = ToolCall(
        "memory", {"command": command, **dict(zip(TAKES[command], values, strict=False))}
    )
    chat, *_ = env.step(agentgym.render(call))
    return str(chat.messages[-1].text)


def test_a_memory_of_an_episode_belongs_to_its_snapshots_and_copies() -> None:
    env = started()
    inner = agentgym.tool_env(env)
    assert inner.chat.messages[0].text.endswith("as you go.")
    assert ask(env, "create", "/memories/a", "x</y>\n") == "created /memories/a (characters: 6)"
    moment, copies = inner.snapshot(), [agentgym.clone(env), pickle.loads(pickle.dumps(env))]
    assert [ask(env, "delete", "/memories/a")[:16] for _ in range(2)] == [
        "deleted /memorie",
        "error: there is ",
    ]
    for each in copies:
        assert ask(each, "view", "/memories/a") == "/memories/a, lines 1 to 1 of 1:\n1\tx</y>\n"
    inner.restore(moment)
    assert ask(env, "insert", "/memories/a", 1, "z") == "inserted after line 1 of /memories/a"
    env.reset()
    assert ask(env, "view", "/memories") == "/memories/ is empty"


def test_a_memory_of_a_namespace_outlives_episodes_and_envs(tmp_path: Path) -> None:
    first = started(persist="namespace", namespace="n", folder=str(tmp_path / "new"))
    ask(first, "create", "/memories/a/b", "x\r\n")
    first.reset()
    assert (tmp_path / "new" / "n" / "a" / "b").read_bytes() == b"x\r\n"
    second = gymnasium.make(first.spec)
    second.reset(seed=1)
    assert ask(second, "rename", "/memories/a/b", "/memories/c").startswith("renamed")
    assert "/memories/c (characters: 3)" in ask(agentgym.clone(first), "view", "/memories")
    other = ask(
        started(persist="namespace", namespace="n.2", folder=str(tmp_path / "new")),
        "view",
        "/memories",
    )
    assert other == "/memories/ is empty"


def test_options_and_the_place_in_a_stack_are_checked() -> None:
    shared = {"persist": "namespace", "folder": "x"}
    for options, why in [
        ({"persist": "ever"}, "persist must be one of episode, namespace"),
        *(
            ({name: 0}, f"{name} must be an integer")
            for name in ("max_files", "max_file_chars", "max_total_chars")
        ),
        ({"folder": "x"}, "add persist='namespace'"),
        ({**shared, "folder": ""}, "give the path of a folder"),
        *(
            ({**shared, "namespace": name}, "namespace must be")
            for name in ("", ".", "..", "a/b", "n" * 65, "a\n")
        ),
    ]:
        with pytest.raises(ValueError, match=why):
            started(**options)
    late = type("Late", (gymnasium.Wrapper,), {"stage": Stage.TRIM})
    with pytest.raises(ValueError, match=r"MemoryTool \(tools\) must go inside Late"):
        MemoryTool(late(agentgym.make("ListWorld")))
    with pytest.raises(ValueError, match="a tool named memory already exists"):
        MemoryTool(started())
