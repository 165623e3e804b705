"""PDF server with pdf-tools-mcp's tools: reading, searching, merging and splitting."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO
from typing import Any, ClassVar

from agentgym.office.files.pdfs import MAX_PAGES, guarded, open_pdf, read_pdf
from agentgym.office.libraries import install_hint, pdf_library
from agentgym.office.server import Server
from agentgym.text import reply_work
from agentgym.text.tools import ToolError, echo, tool

MAX_MATCHES = 2_000  # every snapshot contains them
MAX_SEARCHES = 20  # the oldest search is dropped
# Compiling a regular expression has no time limit, so its length is limited.
MAX_PATTERN_CHARS = 1_000

_CONTEXT_CHARS = 100  # characters on each side of a match, one or two lines
_SECONDS = 2.0  # search time limit: a pattern may backtrack exponentially


class PdfTools(Server):
    """Tools for the PDF files of the workspace. Search results are stored for paging."""

    name: ClassVar[str] = "pdf_tools"

    @tool
    def read_pdf_pages(self, pdf_file_path: str, start_page: int = 1, end_page: int = 1) -> str:
        """Read the text of a page range.

        Args:
            pdf_file_path: The file.
            start_page: First page, from 1.
            end_page: Last page; pages beyond the end of the file are ignored.
        """
        pages = read_pdf(self._bytes(pdf_file_path))
        first, last = sorted(min(max(page, 1), len(pages)) for page in (start_page, end_page))
        chosen = list(enumerate(pages, 1))[max(first, 1) - 1 : last]
        texts = [f"=== Page {k} ===\n{text}" for k, text in chosen if text.strip()]
        if not texts:
            return (
                f"PDF total pages: {len(pages)}\nSpecified page range ({first}-{last}) has no "
                "extractable text content."
            )
        return "\n\n".join(
            [f"PDF total pages: {len(pages)}\nExtracted page range: {first}-{last}", *texts]
        )

    @tool
    def get_pdf_info(self, pdf_file_path: str) -> str:
        """Show the page count and metadata of a PDF file.

        Args:
            pdf_file_path: The file.
        """
        with guarded():
            reader = open_pdf(self._bytes(pdf_file_path))
            facts = {"Total pages": str(len(reader.pages))}
            if metadata := reader.metadata:
                names = {
                    "Title": "/Title",
                    "Author": "/Author",
                    "Creator": "/Creator",
                    "Creation date": "/CreationDate",
                }
                facts |= {name: str(metadata.get(key, "Unknown")) for name, key in names.items()}
        lines = [
            "PDF file information:",
            *(f"{name}: {fact}" for name, fact in facts.items()),
        ]
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
        count = self._write([(path, None) for path in pdf_paths], output_path)
        return (
            f"Successfully merged {len(pdf_paths)} PDFs into '{output_path}'\nTotal pages: {count}"
        )

    @tool
    def extract_pdf_pages(self, source_path: str, page_numbers: list[int], output_path: str) -> str:
        """Extract pages of a PDF file into a new file.

        Args:
            source_path: The source file.
            page_numbers: Pages in the order to extract, from 1; pages beyond the end of the file are ignored.
            output_path: The file to create or overwrite.
        """
        with guarded():
            total = len(open_pdf(self._bytes(source_path)).pages)
        numbers = [number for number in page_numbers if 1 <= number <= total]
        if not numbers:
            raise ToolError(
                f"invalid argument: none of the pages exists; the file has pages 1 to {total}"
            )
        count = self._write([(source_path, numbers)], output_path)
        return (
            f"Successfully extracted {count} pages from '{source_path}' to '{output_path}'\n"
            f"Extracted pages: {numbers}\nSource PDF total pages: {total}"
        )

    @tool
    def search_pdf_content(self, pdf_file_path: str, pattern: str, page_size: int = 10) -> str:
        """Search a PDF file for a regular expression, ignoring case; returns the first page of results and a search id.

        Args:
            pdf_file_path: The file.
            pattern: The regular expression.
            page_size: Results per page, 10 to 50; other values mean 10.
        """
        matches = _find(read_pdf(self._bytes(pdf_file_path)), pattern)
        if not matches:
            return f"No matches found for pattern: {pattern}"
        size = page_size if 10 <= page_size <= 50 else 10
        warning = ""
        if size != page_size:
            warning = (
                f"Warning: Page size {page_size} is out of range (10-50). Using default value 10.\n"
            )
        searches = self.session.setdefault("searches", {})
        identity = self.context.new_id("search", 8)
        searches[identity] = {
            "path": pdf_file_path,
            "pattern": pattern,
            "size": size,
            "page": 1,
            "found": matches,
        }
        while len(searches) > MAX_SEARCHES:
            del searches[next(iter(searches))]
        return f"{warning}{self._show(identity, 1, first=True)}"

    @tool
    def search_pdf_next_page(self, search_id: str) -> str:
        """Show the next page of search results.

        Args:
            search_id: The search.
        """
        search = self._search(search_id)
        last = _pages(search)
        if search["page"] == last:
            return f"Already on last page ({last}/{last})"
        return self._show(search_id, search["page"] + 1)

    @tool
    def search_pdf_prev_page(self, search_id: str) -> str:
        """Show the previous page of search results.

        Args:
            search_id: The search.
        """
        page = self._search(search_id)["page"]
        return "Already on first page (1)" if page == 1 else self._show(search_id, page - 1)

    @tool
    def search_pdf_go_page(self, search_id: str, page_number: int) -> str:
        """Show a given page of search results.

        Args:
            search_id: The search.
            page_number: The page, from 1.
        """
        last = _pages(self._search(search_id))
        if not 1 <= page_number <= last:
            raise ToolError(
                f"invalid argument: there is no page {echo(page_number)}; pages: 1 to {last}"
            )
        return self._show(search_id, page_number)

    @tool
    def search_pdf_info(self, search_id: str) -> str:
        """Show the file, pattern and current page of a search.

        Args:
            search_id: The search.
        """
        search = self._search(search_id)
        facts = {
            "Search ID": search_id,
            "PDF Path": search["path"],
            "Pattern": search["pattern"],
            "Total matches": len(search["found"]),
            "Current page": f"{search['page']}/{_pages(search)}",
            "Results per page": search["size"],
            "Last accessed": f"{search['accessed']:%Y-%m-%d %H:%M:%S}",
        }
        return "\n".join(
            ["Search Session Information:", *(f"{name}: {fact}" for name, fact in facts.items())]
        )

    def _bytes(self, path: str) -> bytes:
        if path.startswith(("http://", "https://")):
            raise ToolError(
                "permission denied: there is no network; give the path of a file in the workspace"
            )
        return self.context.files.read(path)

    def _write(self, sources: Sequence[tuple[str, Sequence[int] | None]], target: str) -> int:
        """Write pages, or all with None, into one file and return their count."""
        writer, buffer, count = pdf_library("pypdf").PdfWriter(), BytesIO(), 0
        with guarded():
            for path, numbers in sources:
                reader = open_pdf(self._bytes(path))
                pages = range(1, len(reader.pages) + 1) if numbers is None else numbers
                count += len(pages)
                if count > MAX_PAGES:
                    raise ToolError(
                        f"limit exceeded: a PDF file may have at most {MAX_PAGES} pages"
                    )
                for number in pages:
                    writer.add_page(reader.pages[number - 1])
            writer.write(buffer)
        self.context.clock.tick()
        self.context.files.write(target, buffer.getvalue())
        return count

    def _search(self, identity: str) -> dict[str, Any]:
        searches: dict[str, dict[str, Any]] = self.session.get("searches", {})
        if identity not in searches:
            raise ToolError(
                f"not found: there is no search {echo(identity)}; the last {MAX_SEARCHES} are kept"
            )
        return searches[identity]

    def _show(self, identity: str, page: int, *, first: bool = False) -> str:
        """Format a page of results; only the first one states the page size."""
        search = self._search(identity)
        search["page"], search["accessed"] = page, self.context.clock.now()
        matches, size = search["found"], search["size"]
        total = str(len(matches))
        if len(matches) == MAX_MATCHES:
            total += " (the maximum)"
        lines = [
            f"Search ID: {identity}",
            f"Pattern: {search['pattern']}",
            f"Total matches: {total}",
            f"Page: {page}/{_pages(search)}",
        ]
        if first:
            lines.append(f"Results per page: {size}")
        lines.append("")
        first_match = (page - 1) * size
        shown = matches[first_match : first_match + size]
        for k, (number, text, before, after) in enumerate(shown, first_match + 1):
            lines += [
                f"Match {k}:",
                f"  Page: {number}",
                f'  Text: "{text}"',
                f"  Context: ...{before}[{text}]{after}...",
                "",
            ]
        if len(matches) > size:
            lines.append(
                "Use search_pdf_next_page, search_pdf_prev_page or search_pdf_go_page with this "
                "search_id for the other pages."
            )
        return "\n".join(lines)


def _pages(search: dict[str, Any]) -> int:
    return int(-(-len(search["found"]) // search["size"]))


def _find(pages: Sequence[str], pattern: str) -> list[tuple[int, str, str, str]]:
    """Return (page, text, text before, text after) per match."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(
            f"limit exceeded: a pattern of {len(pattern)} characters, at most {MAX_PATTERN_CHARS} "
            "are allowed"
        )
    with install_hint("searching PDF files needs regex", "regex"):
        regex = import_module("regex")
    matches = []
    start_time = time.process_time()
    deadline = start_time + _SECONDS
    try:
        compiled = regex.compile(pattern, regex.IGNORECASE | regex.MULTILINE)
        for number, text in enumerate(pages, 1):
            left = deadline - time.process_time()
            for match in compiled.finditer(text, timeout=max(left, 0.001)):
                start, end = match.span()
                before = text[max(0, start - _CONTEXT_CHARS) : start]
                after = text[end : end + _CONTEXT_CHARS]
                matches.append((number, match[0][:1_000], before, after))
                if len(matches) == MAX_MATCHES:
                    return matches
    except (regex.error, RecursionError, OverflowError) as error:
        raise ToolError(
            f"invalid argument: {echo(pattern)} is not a valid regular expression: {error}"
        ) from None
    except TimeoutError:
        raise ToolError(f"limit exceeded: the search for {echo(pattern)} takes too long") from None
    finally:
        reply_work.spend((time.process_time() - start_time) / _SECONDS)
    return matches
