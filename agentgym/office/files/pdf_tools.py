"""PDF server with pdf-tools-mcp's tools: reading, merging and splitting."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from agentgym.office.disabled import with_disabled_tools
from agentgym.office.files.pdfs import MAX_PAGES, guarded, open_pdf, read_pdf
from agentgym.office.libraries import pdf_library
from agentgym.office.server import Server
from agentgym.text.tools import ToolError, tool

_METADATA = {
    "Title": "/Title",
    "Author": "/Author",
    "Creator": "/Creator",
    "Creation date": "/CreationDate",
}


@with_disabled_tools(Path(__file__).with_name("disabled_pdf_tools.json"))
class PdfTools(Server):
    """Tools for the PDF files of the workspace."""

    name = "pdf_tools"
    tool_order = tuple(
        """
        read_pdf_pages get_pdf_info merge_pdfs extract_pdf_pages search_pdf_content
        search_pdf_next_page search_pdf_prev_page search_pdf_go_page search_pdf_info
        """.split()
    )

    @tool
    def read_pdf_pages(self, pdf_file_path: str, start_page: int = 1, end_page: int = 1) -> str:
        """Read the text of a page range.

        Args:
            pdf_file_path: The file.
            start_page: First page, from 1.
            end_page: Last page; pages beyond the end of the file are ignored.
        """
        pages = read_pdf(self._bytes(pdf_file_path))
        first, last = sorted((start_page, end_page))
        first = min(max(first, 1), len(pages))
        last = min(max(last, 1), len(pages))
        total = f"PDF total pages: {len(pages)}"
        texts = []
        for number, text in enumerate(pages, 1):
            if first <= number <= last and text.strip():
                texts.append(f"=== Page {number} ===\n{text}")
        if not texts:
            return (
                f"{total}\nSpecified page range ({first}-{last}) has no extractable text content."
            )
        return "\n\n".join([f"{total}\nExtracted page range: {first}-{last}", *texts])

    @tool
    def get_pdf_info(self, pdf_file_path: str) -> str:
        """Show the page count and metadata of a PDF file.

        Args:
            pdf_file_path: The file.
        """
        with guarded():
            reader = open_pdf(self._bytes(pdf_file_path))
            lines = ["PDF file information:", f"Total pages: {len(reader.pages)}"]
            if metadata := reader.metadata:
                for name, key in _METADATA.items():
                    lines.append(f"{name}: {metadata.get(key, 'Unknown')}")
        return "\n".join(lines).encode("utf-8", "replace").decode("utf-8")

    @tool
    def merge_pdfs(self, pdf_paths: list[str], output_path: str) -> str:
        """Merge PDF files in the given order.

        Args:
            pdf_paths: The files.
            output_path: The file to create or overwrite.
        """
        if not pdf_paths:
            raise ToolError("invalid argument: pdf_paths must name at least one file")
        writer, buffer = pdf_library("pypdf").PdfWriter(), BytesIO()
        with guarded():
            for path in pdf_paths:
                for page in open_pdf(self._bytes(path)).pages:
                    writer.add_page(page)
                if len(writer.pages) > MAX_PAGES:
                    raise ToolError(
                        f"limit exceeded: a PDF file may have at most {MAX_PAGES} pages"
                    )
            writer.write(buffer)
        self.context.clock.tick()
        self.context.files.write(output_path, buffer.getvalue())
        return f"Successfully merged {len(pdf_paths)} PDFs into '{output_path}'\nTotal pages: {len(writer.pages)}"

    def _bytes(self, path: str) -> bytes:
        if path.startswith(("http://", "https://")):
            raise ToolError(
                "permission denied: there is no network; give the path of a file in the workspace"
            )
        return self.context.files.read(path)
