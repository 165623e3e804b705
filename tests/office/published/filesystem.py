"""Calls of the filesystem server."""

from __future__ import annotations

from agentgym.office.files.filesystem import Filesystem
from tests.office.published import Call, Difference


def prepared() -> Filesystem:
    server = Filesystem()
    files = server.context.files
    files.write("a.txt", "one\ntwo\nthree\n")
    files.write("d/e/f.txt", "x" * 3_000)
    files.write("p.png", b"\x89PNG")
    return server


DATE = r"[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d GMT\+0000 \([^)]+\)"
CALLS = [
    Call("read_file", {"path": "a.txt", "head": 1}, "one"),
    Call("read_text_file", {"path": "/workspace/a.txt"}, "one\ntwo\nthree\n"),
    Call("read_text_file", {"path": "a.txt", "tail": 2}, "three\n"),
    Call(
        "read_media_file", {"path": "p.png"}, r'\{\n  "type": "image",\n  "data": "iVBORw==",.*\}'
    ),
    Call(
        "read_multiple_files",
        {"paths": ["a.txt", "none"]},
        r"a\.txt:\none\ntwo\nthree\n\n\n---\nnone: Error - [^\n]+",
    ),
    Call("write_file", {"path": "d/n.txt", "content": "é"}, r"[A-Z][^\n]* d/n\.txt"),
    Call(
        "edit_file",
        {"path": "a.txt", "edits": [{"oldText": "two", "newText": "2"}], "dryRun": True},
        r"```diff\nIndex: [^\n]*a\.txt\n=+\n--- [^\n]+\n\+\+\+ [^\n]+\n@@ [^\n]+ @@\n"
        r" one\n-two\n\+2\n three\n```\n+",
    ),
    Call("create_directory", {"path": "n/m"}, r"[A-Z][^\n]* n/m"),
    Call(
        "list_directory", {"path": "."}, r"\[FILE\] a\.txt\n\[DIR\] d\n\[DIR\] n\n\[FILE\] p\.png"
    ),
    Call("list_directory", {"path": "n/m"}, ""),
    Call(
        "list_directory_with_sizes",
        {"path": ".", "sortBy": "size"},
        r"\[FILE\] a\.txt +14 B\n\[FILE\] p\.png +4 B\n\[DIR\] d\n\[DIR\] n\n\n"
        r"[^\n]*\b2 files, 2 directories\n[^\n]*\b18 B",
    ),
    Call("directory_tree", {"path": "."}),
    Call("move_file", {"source": "n/m", "destination": "k"}, r"[A-Z][^\n]* n/m to k"),
    Call(
        "search_files",
        {"path": ".", "pattern": "**/*.txt"},
        r"/workspace/a\.txt\n/workspace/d/e/f\.txt\n/workspace/d/n\.txt",
    ),
    Call("search_files", {"path": ".", "pattern": "x"}, r"[^\n/]+"),
    Call(
        "get_file_info",
        {"path": "a.txt"},
        rf"size: 14\ncreated: {DATE}\nmodified: {DATE}\naccessed: {DATE}\n"
        r"isDirectory: false\nisFile: true\npermissions: 644",
    ),
    Call("list_allowed_directories", {}, r"[^\n/]+\n/workspace"),
]
DIFFERENCES = {
    "read_media_file": Difference(
        "Answers are text here, so a picture, a sound or another file comes as the JSON of the "
        "content block that the published server sends."
    ),
}
