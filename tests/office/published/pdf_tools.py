"""Calls of the PDF server."""

from __future__ import annotations

from agentgym.office.files.pdf_tools import PdfTools
from agentgym.office.files.pdfs import write_pdf
from tests.office.published import DISABLED, Call


def prepared() -> PdfTools:
    server = PdfTools()
    pages = [[f"row {10 * page + k}" for k in range(10)] for page in range(3)]
    server.context.files.write("m.pdf", write_pdf(pages, "Rows"))
    return server


CALLS = [
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
DIFFERENCES = {
    f"search_pdf_{name}": DISABLED
    for name in ("content", "next_page", "prev_page", "go_page", "info")
}
