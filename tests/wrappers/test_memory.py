from __future__ import annotations

import pickle
import unicodedata
from typing import Any

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentgym
from agentgym import ToolCall, ToolError
from agentgym.assemble.wrapper_order import Stage
from agentgym.wrappers.memory import MemoryTool, MemoryTools
from agentgym.wrappers.memory_store import _COMMANDS, Files, MemoryLimits

ROOMY, SMALL = MemoryLimits(32_768, 262_144, 64), MemoryLimits(9, 20, files=4)
ACUTE, DECOMPOSED = "\u00e9", "e\u0301"
TAKES = {command: takes for command, (_, takes) in _COMMANDS.items()}


class Memory(MemoryTools):
    """Memory tool that is called with positional arguments and exposes all files."""

    def __init__(self, limits: MemoryLimits = ROOMY) -> None:
        super().__init__(limits)

    def __call__(self, command: Any, *values: Any) -> str:
        return self.memory(command, **dict(zip(TAKES[command], values, strict=False)))

    def all(self) -> Files:
        return self.files

    def refuses(self, why: str, *call: Any) -> None:
        before = self.all()
        with pytest.raises(ToolError, match=why) as caught:
            self(*call)
        assert self.all() == before
        assert len(str(caught.value)) < 500


@pytest.fixture
def memory() -> Memory:
    return Memory()


class Naive:
    """A naive reference model of the commands."""

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


@settings(max_examples=120, deadline=None)
@given(st.lists(COMMANDS, max_size=12))
def test_the_commands_do_what_a_plain_implementation_does(commands: list[Any]) -> None:
    agree(Memory(SMALL), commands)


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
str_replace f aa x: occurs in line 1 and again in line 1; include more
str_replace f B x: does not contain old_str; view it
str_replace d a x: is a directory, not a file; view the directory
view nothing: there is no .*; view /memories to list
create d/1 x: is a directory; name a file inside it
create f/g x: is a file, not a directory
create f: ^create takes path, file_text: file_text is missing$
delete .: itself cannot be deleted
rename / /memories/n: itself cannot be renamed
rename d /memories/d/1/x: or inside it; choose another
rename d /memories/f: already exists; delete it first
rename d /memories/f/x: is a file, not a directory
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
    memory.refuses("omit view_range, which is for files only", "view", "/memories/d", [1, 2])
    memory.refuses("old_str is empty", "str_replace", "/memories/f", "", "x")
    memory.refuses("insert_text is empty", "insert", "/memories/f", 0, "")
    for wrong, number in [("a\0", -1), ("\ud800", 4), ("\udfffb", True)]:
        memory.refuses(
            "file_text must not contain NUL or lone surrogates", "create", "/memories/f", wrong
        )
        memory.refuses("insert_line must be in .0, 3.", "insert", "/memories/f", number, "x")


def test_limits() -> None:
    memory = Memory(SMALL)
    for path, text in [("0", "123456789"), ("1", "12345678"), ("2", "123"), ("d/3", "")]:
        memory("create", f"/memories/{path}", text)
    for call in (["insert", "/memories/0", 0, "\n"], ["create", "/memories/4", "0" * 10]):
        memory.refuses("at most 9 characters, got 10", *call)
    memory.refuses("at most 20 characters, got 21", "create", "/memories/2", "1234")
    memory.refuses("has 4 files, but at most 4", "create", "/memories/4", "")
    memory.files = {**memory.files, "/memories/d/4": "1234567890a"}
    # Content that exceeds the limits can still be viewed, moved and shortened.
    memory("rename", "/memories/d", "/memories/e")
    memory("str_replace", "/memories/e/4", "a", "")
    memory.refuses("at most 9", "str_replace", "/memories/e/4", "1", "00")
    assert memory("delete", "/memories/e") == "deleted /memories/e (files: 2)"


ATTACKS = {
    "must not contain '..'": "/memories/../x /memories/./.. /memories/a/../../x /memories/a/../a /../memories/x",
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
    for path in ATTACKS[why].split(" "):
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


def test_options_and_the_place_in_a_stack_are_checked() -> None:
    for name in ("max_files", "max_file_chars", "max_total_chars"):
        with pytest.raises(ValueError, match=f"{name} must be an integer"):
            started(**{name: 0})
    late = type("Late", (gymnasium.Wrapper,), {"stage": Stage.TRIM})
    with pytest.raises(ValueError, match=r"MemoryTool \(tools\) must go inside Late"):
        MemoryTool(late(agentgym.make("ListWorld")))
    with pytest.raises(ValueError, match="a tool named memory already exists"):
        MemoryTool(started())
