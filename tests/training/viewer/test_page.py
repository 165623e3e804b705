from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agentgym.training.viewer import RunIndex, build_view, write_page
from agentgym.training.viewer import page as viewer_page
from agentgym.training.viewer.page import asset, escape_json, render_page, script
from tests.training.viewer.episodes import HOSTILE, write_run


class Document(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self._id = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._id = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        self.scripts[self._id] = self.scripts.get(self._id, "") + data


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = write_run(tmp_path_factory.mktemp("run"))
    index = RunIndex(run)
    while index.refresh():
        pass
    out = run / "new" / "page.html"
    assert write_page(index, out, build_view) == 5
    return out.read_text(encoding="utf-8")


def test_the_document_holds_all_and_refers_to_nothing(page: str) -> None:
    document = Document(page)
    for tag, attributes in document.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form", "img")
        assert not attributes.keys() & {"src", "href", "srcset", "action", "style", "onclick"}
    code = script() + asset("style.css") + asset("page.html")
    addresses = re.findall(r"https?:[^\s\"']+|url\(|@import|//[a-z]+\.", code)
    assert addresses == ["http://www.w3.org/2000/svg"], "the name of a format, which is not loaded"
    policy = next(a["content"] for _, a in document.tags if "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_the_script_makes_no_markup_of_texts() -> None:
    words = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|createContextualFragment"
    assert re.findall(words, script()) == []


def test_episodes_are_apart_and_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = RunIndex(write_run(tmp_path))
    while index.refresh():
        pass
    monkeypatch.setattr(viewer_page, "_PACK", 20_000)  # gives several elements
    write_page(index, tmp_path / "page.html", build_view)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    document = Document(page)
    boot = json.loads(document.scripts["boot"])
    assert [row["number"] for row in boot["rows"]] == [0, 1, 2, 3, 4]
    packs = {int(k): text for k, text in document.scripts.items() if k.isdecimal()}
    views: list[dict[str, Any]] = []
    for first, packed in packs.items():
        assert first == len(views)
        lines = gzip.decompress(base64.b64decode(packed)).splitlines()
        views += map(json.loads, lines)
    assert 1 < len(packs) < 5
    assert [len(view["turns"]) for view in views] == [row["turns"] for row in boot["rows"]]
    assert "</script><script>document.title" not in page


def test_hostile_names_do_not_leave_the_script_element() -> None:
    text = escape_json({"title": HOSTILE})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"title": HOSTILE}
    document = Document("".join(render_page({"title": HOSTILE, "rows": []})))
    assert json.loads(document.scripts["boot"])["title"] == HOSTILE
    assert sum(tag == "script" for tag, _ in document.tags) == 2


def test_a_name_that_looks_like_a_place_in_the_page_is_only_text() -> None:
    title = "<!--script--><!--episodes--><!--boot--><!--style-->"
    page = "".join(render_page({"title": title, "rows": []}))
    assert json.loads(Document(page).scripts["boot"])["title"] == title
    assert page.count(asset("app.js")) == 1


def test_an_empty_run_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="contains no trajectories"):
        write_page(RunIndex(tmp_path), tmp_path / "page.html", build_view)
    assert not (tmp_path / "page.html").exists()


def test_the_script_parses(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node to parse the script")
    (tmp_path / "script.js").write_text(script(), encoding="utf-8")
    done = subprocess.run(
        [node, "--check", tmp_path / "script.js"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
