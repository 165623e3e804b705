"""Tests of the viewer in a real browser: clicks, typing, keys, and the visible result."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from agentgym.oracles import NoisyPolicy
from agentgym.training.viewer import RunIndex, ViewerServer, build_view, write_page
from tests.training.viewer.browser import DOWN, ENTER, ESCAPE, Browser, browsing, needs_browser
from tests.training.viewer.episodes import HOSTILE, played, write_run

pytestmark = needs_browser

# policy of the second episode in `write_run`
NOISY = NoisyPolicy("ListWorld", p=0.5)

ROWS = "[...document.querySelectorAll('.row')].map(row => row.textContent)"
SELECTED = "document.querySelector('.row[aria-selected=true]')"
TITLE = "document.querySelector('#bar h1').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = write_run(tmp_path_factory.mktemp("run"))
    index = RunIndex(run)
    while index.refresh():
        pass
    write_page(index, run / "page.html", build_view)
    return (run / "page.html").as_uri()


def opened(browser: Browser, url: str, where: str = "") -> None:
    browser.open("about:blank")  # otherwise, a new URL fragment would not reload the page
    browser.open(url + where)
    browser.wait("document.querySelector('.row, .cell, .tile, .empty')")


def episode(number: int, rest: str = "") -> str:
    return f"#episode=trajectories.jsonl:{number}{rest}"


def test_episodes_are_listed_filtered_and_opened_by_click(browser: Browser, page: str) -> None:
    opened(browser, page, "#list")
    assert len(browser.run(f"return {ROWS}")) == 5
    browser.run(
        "const box = document.querySelector('select[name=world]'); box.value = 'ListWorld-team';"
        "box.dispatchEvent(new Event('change'))"
    )
    (row,) = browser.run(f"return {ROWS}")
    assert "ListWorld-team" in row
    assert "1 of 5 episodes" in browser.run("return document.querySelector('#count').textContent")
    browser.run("location.reload()")
    assert browser.wait(f"{ROWS}.length === 1"), "the filter is in the address"
    browser.click(".row")
    browser.wait("document.querySelector('.reply')")
    assert "ListWorld-team" in browser.run(f"return {TITLE}")
    browser.click("#team")
    browser.wait("document.querySelector('.cell')")
    names = browser.run("return [...document.querySelectorAll('.column')].map(c => c.textContent)")
    assert names == ["actor_0", "closer_0"]
    browser.run(
        "PANELS.push({ title: 'Mine', draw: (view, place) => `${place} of ${view.turns.length}` });"
        "show()"
    )
    browser.wait("main.textContent.includes('Minenull of ')")
    browser.run("go({ team: false, turn: 2 })")
    browser.wait("main.textContent.includes('Mine1 of ')")
    assert browser.errors() == []


def test_an_episode_is_read_by_keyboard(browser: Browser, page: str) -> None:
    opened(browser, page)
    browser.keys(ENTER)
    browser.wait(f"{ROWS}.length === 5")
    browser.keys(DOWN, "j", "k", "k", ENTER)
    browser.wait("document.querySelector('.reply')")
    assert "seed 0, no hints" in browser.run(f"return {TITLE}")
    assert "Turn 1 of 6" in browser.run("return document.querySelector('.detail').textContent")
    browser.keys("j", "j")
    assert "Turn 3 of 6" in browser.run("return document.querySelector('.detail').textContent")
    assert browser.run("return location.hash") == episode(0, "&turn=3")
    browser.keys("\ue010")  # End
    assert "After the last reply" in browser.run(
        "return document.querySelector('.detail').textContent"
    )
    browser.keys("?")
    assert browser.run("return document.querySelector('dialog').open")
    browser.keys(ESCAPE)
    browser.wait("!document.querySelector('dialog').open")
    browser.keys(ESCAPE)
    browser.wait(f"{ROWS}.length === 5")
    assert browser.errors() == []


def test_a_text_is_searched_for_in_all_episodes_and_in_one(browser: Browser, page: str) -> None:
    opened(browser, page, "#list")
    browser.keys("/", *"onerror")
    browser.wait(f"{ROWS}.length === 1")
    browser.keys(ESCAPE, ENTER)
    browser.wait("document.querySelector('.detail mark')")
    assert browser.run("return document.querySelector('.detail mark').textContent") == "onerror"
    first = browser.run("return location.hash")
    browser.keys("n")
    assert browser.run("return location.hash") != first
    browser.keys("N")
    assert browser.run("return location.hash") == first
    assert browser.errors() == []


def test_texts_of_models_stay_texts(browser: Browser, page: str) -> None:
    opened(browser, page, episode(3, "&turn=2"))
    browser.wait("document.querySelector('.reply')")
    written = browser.run("return document.querySelector('.reply > pre').textContent")
    # The driver cannot represent a lone surrogate, which the page contains.
    assert all(part in written for part in HOSTILE.split("\ud800"))
    assert browser.run("return document.title") != "taken"
    assert (
        browser.run("return document.querySelectorAll('.detail img, .detail script').length") == 0
    )
    assert browser.run("return document.querySelector('.reply details').open") is False
    assert browser.errors() == []


def test_edits_hints_and_the_window_are_marked(browser: Browser, page: str) -> None:
    opened(browser, page, episode(2, "&turn=1"))
    browser.wait("document.querySelector('.reply')")
    assert browser.run("return document.querySelectorAll('.note').length") >= 2
    assert browser.run("return document.querySelector('.chart .limit') !== null")
    assert browser.run("return document.querySelectorAll('.chart .edit').length") > 0
    browser.keys("\ue010")
    browser.run("document.querySelector('.earlier').click()")
    marks = browser.run("return [...document.querySelectorAll('.mark')].map(m => m.textContent)")
    assert {"dropped", "summary"} <= set(marks)
    shown = "document.querySelector('.message.dropped details').open"
    assert browser.run(f"return {shown}") is False, "what was dropped is folded"


def test_episodes_of_an_instance_are_compared_by_keyboard(browser: Browser, page: str) -> None:
    opened(browser, page, episode(0))
    browser.wait("document.querySelector('.reply')")
    browser.keys("c", ENTER)
    browser.wait("document.querySelector('.current')")
    places = [
        k + 1
        for k, (one, two) in enumerate(zip_longest(*(played(p).steps for p in (None, NOISY))))
        if one is None or two is None or one.reply.text != two.reply.text
    ]
    shown = [int(browser.run(f"return {TITLE}").rpartition(" ")[2])]
    for _ in places[1:]:
        browser.keys("n")
        shown.append(int(browser.run(f"return {TITLE}").rpartition(" ")[2]))
    assert shown == places
    browser.keys("N")
    assert browser.run("return location.hash").endswith(
        f"&with=trajectories.jsonl:1&turn={places[-2]}"
    )
    browser.keys(ESCAPE)
    browser.wait("document.querySelector('.reply')")
    assert browser.errors() == []


def test_errors_are_visited_in_order(browser: Browser, page: str) -> None:
    opened(browser, page, episode(1, "&turn=1"))
    browser.wait("document.querySelector('.reply')")
    turns = [k for k, step in enumerate(played(NOISY).steps, 1) if not step.info["optimal"]]
    for turn in (each for each in turns if each > 1):
        browser.keys("e")
        assert browser.run("return location.hash") == episode(1, f"&turn={turn}")


def test_the_summary_counts_and_links_to_its_episodes(browser: Browser, page: str) -> None:
    opened(browser, page)
    cells = "[...document.querySelectorAll('.matrix td a')]"
    links = browser.run(f"return {cells}.map(a => [a.querySelector('small').textContent, a.hash])")
    assert sum(int(count) for count, _ in links) == 5
    for count, link in links:
        opened(browser, page, link)
        assert browser.wait(f"{ROWS}.length === {count}")


def test_columns_sort_and_empty_ones_are_hidden(browser: Browser, page: str) -> None:
    opened(browser, page, "#list")
    heads = browser.run("return [...document.querySelectorAll('.heads button')].map(b => b.name)")
    assert {"model", "cost", "seconds", "size", "run"}.isdisjoint(heads)
    assert {"context", "arm", "tokens"} <= set(heads)
    turns = f"[...document.querySelectorAll('.row')].map(r => +r.children[{heads.index('turns')}].textContent)"
    for descending in (False, True):
        browser.click(".heads [name=turns]")
        values = browser.run(f"return {turns}")
        assert values == sorted(values, reverse=descending)
    browser.run("location.reload()")
    browser.wait(f"{ROWS}.length === 5")
    assert browser.run(f"return {turns}") == values


def test_rows_and_episodes_are_downloaded(browser: Browser, page: str) -> None:
    opened(browser, page, "#list&world=ListWorld")
    browser.run(
        "window.saved = {};"
        "save = async (name, parts) => { saved[name] = await new Blob(parts).text(); }"
    )
    browser.run("document.querySelectorAll('.menu button').forEach(button => button.click())")
    browser.wait("Object.keys(saved).length === 3")
    files = browser.run("return saved")
    table, rows, lines = (
        next(text for name, text in files.items() if name.endswith(end))
        for end in (".csv", ".json", ".jsonl")
    )
    assert [row["number"] for row in json.loads(rows)] == [0, 1, 2, 3]
    assert [row["number"] for row in csv.DictReader(io.StringIO(table))] == list("0123")
    assert [json.loads(line)["seed"] for line in lines.splitlines()] == [0, 0, 0, 3]


def test_who_knew_what_when_is_read_by_keyboard(browser: Browser, page: str) -> None:
    opened(browser, page, episode(4, "&turn=3"))
    facts = (
        "return [...document.querySelectorAll('.facts tbody tr')]"
        ".map(row => [0, 2, 3].map(k => row.children[k].innerText))"
    )
    assert browser.run(facts) == [["1", "1", "–"], ["3", "3", "–"]]
    browser.run("document.querySelector('.facts summary').focus()")
    browser.keys(ENTER)
    assert "The element has been removed." in browser.run(
        "return document.querySelector('.facts details[open]').textContent"
    )
    browser.run("document.querySelector('.facts td:nth-child(3) a').focus()")
    browser.keys(ENTER)
    browser.wait("document.querySelector('.detail h2').textContent.startsWith('Turn 1 ')")
    opened(browser, page, episode(4, "&team"))
    browser.run("document.querySelector('.unfolds summary').focus()")
    browser.keys(ENTER)
    *_, told, done = browser.run(facts)
    assert (told[1:], done[1:]) == ([told[0], done[0]], ["–", done[0]])
    opened(browser, page, episode(0, "&turn=3"))
    assert not browser.run("return document.querySelector('.facts')")


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_sticks_out_at_any_width(
    browser: Browser, page: str, width: int, dark: bool
) -> None:
    browser.size(width, 800, dark=dark)
    for where in (
        "",
        "#list",
        episode(2, "&turn=3"),
        episode(0, "&with=trajectories.jsonl:1"),
        episode(4, "&team"),
    ):
        opened(browser, page, where)
        browser.wait("document.querySelector('.row, .reply, .cell, .tile')")
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.run("return document.documentElement.scrollHeight") <= 800
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)")


@pytest.mark.rotation
def test_long_runs_draw_only_what_is_in_sight(browser: Browser, tmp_path: Path) -> None:
    data = json.loads(played().to_json())
    lines = [json.dumps({**data, "seed": seed}) for seed in range(499)]
    later = {**data["steps"][1], "kept": 2, "messages": []}
    steps = [data["steps"][0], *[later] * 1_999]
    lines.append(json.dumps({**data, "steps": steps, "last": {"kept": 2, "messages": []}}))
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    index = RunIndex(tmp_path)
    while index.refresh():
        pass
    write_page(index, tmp_path / "page.html", build_view)
    browser.size(1280, 800)
    opened(browser, (tmp_path / "page.html").as_uri(), "#list")
    assert browser.run("return document.querySelectorAll('.row').length") < 60
    browser.keys("\ue010")
    browser.wait(f"{SELECTED}.textContent.startsWith('499')")
    browser.keys(ENTER)
    browser.wait("document.querySelector('.reply')")
    assert browser.run("return document.querySelectorAll('.row').length") < 60
    assert browser.run("return cache.size") == 1, "only what was opened is decoded"
    browser.keys("\ue010", "k")
    assert "Turn 2000 of 2000" in browser.run(
        "return document.querySelector('.detail').textContent"
    )
    opened(browser, (tmp_path / "page.html").as_uri(), "#episode=t.jsonl:499&turn=1500")
    browser.wait(f"{SELECTED}?.textContent.startsWith('1500')")
    box, row = browser.run(
        "return ['.scroll', '.row[aria-selected=true]'].map(s => "
        "document.querySelector(s).getBoundingClientRect().bottom)"
    )
    assert row < box + 1, "the selected turn is in sight"


@pytest.mark.rotation
def test_a_run_that_goes_on_is_followed(browser: Browser, tmp_path: Path) -> None:
    log = tmp_path / "t.jsonl"
    line = played(seed=1).to_json() + "\n"
    log.write_text(line[:99])
    server = ViewerServer(RunIndex(tmp_path), build_view)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        browser.open(server.url + "#list")
        browser.wait("document.querySelector('#count').textContent.startsWith('0 of 0')")
        log.write_text(line)
        browser.wait(f"{ROWS}.length === 1")
        browser.keys(ENTER)
        browser.wait("document.querySelector('.reply')")
        # A link that is opened directly shows the episode's data immediately.
        opened(browser, server.url, "#episode=t.jsonl:0&turn=2")
        browser.wait("document.querySelector('.reply')")
        assert browser.run(f"return {TITLE}") == "ListWorld seed 1, no hints"
        assert browser.run("return document.querySelector('#bar .tag').textContent") == "solved"
        assert browser.errors() == []
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
