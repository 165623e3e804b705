"""Documentation pages generated from the code at build time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from generate.api import api_pages
from generate.cli import cli_pages
from generate.notebooks import notebook_pages
from generate.servers import server_pages
from generate.worlds import world_pages
from generate.wrappers import wrapper_pages

# Folders of generated pages, which git ignores.
FOLDERS = ("worlds", "servers", "wrappers", "api")


def pages() -> Iterator[tuple[str, str]]:
    yield from world_pages()
    yield from server_pages()
    yield from wrapper_pages()
    yield from api_pages()
    yield from cli_pages()


def write_pages(docs: Path) -> None:
    """Write the generated pages and remove obsolete ones.

    Unchanged pages are not rewritten, so that Sphinx does not read them again.
    """
    texts = {docs / path: text for path, text in (*pages(), *notebook_pages(docs))}
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for folder in FOLDERS:
        for path in (docs / folder).glob("*.md"):
            if path not in texts:
                path.unlink()
