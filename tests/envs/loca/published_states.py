"""Write state folders in LOCA-bench's format from `states/`, without code from the package."""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import openpyxl  # type: ignore[import-untyped]
from reportlab.pdfgen import canvas  # type: ignore[import-untyped]

STATES = Path(__file__).with_name("states")
# Width and height of an A4 page in points.
SIZE = (595.28, 841.89)


def files_of(task: str) -> dict[str, Any]:
    """Map paths to file contents in a task's example, including any folders `state0`, `state1`."""
    return dict(json.loads((STATES / f"{task}.json").read_text(encoding="utf-8")))


def write_state(folder: Path, files: Mapping[str, Any]) -> Path:
    """Write files and return their folder; a path with content None becomes an empty folder."""
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        _WRITERS.get(path.suffix, _write_text)(path, content)
    return folder


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _write_json(path: Path, content: Any) -> None:
    _write_text(path, json.dumps(content))


def _write_lines(path: Path, records: Sequence[Any]) -> None:
    _write_text(path, "".join(json.dumps(each) + "\n" for each in records))


def _write_csv(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def _write_book(path: Path, sheets: Mapping[str, Sequence[Sequence[Any]]]) -> None:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)


def _write_database(path: Path, tables: Mapping[str, Mapping[str, Any]]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        for name, table in tables.items():
            database.execute(f'CREATE TABLE "{name}" ({table["columns"]})')
            for row in table["rows"]:
                marks = ", ".join("?" * len(row))
                database.execute(f'INSERT INTO "{name}" VALUES ({marks})', row)
        database.commit()


def _write_pdf(path: Path, texts: Sequence[tuple[float, float, float, str]]) -> None:
    page = canvas.Canvas(str(path), pagesize=SIZE)
    for left, top, size, text in texts:
        page.setFont("Helvetica", size)
        page.drawString(left, SIZE[1] - top, text)
    page.save()


def _write_spreadsheet(folder: Path, content: Mapping[str, Any]) -> None:
    """Write a spreadsheet as the published Google Sheets server stores it."""
    book = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    sheets, cells = {}, {}
    for number, (sheet, table) in enumerate(content["sheets"].items()):
        sheets[f"{book}_{number}"] = {"sheetId": number, "title": sheet, "spreadsheetId": book}
        for row, values in enumerate(table):
            for column, value in enumerate(values):
                cell = {"value": value, "formula": "", "formatted_value": value}
                cells[f"{book}_{sheet}_{row}_{column}"] = cell
    properties = {"title": content["title"], "locale": "en_US"}
    spreadsheet = {book: {"spreadsheetId": book, "properties": properties, "folder": "root"}}
    files = {"spreadsheets": spreadsheet, "sheets": sheets, "cells": cells, "permissions": {}}
    write_state(folder, {f"{name}.json": records for name, records in files.items()})


_WRITERS: Mapping[str, Callable[[Path, Any], None]] = {
    ".json": _write_json,
    ".jsonl": _write_lines,
    ".csv": _write_csv,
    ".xlsx": _write_book,
    ".db": _write_database,
    ".pdf": _write_pdf,
    "": _write_spreadsheet,
}
