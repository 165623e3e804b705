"""Convert the tutorials to Jupyter notebooks: Python blocks become code cells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PYTHON = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def notebook_pages(docs: Path) -> Iterator[tuple[str, str]]:
    for page in sorted((docs / "tutorials").glob("*.md")):
        yield f"notebooks/{page.stem}.ipynb", notebook(page.read_text(encoding="utf-8"))


def notebook(page: str) -> str:
    """Return the notebook of a Markdown page (nbformat 4.5), without outputs."""
    cells = []
    # Text and code alternate.
    for number, part in enumerate(_PYTHON.split(page)):
        source = part.strip("\n")
        cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": source}
        if number % 2:
            cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
        else:
            cell |= {"cell_type": "markdown"}
        if source:
            cells.append(cell)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    data = {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"
