"""PDF server, and PDF files created for tasks."""

from __future__ import annotations

import contextlib
import logging
import random
import re
from io import BytesIO
from typing import Any

import pytest

from agentgym.office.files import pdfs
from agentgym.office.files.pdf_tools import PdfTools
from agentgym.office.files.pdfs import MAX_PAGES, MAX_WORK, Box, PdfTable, Text, read_pdf, write_pdf
from agentgym.text.tools import ToolError
from tests.office.files.test_filesystem import Client

pypdf: Any = pytest.importorskip("pypdf")

INVOICE = [
    [
        Text("ACME & Co <Ltd>", 18, bold=True),
        "Invoice INV-7",
        Box("PAID"),
        PdfTable([["Item", "Price"], ["Desk", "$99.50"]]),
        "",
        "Total: €99.50 – “thanks”",
    ],
    ["Page two"],
]


@pytest.fixture
def pdf() -> Client:
    server = PdfTools()
    server.context.files.write("inv.pdf", write_pdf(INVOICE, "Invoice"))
    server.context.files.write("five.pdf", write_pdf([[f"leaf {k}"] for k in range(1, 6)]))
    server.context.files.write("text.pdf", "no PDF")
    return Client(server)


def test_writing_is_deterministic_and_readable() -> None:
    data = write_pdf(INVOICE, "Invoice")
    assert data == write_pdf(INVOICE, "Invoice")
    first, second = read_pdf(data)
    words = ["ACME & Co <Ltd>", "Invoice INV-7", "PAID", "Item", "Price", "Desk", "$99.50"]
    words.append("Total: €99.50 – “thanks”")
    assert [line.strip() for line in first.split("\n") if line.strip()] == words
    assert second.strip() == "Page two"
    assert [page.extract_text() for page in pypdf.PdfReader(BytesIO(data)).pages] == [first, second]


def test_overflow_and_unsupported_characters() -> None:
    pages = read_pdf(write_pdf([[f"line {k}" for k in range(120)], []]))
    assert len(pages) == 4
    assert re.findall(r"\d+", " ".join(pages)) == [str(k) for k in range(120)]
    assert [len(read_pdf(write_pdf(each))) for each in ([["x"]], [[]], [[], []])] == [1, 1, 2]
    for block in ("日本", Box("日本"), PdfTable([["日本"]])):
        with pytest.raises(
            ValueError, match=r"lack the character '日' \(in '日本'\); use Latin letters"
        ):
            write_pdf([[block]])


@pytest.mark.parametrize(
    ("first", "last", "pages"),
    [
        (1, 1, "1"),
        (2, 4, "234"),
        (4, 2, "234"),
        (0, 99, "12345"),
        (9, 9, "5"),
        (-3, 1, "1"),
        (1, 10**30, "12345"),
    ],
)
def test_pages_are_read(pdf: Client, first: int, last: int, pages: str) -> None:
    shown = pdf("read_pdf_pages", pdf_file_path="five.pdf", start_page=first, end_page=last)
    assert shown.startswith(
        f"PDF total pages: 5\nExtracted page range: {pages[0]}-{pages[-1]}\n\n=== Page {pages[0]} ===\n"
    )
    assert "".join(re.findall(r"leaf (\d)", shown)) == pages


def test_info_and_blank_pages(pdf: Client) -> None:
    assert pdf("read_pdf_pages", pdf_file_path="five.pdf").count("leaf") == 1
    assert pdf("get_pdf_info", pdf_file_path="inv.pdf").split("\n")[:3] == [
        "PDF file information:",
        "Total pages: 2",
        "Title: Invoice",
    ]
    pdf.server.context.files.write("blank.pdf", write_pdf([[]]))
    blank = pdf("read_pdf_pages", pdf_file_path="blank.pdf")
    assert (
        blank == "PDF total pages: 1\nSpecified page range (1-1) has no extractable text content."
    )


def test_merging(pdf: Client) -> None:
    files = pdf.server.context.files
    merged = pdf(
        "merge_pdfs", pdf_paths=["five.pdf", "inv.pdf", "five.pdf"], output_path="out/all.pdf"
    )
    assert merged == "Successfully merged 3 PDFs into 'out/all.pdf'\nTotal pages: 12"
    five, inv = read_pdf(files.read("five.pdf")), read_pdf(files.read("inv.pdf"))
    assert read_pdf(files.read("out/all.pdf")) == five + inv + five
    before = files.read("out/all.pdf")
    pdf("merge_pdfs", pdf_paths=["five.pdf", "inv.pdf", "five.pdf"], output_path="out/all.pdf")
    assert files.read("out/all.pdf") == before, "the same calls give the same bytes"


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("read_pdf_pages", {"pdf_file_path": "none.pdf"}, 'not found: there is no file "none.pdf"'),
        (
            "read_pdf_pages",
            {"pdf_file_path": "text.pdf"},
            "invalid argument: the file cannot be read as PDF: ",
        ),
        ("get_pdf_info", {"pdf_file_path": "../x.pdf"}, "permission denied: "),
        (
            "get_pdf_info",
            {"pdf_file_path": "https://example.org/x.pdf"},
            "permission denied: there is no network",
        ),
        ("merge_pdfs", {"pdf_paths": [], "output_path": "o.pdf"}, "invalid argument"),
        (
            "merge_pdfs",
            {"pdf_paths": ["inv.pdf", "text.pdf"], "output_path": "o.pdf"},
            "invalid argument",
        ),
        (
            "merge_pdfs",
            {"pdf_paths": ["inv.pdf"], "output_path": "/etc/o.pdf"},
            "permission denied",
        ),
        (
            "merge_pdfs",
            {"pdf_paths": ["five.pdf"] * 101, "output_path": "o.pdf"},
            f"limit exceeded: a PDF file may have at most {MAX_PAGES}",
        ),
    ],
)
def test_failed_calls_leave_no_file(
    pdf: Client, name: str, arguments: dict[str, Any], error: str
) -> None:
    assert pdf.refused(name, **arguments).startswith(error)
    assert pdf.server.context.files.names() == ["five.pdf", "inv.pdf", "text.pdf"]


def test_broken_files_are_rejected(pdf: Client) -> None:
    rng = random.Random(4)
    whole = bytearray(write_pdf(INVOICE))
    read = 0
    for _ in range(150):
        broken = bytearray(whole[: rng.randrange(len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randrange(1, 30)):
            if broken:
                broken[rng.randrange(len(broken))] = rng.randrange(256)
        pdf.server.context.files.write("broken.pdf", bytes(broken))
        for name, arguments in (
            ("read_pdf_pages", {"pdf_file_path": "broken.pdf"}),
            ("get_pdf_info", {"pdf_file_path": "broken.pdf"}),
            ("merge_pdfs", {"pdf_paths": ["broken.pdf"], "output_path": "o.pdf"}),
        ):
            try:
                read += pdf(name, **arguments) != ""
            except ToolError as error:
                assert str(error).startswith("invalid argument: the file cannot be read as PDF")  # noqa: PT017
    assert read > 0


def pdf_of(content: bytes, pages: int = 1, form: bytes = b"") -> bytes:
    """Return a PDF whose pages share one content stream, which may draw a form."""
    writer = pypdf.PdfWriter()
    generic = pypdf.generic
    name = generic.NameObject
    font = generic.DictionaryObject(
        {
            name("/Type"): name("/Font"),
            name("/Subtype"): name("/Type1"),
            name("/BaseFont"): name("/Helvetica"),
        }
    )
    resources = generic.DictionaryObject(
        {name("/Font"): generic.DictionaryObject({name("/F"): font})}
    )
    stream = generic.DecodedStreamObject()
    stream.set_data(content)
    drawn = generic.DecodedStreamObject()
    drawn.set_data(form)
    drawn.update({name("/Subtype"): name("/Form"), name("/Resources"): resources})
    places = writer._add_object(stream.flate_encode()), writer._add_object(drawn.flate_encode())
    shown = generic.DictionaryObject(
        {**resources, name("/XObject"): generic.DictionaryObject({name("/X"): places[1]})}
    )
    for _ in range(pages):
        page = writer.add_blank_page(100, 100)
        page[name("/Contents")], page[name("/Resources")] = places[0], shown
    buffer = BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "pages", "form"),
    [
        (b"BT /F 9 Tf " + b"(a) Tj " * 200 + b"ET", 60, b""),
        (b"BT /F 9 Tf [" + b"(a) " * 4_000 + b"] TJ ET", 9, b""),
        (b"1 " * 4_000 + b"(a) Tj", 9, b""),
        (b"%" * 40_000 + b"\n(a) Tj", 9, b""),
        (b"/X Do " * 9, 1, b"1 " * 1_000 + b"(a) Tj"),
        (b"/X Do " * 9 + b"(a) Tj", 1, b"%" * 1_000 + b"\n(a) Tj"),
    ],
    ids=["operators", "elements", "operands", "comments", "operands of forms", "forms"],
)
def test_reading_work_is_bounded_over_all_pages(
    monkeypatch: pytest.MonkeyPatch, content: bytes, pages: int, form: bytes
) -> None:
    monkeypatch.setattr(pdfs, "MAX_WORK", MAX_WORK // 10)
    monkeypatch.setattr(pdfs, "_FORM_WORK", pdfs._FORM_WORK // 4)
    stream = pypdf.generic.ContentStream
    check, words = stream._check_limits, 0

    def count(*, token_decrement: int, **options: Any) -> Any:
        nonlocal words
        words += token_decrement
        return check(token_decrement=token_decrement, **options)

    monkeypatch.setattr(stream, "_check_limits", staticmethod(count))
    with pytest.raises(ToolError, match="limit exceeded: the PDF file is too complex"):
        read_pdf(pdf_of(content, pages, form))
    assert words < MAX_WORK // 9
    assert read_pdf(pdf_of(b"BT /F 9 Tf (a) Tj ET /X Do", 2, b"BT (b) Tj ET")) == ("a\nb",) * 2


def test_pypdf_warnings_stay_out_of_the_log(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for data in (
        b"junk\n" * 9 + write_pdf([["leaf"]]),
        write_pdf([["leaf"]])[:-30],
        b"%PDF-\x1b[2J",
    ):
        with contextlib.suppress(ToolError):
            read_pdf(data)
    assert (capfd.readouterr().err, caplog.text) == ("", "")
    logging.getLogger("pypdf._reader").warning("of a user's own file")
    assert "of a user's own file" in caplog.text
