"""Filesystem server: answers, patterns, edits, and random calls against a small model."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from agentgym.office.files.filesystem import Filesystem
from agentgym.office.files.patterns import Patterns
from agentgym.office.files.textedit import EditOperation, apply_edits, show_diff
from agentgym.text.tools import ToolError, tools_of


class Client:
    def __init__(self, server: Any) -> None:
        self.server = server

    def __call__(self, name: str, /, **arguments: Any) -> Any:
        return tools_of(self.server)[name](arguments)

    def refused(self, name: str, /, **arguments: Any) -> str:
        with pytest.raises(ToolError) as caught:
            self(name, **arguments)
        return str(caught.value)


@pytest.fixture
def files() -> Client:
    server = Filesystem()
    held = {
        "a.txt": b"one\ntwo\nthree\n",
        "sub/b.md": b"x",
        "p.png": b"\x89PNG",
        "z.bin": bytes(3_000),
        "bad.txt": b"\xff\xfe",
    }
    for name, data in held.items():
        server.context.files.write(name, data)
    server.context.files.mkdir("empty")
    return Client(server)


def test_reading(files: Client) -> None:
    assert (
        files("read_text_file", path="a.txt")
        == files("read_file", path="/workspace/a.txt")
        == "one\ntwo\nthree\n"
    )
    assert files("read_text_file", path="a.txt", head=2) == "one\ntwo"
    for many in (2**31, 2**63, 10**30):
        for end in ({"head": many}, {"tail": many}):
            assert files("read_text_file", path="a.txt", **end) == "one\ntwo\nthree\n"
    assert files("read_text_file", path="a.txt", tail=2) == "three\n"
    for lines in (99, 0):
        assert files("read_text_file", path="a.txt", head=lines) == "one\ntwo\nthree\n"
    assert files("read_text_file", path="bad.txt") == "\ufffd\ufffd"
    assert (
        files.refused("read_text_file", path="a.txt", head=1, tail=1)
        == "invalid argument: give head or tail, not both"
    )
    assert (
        files.refused("read_text_file", path="a.txt", head=-1)
        == "invalid argument: head and tail must be at least 0"
    )
    assert files.refused("read_text_file", path="none") == 'not found: there is no file "none"'
    assert (
        files.refused("read_text_file", path="sub")
        == 'invalid argument: "sub" is a directory, not a file'
    )
    assert files.refused("read_text_file", path="/etc/passwd").startswith(
        'permission denied: "/etc/passwd" is outside of /workspace'
    )
    shown = files("read_multiple_files", paths=["a.txt", "none", "sub/b.md"])
    assert (
        shown
        == 'a.txt:\none\ntwo\nthree\n\n\n---\nnone: Error - not found: there is no file "none"\n---\nsub/b.md:\nx\n'
    )
    assert files.refused("read_multiple_files", paths=[]).startswith("invalid argument")


def test_media(files: Client) -> None:
    assert files("read_media_file", path="p.png") == {
        "type": "image",
        "data": "iVBORw==",
        "mimeType": "image/png",
    }
    files("write_file", path="sub/b.csv", content="x")
    resource = files("read_media_file", path="sub/b.csv")["resource"]
    assert resource == {
        "uri": "file:///workspace/sub/b.csv",
        "mimeType": "text/csv",
        "blob": "eA==",
    }
    assert (
        files("read_media_file", path="z.bin")["resource"]["mimeType"] == "application/octet-stream"
    )


def test_listing(files: Client) -> None:
    assert (
        files("list_directory", path=".")
        == "[FILE] a.txt\n[FILE] bad.txt\n[DIR] empty\n[FILE] p.png\n[DIR] sub\n[FILE] z.bin"
    )
    assert files("list_directory", path="empty") == ""
    assert (
        files.refused("list_directory", path="a.txt") == 'not found: there is no directory "a.txt"'
    )
    sized = files("list_directory_with_sizes", path="/workspace", sortBy="size").split("\n")
    assert sized[0] == "[FILE] z.bin                             2.93 KB"
    assert sized[-3:] == ["", "Total: 4 files, 2 directories", "Combined size: 2.95 KB"]
    names = [line.split()[1] for line in sized[:6]]
    assert names == ["z.bin", "a.txt", "p.png", "bad.txt", "empty", "sub"]
    tree = json.loads(files("directory_tree", path="."))
    assert tree[4] == {
        "name": "sub",
        "type": "directory",
        "children": [{"name": "b.md", "type": "file"}],
    }
    assert tree[2] == {"name": "empty", "type": "directory", "children": []}
    shown = json.loads(
        files("directory_tree", path=".", excludePatterns=["*.bin", "sub", "bad.txt"])
    )
    assert [entry["name"] for entry in shown] == ["a.txt", "empty", "p.png"]
    assert files("list_allowed_directories") == "Allowed directories:\n/workspace"


def test_facts(files: Client) -> None:
    files("write_file", path="n", content="12345")
    assert files("get_file_info", path="n").split("\n") == [
        "size: 5",
        "created: Wed Jan 15 2025 09:00:01 GMT+0000 (Coordinated Universal Time)",
        "modified: Wed Jan 15 2025 09:00:01 GMT+0000 (Coordinated Universal Time)",
        "accessed: Wed Jan 15 2025 09:00:01 GMT+0000 (Coordinated Universal Time)",
        "isDirectory: false",
        "isFile: true",
        "permissions: 644",
    ]
    files("write_file", path="n", content="1")
    assert [line.split()[5] for line in files("get_file_info", path="n").split("\n")[1:3]] == [
        "09:00:01",
        "09:00:02",
    ]
    assert files("get_file_info", path="sub").split("\n")[-3:] == [
        "isDirectory: true",
        "isFile: false",
        "permissions: 755",
    ]
    assert files.refused("get_file_info", path="none").startswith("not found")


def test_writing_and_moving(files: Client) -> None:
    assert files("write_file", path="sub/n.txt", content="é") == "Successfully wrote to sub/n.txt"
    assert files.server.context.files.read("sub/n.txt") == "é".encode()
    assert (
        files.refused("write_file", path="new/n.txt", content="")
        == 'not found: there is no directory "/workspace/new"'
    )
    assert files.refused("write_file", path="sub", content="").startswith("conflict")
    assert files("create_directory", path="new/er") == "Successfully created directory new/er"
    assert files("create_directory", path="new/er/").endswith(" new/er/")
    assert (
        files("move_file", source="sub", destination="new/sub")
        == "Successfully moved sub to new/sub"
    )
    assert files("read_text_file", path="new/sub/n.txt") == "é"
    assert files.refused("move_file", source="a.txt", destination="p.png").startswith("conflict")
    assert files.refused("move_file", source="new", destination="new/sub/new").startswith(
        "invalid argument"
    )
    assert files.refused("move_file", source="none", destination="x").startswith("not found")
    assert files.refused("move_file", source="a.txt", destination="none/x").startswith("not found")


DIFF = """```diff
Index: /workspace/w
===================================================================
--- /workspace/w\toriginal
+++ /workspace/w\tmodified
@@ -1,3 +1,4 @@
 al pha
-  beta
-    gamma
+  B
+C
+  D
```

"""


def test_edits(files: Client) -> None:
    text = "al pha\n  beta\n    gamma\n"
    files("write_file", path="w", content=text)
    edit = [{"oldText": "beta\ngamma", "newText": "B\nC\n  D"}]
    assert files("edit_file", path="w", edits=edit, dryRun=True) == DIFF
    assert files("read_text_file", path="w") == text
    assert files("edit_file", path="w", edits=edit) == DIFF
    assert files("read_text_file", path="w") == "al pha\n  B\nC\n  D\n"
    assert files.refused(
        "edit_file",
        path="w",
        edits=[{"oldText": "B", "newText": "b"}, {"oldText": "zz", "newText": ""}],
    ) == ('not found: the file has no passage "zz"; nothing was changed')
    assert files("read_text_file", path="w") == "al pha\n  B\nC\n  D\n"
    assert files.refused("edit_file", path="w", edits=[{"oldText": "", "newText": "b"}]).startswith(
        "invalid argument"
    )
    assert files.refused(
        "edit_file", path="bad.txt", edits=[{"oldText": "a", "newText": "b"}]
    ).endswith("is not a text file in UTF-8")
    assert "argument 'edits" in files.refused("edit_file", path="w", edits=[{"oldText": "x"}])


def test_edits_of_texts() -> None:
    assert apply_edits("a a", [EditOperation(oldText="a", newText="b")]) == "b a"
    assert (
        apply_edits("a\r\nb".replace("\r\n", "\n"), [EditOperation(oldText="a\r\nb", newText="c")])
        == "c"
    )
    assert (
        apply_edits("if x:\n\ty()\n", [EditOperation(oldText="    y()", newText="    z()")])
        == "if x:\n\tz()\n"
    )
    deeper = apply_edits(
        "  if a:\n    b\n", [EditOperation(oldText="if a:\n  b", newText="if a:\n  c\n    d")]
    )
    assert deeper == "  if a:\n  c\n    d\n"
    assert "\\ No newline at end of file" in show_diff("a", "a\n", "f")
    assert show_diff("```\n", "x\n", "f").startswith("````diff\n")
    rng = random.Random(1)
    many = [str(rng.randrange(150)) for _ in range(6_000)]
    assert show_diff("\n".join(many), "\n".join(sorted(many)), "f")
    with pytest.raises(ToolError, match="limit exceeded"):
        show_diff("\n" * 30_000, "", "f")


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*.txt", ["a.txt", ".txt"], ["b/a.txt", "a.txtx", "A.TXT"]),
        ("**/*.txt", ["a.txt", "b/a.txt", "b/c/a.txt"], ["a.md"]),
        ("b/**", ["b/a", "b/c/a", "b"], ["a", "c/b/a"]),
        ("**", ["a", "a/b"], []),
        ("b/**/d", ["b/d", "b/c/d", "b/c/c/d"], ["b/c", "d"]),
        ("{a,b/*}.{x,y}", ["a.x", "a.y", "b/c.x"], ["b.x", "a.z"]),
        ("[ab]?", ["ax", "by"], ["cx", "a", "a/"]),
        ("a", ["a"], ["b/a", "ab"]),
        ("{", ["{"], ["a"]),
        ("", [""], ["a"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], other: list[str]) -> None:
    patterns = Patterns([pattern])
    assert [path for path in matching + other if patterns.match(path)] == matching


@pytest.mark.parametrize(
    "pattern", ["*" * 200, "**/" * 80, "*a" * 100 + "b", "[" * 200, "{" * 120 + "}" * 120]
)
def test_patterns_never_backtrack(pattern: str) -> None:
    """A backtracking matcher would not terminate here."""
    assert isinstance(Patterns([pattern]).match("/".join(["a" * 200] * 30)), bool)


@pytest.mark.parametrize("pattern", ["{a,b}" * 50, "{" + "," * 200 + "}", "x" * 300])
def test_patterns_are_limited(pattern: str) -> None:
    with pytest.raises(ToolError, match="limit exceeded"):
        Patterns([pattern])


def test_searching(files: Client) -> None:
    assert (
        files("search_files", path=".", pattern="**/*.{md,png}")
        == "/workspace/p.png\n/workspace/sub/b.md"
    )
    assert files("search_files", path="sub", pattern="*") == "/workspace/sub/b.md"
    assert files("search_files", path=".", pattern="sub") == "/workspace/sub"
    everything = files(
        "search_files", path=".", pattern="**/*", excludePatterns=["sub", "*.txt"]
    ).split("\n")
    assert everything == ["/workspace/empty", "/workspace/p.png", "/workspace/z.bin"]
    assert files("search_files", path=".", pattern="B.MD") == "No matches found"
    assert files.refused("search_files", path="none", pattern="*").startswith("not found")
    assert files.refused(
        "search_files", path=".", pattern="*", excludePatterns=["x"] * 101
    ).startswith("limit exceeded")


@pytest.mark.parametrize("seed", range(10))
def test_random_calls_match_a_dict(seed: int) -> None:
    rng = random.Random(seed)
    files, model = Client(Filesystem()), {}
    names = ["a", "b", "d/a", "d/b", "e/f/a"]
    for folder in ("d", "e/f"):
        files("create_directory", path=folder)
    for _ in range(200):
        one, two = rng.choice(names), rng.choice(names)
        match rng.randrange(3):
            case 0:
                model[one] = str(rng.random())
                files("write_file", path=one, content=model[one])
            case 1 if one in model and two not in model:
                model[two] = model.pop(one)
                files("move_file", source=one, destination=two)
            case 1:
                assert files.refused("move_file", source=one, destination=two).startswith(
                    ("not found", "conflict")
                )
            case _ if one in model:
                new = model[one].replace("0", "x", 1)
                files("edit_file", path=one, edits=[{"oldText": model[one], "newText": new}])
                model[one] = new
        held = files.server.context.files
        assert {
            path.removeprefix("/workspace/"): held.read_text(path) for path in held.walk()
        } == model
        assert held.size() == sum(map(len, model.values()))
    assert sorted(files("search_files", path=".", pattern="**/[ab]").split("\n")) == sorted(
        f"/workspace/{name}" for name in model
    )
