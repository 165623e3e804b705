"""Fast page layout against reportlab's bytes and pypdf's texts."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

import agentgym
from agentgym.office.files import pdfs
from agentgym.office.files.pdf_blocks import Block, Box, PdfTable, Text
from agentgym.office.files.pdf_pages import set_page
from agentgym.office.files.pdfs import read_pdf, write_pdf

pytest.importorskip("reportlab")

WORDS = (
    *("a", "Müller", "(x)", "back\\slash", "1,000.00", "Copper wire", "–", "a.b@c.example"),
    *("W" * 20, "il", "€5", "'", "A & B"),
)
# Reportlab must lay these out.
SPECIAL = (
    *("a <b>", " lead", "two  spaces", "tab\tstop", "x" * 120, "no\xa0break", "soft\xadhyphen"),
    *("A & B & C", "A & " + "long " * 40),
)
A4 = (595.2755905511812, 841.8897637795277)  # points, as in reportlab


def sentence(rng: random.Random, most: int) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))


def block(rng: random.Random) -> Block:
    kind = rng.random()
    if kind < 0.4:
        return sentence(rng, 30)
    if kind < 0.6:
        return Text(sentence(rng, 20), rng.choice([9, 11, 12.5, 16]), rng.random() < 0.5)
    if kind < 0.7:
        return ""
    if kind < 0.8:
        return Box(sentence(rng, 4))
    columns = rng.randint(1, 5)
    return PdfTable([[sentence(rng, 2) for _ in range(columns)] for _ in range(rng.randint(1, 6))])


def test_pages_equal_reportlab() -> None:
    rng, count = random.Random(7), 0
    while count < 120:
        pages = [[block(rng) for _ in range(rng.randint(1, 9))] for _ in range(rng.randint(1, 3))]
        if all(set_page(blocks, A4) for blocks in pages):
            count += 1
            data = pdfs._build_pdf(pages, "t (é)")
            assert write_pdf(pages, "t (é)") == data, pages
            assert read_pdf(data) == pdfs._read.__wrapped__(data)[0], pages


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [""],
        ["line"] * 60,
        [PdfTable([["wide " * 30]])],
        [PdfTable([["a", ""]])],
        [Text("right", align="right")],
        *([text] for text in SPECIAL),
        *([Box(text)] for text in SPECIAL),
    ],
)
def test_special_layouts_are_left_to_reportlab(blocks: Sequence[Block]) -> None:
    assert set_page(blocks, A4) is None
    if not any(isinstance(each, PdfTable) and "wide" in each.rows[0][0] for each in blocks):
        assert write_pdf([blocks]) == pdfs._build_pdf([blocks], "")


def test_invoices_share_page_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Frames are cached by title and first bold page, which have few combinations."""
    built: list[str] = []
    build, read = pdfs._build_pdf, pdfs._read
    monkeypatch.setattr(
        pdfs, "_build_pdf", lambda pages, title: built.append(title) or build(pages, title)
    )
    monkeypatch.setattr(pdfs, "_read", lambda data: pytest.fail("a file of ours was read"))
    env = agentgym.make("PayableInvoiceChecker", size=150)
    pdfs._page_frame.cache_clear()
    env.reset(seed=0)
    assert len(built) <= 2 * len(set(built)) <= 2 * 12
    monkeypatch.setattr(pdfs, "_read", read)
    env.close()
