"""Every text in an office's stores and files, read without its tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from agentgym.office.files.pdfs import read_pdf
from agentgym.office.spreadsheet.workbooks import read_workbook
from tests.envs.loca.observed import observe
from tests.envs.loca.office import fresh

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
# Drawn parts: words with digits, addresses, and capitalised words inside a sentence.
_DRAWN = re.compile(r"\S*\d\S*|\S+@\S+|(?<=[a-z,] )[A-Z][\w'-]*(?: [A-Z][\w'-]*)*")
_COUNT = re.compile(
    r"\b(one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b|\bhalf an hour\b|"
    r"\ba quarter of an hour\b"
)


@cache
def shown(task: str, length: int, seed: int) -> dict[str, tuple[str, ...]]:
    """Return texts by kind: a table and column, or a file type."""
    texts: dict[str, list[str]] = {}
    world = fresh(task, length, seed)
    texts["prompt"] = [world.rules(), world.task()]
    for (part, _), record in observe(world.office).items():
        if part != "files" and not part.endswith(".messages"):
            for kind, text in _strings(part, record):
                texts.setdefault(kind, []).append(text)
        elif part != "files":  # other columns repeat the body as HTML and as index words
            texts.setdefault("mail", []).append(f"{record['subject']}\n\n{record['body']}")
    for path in world.files.walk():
        for kind, text in _file(path, world.files.read(path)):
            texts.setdefault(kind, []).append(text)
    return {kind: tuple(found) for kind, found in texts.items()}


def _strings(part: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, field in value.items():
            yield from _strings(f"{part}.{name}", field)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _strings(part, item)
    elif isinstance(value, str) and " " in value:
        yield part, value


def _file(path: str, data: bytes) -> Iterator[tuple[str, str]]:
    kind = "template" if "template" in path else path.rpartition(".")[2]
    if kind == "pdf":
        yield kind, "\n".join(read_pdf(data))
    elif kind == "xlsx":
        yield from _strings(kind, list(read_workbook(data).values()))
    elif kind != "png":
        yield kind, data.decode()


def sentences(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


def masked(sentence: str) -> str:
    return _COUNT.sub("#", _DRAWN.sub("#", sentence))
