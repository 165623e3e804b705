from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Callable

import pytest

from agentgym.envs.loca.archives import MAX_BYTES, MAX_UNPACKED, read_archive
from agentgym.text.tools import ToolError

FILES = {"a/b.txt": b"1", "a/c/d.txt": b"22", "e.txt": b""}


def packed(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name) if name.endswith("/") else name, data)
    return out.getvalue()


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_files_and_folders(method: int) -> None:
    assert read_archive(packed(FILES, method)) == FILES
    assert read_archive(packed({"a/": b"", "a/x": b"1"}, method)) == {"a/": b"", "a/x": b"1"}
    assert read_archive(packed({}, method)) == {}


def twice() -> bytes:
    return packed({"a": b"1", "b": b"2"}).replace(b"b", b"a")


def encrypted() -> bytes:
    data = bytearray(packed({"a": b"1"}))
    data[6] |= 1  # the encryption flag in the local file header
    data[data.index(b"PK\1\2") + 8] |= 1  # the encryption flag in the central directory
    return bytes(data)


def lying() -> bytes:
    data = bytearray(packed({"a": bytes(2 * MAX_UNPACKED)}))
    place = data.index(b"PK\1\2") + 24
    data[place : place + 4] = (10).to_bytes(4, "little")
    return bytes(data)


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "twice": (twice, "twice"),
    "encrypted": (encrypted, "not a readable zip archive"),
    "no archive": (lambda: b"PK", "not a readable zip archive"),
    "nothing": (lambda: b"", "not a readable zip archive"),
    "cut": (lambda: packed(FILES)[:-30], "not a readable zip archive"),
    "a broken file": (
        lambda: packed({"a": b"1" * 100}, zipfile.ZIP_STORED).replace(b"1111", b"1112", 1),
        "not a readable zip archive",
    ),
    "too large": (lambda: bytes(MAX_BYTES + 1), "limit exceeded"),
    "a bomb": (lambda: packed({"a": bytes(MAX_UNPACKED + 1)}), "limit exceeded"),
    "a bomb in parts": (lambda: packed({str(k): bytes(2**20) for k in range(5)}), "limit exceeded"),
    "another size than it says": (lying, "not a readable zip archive|limit exceeded"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(ToolError, match=words):
        read_archive(make())


def test_damaged_archives_are_refused_or_read() -> None:
    draw = random.Random(5)
    good = packed(FILES)
    for _ in range(400):
        data = bytearray(good)
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            found = read_archive(bytes(data))
        except ToolError:
            continue
        assert all(isinstance(content, bytes) for content in found.values())
