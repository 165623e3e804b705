"""The cost of drawing states with a requested length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import agentgym
from agentgym.envs.loca import drafts
from agentgym.envs.loca.tasks.payable_invoice_checker import PayableInvoiceChecker
from agentgym.envs.loca.writing.phrase_book import Phrase, PhraseBook
from agentgym.office.canvas.quizzes import Quizzes
from agentgym.office.spreadsheet import excel_sheets

openpyxl = pytest.importorskip("openpyxl")


def counting(
    monkeypatch: pytest.MonkeyPatch, counts: Counter[str], owner: Any, name: str
) -> Callable[..., Any]:
    original: Callable[..., Any] = getattr(owner, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        counts[name] += 1
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, counted)
    return original


def test_only_the_accepted_draft_has_its_plan_made(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    for name in ("_draw_draft", "_play", "fingerprint_protected"):
        counting(monkeypatch, counts, drafts, name)
    # A wrong first guess forces a second draw.
    monkeypatch.setattr(PayableInvoiceChecker, "tokens_per_unit", 1_300.0)
    drafts.draw_state.cache_clear()
    env = agentgym.make("PayableInvoiceChecker", length=32_000)
    env.reset(seed=0)
    env.close()
    drafts.draw_state.cache_clear()
    assert counts["_draw_draft"] > 1
    assert counts["_play"] == counts["fingerprint_protected"] == 1


def test_a_workbook_is_opened_once_however_many_parts_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = {}
    for length in (16_000, 64_000):
        counts: Counter[str] = Counter()
        with monkeypatch.context() as patch:
            counting(patch, counts, excel_sheets, "open_workbook")
            env = agentgym.make("ExcelMarketResearch", length=length)
            env.reset(seed=11)
            env.close()
        opened[length] = counts["open_workbook"]
    assert max(opened.values()) <= 2  # the data and the form


def counts_of_draw(
    monkeypatch: pytest.MonkeyPatch, task: str, length: int, *functions: tuple[Any, str]
) -> Counter[str]:
    counts: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for owner, name in functions:
            counting(patch, counts, owner, name)
        drafts.draw_state.cache_clear()
        env = agentgym.make(task, length=length)
        env.reset(seed=7)
        env.close()
        drafts.draw_state.cache_clear()
    return counts


@pytest.mark.parametrize("task", ["CanvasListTest", "CanvasArrangeExam", "SetConfCrDdl"])
def test_few_phrases_are_tried_for_a_sentence(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    functions = ((PhraseBook, "_read_sentence"), (Phrase, "read"))
    counts = counts_of_draw(monkeypatch, task, 64_000, *functions)
    assert counts["_read_sentence"] > 500
    assert counts["read"] <= 3 * counts["_read_sentence"]  # of a hundred phrases


def test_a_quiz_is_summed_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    functions = ((Quizzes, "add_quiz"), (Quizzes, "_update_totals"))
    counts = counts_of_draw(monkeypatch, "CanvasListTest", 32_000, *functions)
    assert counts["_update_totals"] == counts["add_quiz"] > 10


def test_the_library_writes_no_cell_of_a_workbook(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = openpyxl.worksheet._write_only.WriteOnlyWorksheet
    counts = counts_of_draw(monkeypatch, "ExcelMarketResearch", 64_000, (sheet, "append"))
    assert not counts
