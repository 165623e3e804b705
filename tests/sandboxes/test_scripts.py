from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest

from tests.helpers import needs_workbench

workbench: Any = pytest.importorskip("agentgym.sandboxes.workbench")
FILES = {
    "c.txt": b"hi",
    "d": None,
    "d/a.txt": b"one\n" * 100,
    "d/e": None,
    "d/e/b.txt": b"x",
    "d/.hidden": b"",
}


def sh(command: str, **files: bytes) -> Any:
    needs_workbench()
    held = {**FILES, **{name.replace("_", "."): data for name, data in files.items()}}
    entries = {name: workbench.File(data, 1_736_931_600.0) for name, data in held.items()}
    return workbench.run(["/usr/bin/bash", "-c", command], entries)


def packed(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in members.items():
            archive.writestr(zipfile.ZipInfo(name.replace("__", "/").replace("_", ".")), text)
    return buffer.getvalue()


def test_an_archive_is_made() -> None:
    outcome = sh("zip -r out d && zip -q flat.zip c.txt d/e")
    assert outcome.stdout == (
        "  adding: d\n  adding: d/.hidden\n  adding: d/a.txt\n  adding: d/e\n  adding: d/e/b.txt\n"
    )
    with zipfile.ZipFile(io.BytesIO(outcome.files["out.zip"])) as archive:
        assert archive.namelist() == ["d/", "d/.hidden", "d/a.txt", "d/e/", "d/e/b.txt"]
        assert archive.read("d/a.txt") == FILES["d/a.txt"]
        assert {info.date_time[:3] for info in archive.infolist() if not info.is_dir()} == {
            (2025, 1, 15)
        }
    with zipfile.ZipFile(io.BytesIO(outcome.files["flat.zip"])) as archive:
        assert archive.namelist() == ["c.txt", "d/e/"]


def test_an_archive_is_unpacked() -> None:
    data = packed(c_txt="new", d__n_txt="n")
    outcome = sh("unzip x.zip; cat c.txt; unzip -oq x; cat c.txt; unzip x -d out", x_zip=data)
    assert outcome.stdout == (
        "Archive:  x.zip\n  skipping: c.txt  (exists; -o replaces it)\n  inflating: d/n.txt\nhi"
        "newArchive:  x.zip\n  inflating: out/c.txt\n  inflating: out/d/n.txt\n"
    )
    outcome = sh("unzip -l x.zip", x_zip=data)
    assert [line.split()[0] for line in outcome.stdout.splitlines()] == ["File", "c.txt", "d/n.txt"]
    assert outcome.files["c.txt"] == b"hi"


def test_nothing_is_unpacked_outside_of_the_folder() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../../tmp/up.txt", "x")
        archive.writestr("/tmp/root.txt", "y")
    outcome = sh("unzip -q x.zip -d in; ls /tmp", x_zip=buffer.getvalue())
    assert outcome.stdout == ""
    assert (outcome.files["in/tmp/up.txt"], outcome.files["in/tmp/root.txt"]) == (b"x", b"y")


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        ("zip", 2, "required: archive, files"),
        ("zip -e x c.txt", 2, "unrecognized arguments: -e"),
        ("zip x none", 15, "there is no none"),
        ("zip c.txt d/a.txt", 15, "c.txt exists"),
        ("unzip -Z x", 2, "unrecognized arguments: -Z"),
        ("unzip none", 9, "cannot open none.zip"),
        ("unzip c.txt", 9, "File is not a zip file"),
        ("unzip ok.zip none", 2, "unrecognized arguments: none"),
    ],
)
def test_what_cannot_be_done_is_said(command: str, code: int, reason: str) -> None:
    outcome = sh(command, ok_zip=packed(a_txt="a"))
    assert (outcome.code, reason in outcome.stdout + outcome.stderr) == (code, True)
    assert outcome.files["c.txt"] == b"hi"
    assert set(outcome.files) == {*FILES, "ok.zip"}
