"""Calls of the PDF server."""

from __future__ import annotations

from typing import Any

from agentgym.office.files.pdf_tools import PdfTools
from agentgym.office.files.pdfs import write_pdf
from tests.office.published import Call, Difference


def prepared() -> PdfTools:
    server = PdfTools()
    pages = [[f"row {10 * page + k}" for k in range(10)] for page in range(3)]
    server.context.files.write("m.pdf", write_pdf(pages, "Rows"))
    return server


def search_id(answers: list[Any]) -> str:
    return str(answers[0].split("\n")[0].removeprefix("Search ID: "))


HEAD = r"Search ID: [0-9a-f]{8}\nPattern: ROW \\d\+\nTotal matches: 30\nPage: "
MATCHES = (
    r"(Match \d+:\n  Page: \d\n  Text: \"row \d+\"\n  Context: [^\[]*\[row \d+\][^\[]*\n\n){10}.*"
)
ERROR = Difference(
    "An expression that cannot be parsed and a file that is not there are errors, not searches "
    "without a match."
)
CALLS = [
    Call(
        "search_pdf_content",
        {"pdf_file_path": "m.pdf", "pattern": r"ROW \d+"},
        rf"{HEAD}1/3\nResults per page: 10\n\n{MATCHES}",
    ),
    Call("search_pdf_next_page", lambda a: {"search_id": search_id(a)}, rf"{HEAD}2/3\n\n{MATCHES}"),
    Call("search_pdf_prev_page", lambda a: {"search_id": search_id(a)}, rf"{HEAD}1/3\n\n{MATCHES}"),
    Call(
        "search_pdf_go_page",
        lambda a: {"search_id": search_id(a), "page_number": 3},
        rf"{HEAD}3/3\n\n{MATCHES}",
    ),
    Call("search_pdf_next_page", lambda a: {"search_id": search_id(a)}, r"[^\n]+"),
    Call(
        "search_pdf_info",
        lambda a: {"search_id": search_id(a)},
        r"[^\n]+:\nSearch ID: [0-9a-f]{8}\nPDF Path: m\.pdf\nPattern: ROW \\d\+\n"
        r"Total matches: 30\nCurrent page: 3/3\nResults per page: 10\nLast accessed: [^\n]+",
    ),
    Call("search_pdf_content", {"pdf_file_path": "m.pdf", "pattern": "none"}, r"[^\n]+: none"),
    Call(
        "read_pdf_pages",
        {"pdf_file_path": "m.pdf"},
        r"[^\n]*: 3\n[^\n]*: 1-1\n\n=== Page 1 ===\nrow 0\n.*row 9\n*",
    ),
    Call(
        "get_pdf_info",
        {"pdf_file_path": "/workspace/m.pdf"},
        r"[^\n]+:\nTotal pages: 3\nTitle: Rows\nAuthor: [^\n]*\nCreator: [^\n]+\n"
        r"Creation date: [^\n]+",
    ),
    Call(
        "merge_pdfs",
        {"pdf_paths": ["m.pdf", "m.pdf"], "output_path": "two.pdf"},
        r"[^\n]*\b2\b[^\n]*two\.pdf[^\n]*\n[^\n]*: 6",
    ),
    Call(
        "extract_pdf_pages",
        {"source_path": "two.pdf", "page_numbers": [6, 9, 1], "output_path": "one.pdf"},
        r"[^\n]*\b2\b[^\n]*two\.pdf[^\n]*one\.pdf[^\n]*\n[^\n]*6[^\n]*1[^\n]*\n[^\n]*: 6",
    ),
]
DIFFERENCES = {"search_pdf_content": ERROR}
