from __future__ import annotations

import copy
import pickle
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from agentgym.office import ROOT, Clock, Office, Server, Workspace
from agentgym.office.context import iso
from agentgym.office.files.pdfs import write_pdf
from agentgym.office.libraries import install_hint
from agentgym.office.office import SERVERS
from agentgym.office.server import page_of
from agentgym.office.spreadsheet.workbooks import write_workbook
from agentgym.office.store import Store
from agentgym.text.tools import ToolError, tool, tools_of

SCHEMA = """
CREATE TABLE owners (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE cats (id INTEGER PRIMARY KEY, owner INTEGER REFERENCES owners(id), name TEXT UNIQUE, tags JSON, tame BOOL);
"""


class Cats(Server):
    name = "cats"
    schema = SCHEMA

    @tool
    def read_file(self, path: str) -> str:
        """Read."""
        return path


def test_the_clock_goes_on_only_when_something_happens() -> None:
    clock = Clock(datetime(2025, 1, 15, 9, tzinfo=UTC))
    assert iso(clock.now()) == iso(clock.now()) == "2025-01-15T09:00:00Z"
    assert [iso(clock.tick()) for _ in range(2)] == ["2025-01-15T09:00:01Z", "2025-01-15T09:00:02Z"]
    assert iso(clock.now()) == "2025-01-15T09:00:02Z"
    with pytest.raises(ValueError, match="start must have a time zone"):
        Clock(datetime(2025, 1, 15))


def test_records_keep_json_and_truth_values() -> None:
    store = Store(SCHEMA)
    first = store.insert("cats", name="Mia", tags=["a", {"b": None}], tame=True)
    assert store.get("cats", first) == {
        "id": 1,
        "owner": None,
        "name": "Mia",
        "tags": ["a", {"b": None}],
        "tame": True,
    }
    store.update("cats", first, tags={}, tame=False)
    assert store.find("cats", tame=False, owner=None) == [
        {**store.get("cats", 1), "tags": {}, "tame": False}
    ]
    assert store.find("cats", tame=True) == []
    assert store.value("SELECT count(*) FROM cats") == 1
    with pytest.raises(ToolError, match="not found: there is no cat with id 7"):
        store.get("cats", 7)
    store.insert_all("cats", [{"name": "Bo", "tags": []}, {"tags": [], "name": "Di"}])
    assert [row["name"] for row in store.find("cats", order="name")] == ["Bo", "Di", "Mia"]
    assert store.delete("cats", name="Bo") == 1


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_integers_that_no_column_holds_are_refused(number: int) -> None:
    store = Store(SCHEMA)
    for call in (
        lambda: store.get("cats", number),
        lambda: store.update("cats", number, name="Mia"),
        lambda: store.insert("cats", name=number),
        lambda: store.value("SELECT ?", number),
        lambda: store.rows("SELECT ?", number),
    ):
        with pytest.raises(
            ToolError, match=r"invalid argument: -?\d+ does not fit into a 64-bit integer"
        ):
            call()
    assert store.value("SELECT ?", 2**63 - 1) == 2**63 - 1


def test_a_change_is_made_whole_or_not_at_all() -> None:
    store = Store(SCHEMA)

    def fail() -> None:
        with store.change():
            store.insert("cats", name="Mia")
            with store.change():
                store.insert("cats", name="Bo")
            raise ToolError("no")

    with pytest.raises(ToolError, match="no"):
        fail()
    assert store.find("cats") == []
    with pytest.raises(Exception, match="FOREIGN KEY"):
        store.insert("cats", name="Mia", owner=9)


def test_a_refused_change_leaves_the_same_bytes() -> None:
    store = Store(SCHEMA)
    before = pickle.dumps(store)
    rows = [{"id": k % 499, "name": "x" * 100} for k in range(500)]  # id 0 occurs twice
    with pytest.raises(sqlite3.IntegrityError):
        store.insert_all("owners", rows)
    assert pickle.dumps(store) == before


def test_an_overflow_of_ours_is_no_refusal() -> None:
    class Broken(Cats):
        @tool
        def overflow(self) -> str:
            """Break."""
            self.store.insert("owners", id=1, name="Ada")
            return str(2.0**5000)

    server = Broken()
    before = server.store.rows("SELECT * FROM owners")
    with pytest.raises(OverflowError):
        tools_of(server)["overflow"]({})
    assert server.store.rows("SELECT * FROM owners") == before


def test_a_name_that_is_taken_gets_the_name_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "agentgym.office.office.server_class",
        lambda name: {"cats": Cats, "dogs": Dogs}[name],
    )
    office = Office(["cats", "dogs"])
    assert [list(tools_of(server)) for server in office.toolsets()] == [
        ["read_file"],
        ["dogs_read_file", "bark"],
    ]
    assert tools_of(office.get(Dogs))["dogs_read_file"].schema.name == "dogs_read_file"
    with pytest.raises(ToolError, match="dogs_read_file: argument 'path' is missing"):
        tools_of(office.get(Dogs))["dogs_read_file"]({})
    assert office.get(Cats).context is office.get(Dogs).context
    assert [list(tools_of(server)) for server in copy.deepcopy(office).toolsets()] == [
        ["read_file"],
        ["dogs_read_file", "bark"],
    ]


class Dogs(Cats):
    name = "dogs"

    @tool
    def bark(self) -> str:
        """Bark."""
        return "wow"


def test_an_unknown_server_is_refused() -> None:
    with pytest.raises(ValueError, match=rf"server must be one of {', '.join(SERVERS)}, got 'fax'"):
        Office(["fax"])


def test_pages() -> None:
    assert [page_of(range(5), page, 2) for page in (1, 2, 3, 4)] == [[0, 1], [2, 3], [4], []]
    for page, size in ((0, 2), (-1, 2), (1, 0), (1, 101)):
        with pytest.raises(ToolError, match="invalid argument"):
            page_of(range(5), page, size)


@pytest.mark.parametrize(
    "path",
    [
        *".. / /etc/x a/../../b //etc a\0b \ud800 /..".split(),
        *(f"{ROOT}x", f"{ROOT}/../x", "x" * 300, "a/" * 40),
    ],
)
def test_no_path_leads_out(path: str) -> None:
    files = Workspace()
    for method in (
        files.read,
        files.mkdir,
        files.remove,
        files.names,
        lambda p: files.write(p, b""),
        lambda p: files.move(p, "b"),
    ):
        with pytest.raises(ToolError):
            method(path)
    assert list(files.walk()) == []


def test_files_and_directories() -> None:
    files = Workspace()
    assert files.write("a/b.txt", "é") == files.resolve(f"{ROOT}/a//b.txt") == f"{ROOT}/a/b.txt"
    assert (files.read_text("a/b.txt"), files.size(), files.names(), files.names("a")) == (
        "é",
        2,
        ["a"],
        ["b.txt"],
    )
    files.write("c.txt", "é")
    files.move("a", "d/e")
    assert list(files.walk()) == [f"{ROOT}/c.txt", f"{ROOT}/d/e/b.txt"]
    assert list(files.folders("d")) == [f"{ROOT}/d", f"{ROOT}/d/e"]
    for refused in (
        lambda: files.move("d", "d/e/f"),
        lambda: files.move("c.txt", "d"),
        lambda: files.write("d", "x"),
        lambda: files.write("c.txt/x", "x"),
        lambda: files.mkdir("c.txt"),
        lambda: files.read("d"),
        lambda: files.move("c.txt", "d/e/b.txt"),
        lambda: files.remove(ROOT),
        lambda: files.write("big", b"x" * (32 * 2**20 + 1)),
    ):
        with pytest.raises(ToolError):
            refused()
    files.remove("d")
    assert (list(files.walk()), files.size(), list(files.folders())) == (
        [f"{ROOT}/c.txt"],
        2,
        [ROOT],
    )


def test_files_become_what_a_program_left() -> None:
    files = Workspace()
    files.write("keep.txt", "same")
    files.write("change.txt", "old")
    files.write("gone.txt", "x")
    files.clock = lambda: datetime(2030, 1, 1, tzinfo=UTC)
    kept, changed = files.file("keep.txt"), files.file("change.txt")
    odd = {
        "../up": b"",
        "/etc/passwd": b"",
        "a\udcff": b"",
        "x" * 300: b"",
        "big": b"x" * (32 * 2**20 + 1),
        "keep.txt/x": b"",
    }
    entries = {"keep.txt": b"same", "change.txt": b"new", "x": None, "x/y": b"1", **odd}
    assert files.become(entries) == list(odd)
    assert [name[len(ROOT) + 1 :] for name in files.walk()] == ["change.txt", "keep.txt", "x/y"]
    assert (list(files.folders()), files.size()) == ([ROOT, f"{ROOT}/x"], 8)
    assert files.file("keep.txt") == kept
    assert (files.modified("change.txt").year, files.file("change.txt").created) == (
        2030,
        changed.created,
    )
    assert files.become({}) == []
    assert (list(files.walk()), files.size(), files.exists("x")) == ([], 0, False)


LIBRARIES: dict[str, Callable[[], object]] = {
    "openpyxl": lambda: write_workbook({"S": [["=1"]]}),  # not a plain cell
    "reportlab": lambda: write_pdf([["line"]]),
}


class NotInstalled:
    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("module", LIBRARIES)
def test_a_missing_library_is_named_with_its_remedy(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NotInstalled(module), *sys.meta_path])
    with pytest.raises(ImportError, match=rf"{module}.*pip install 'agentgym-suite\[office\]'"):
        LIBRARIES[module]()


@pytest.mark.parametrize("name", ["numpy", None, "duckdb.typing"])
def test_another_error_of_an_import_passes_as_it_is(name: str | None) -> None:
    error = ImportError("cannot import", name=name)
    with pytest.raises(ImportError) as caught, install_hint("SQL needs DuckDB", "duckdb"):
        raise error
    assert caught.value is error
