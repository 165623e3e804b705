"""Parse tool results into facts."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from agentgym.envs.loca.records import Record


def query_rows(text: str) -> list[Record]:
    """Return the rows of a BigQuery result."""
    start = re.search(r"^\[", text, re.MULTILINE)
    if start:
        return list(json.loads(text[start.start() :]))
    if "Total rows: 0" not in text:
        raise ValueError("the result must contain rows")
    return []


def data_rows(text: str) -> list[dict[str, str]]:
    """Return the records of a Snowflake result as strings."""
    _, mark, data = text.partition("\ndata:")
    if not mark:
        raise ValueError("the result must contain records")
    records = []
    for block in data.split("\n- ")[1:]:
        record = {}
        for line in block.removeprefix("\n").split("\n"):
            name, colon, value = line.removeprefix("  ").partition(": ")
            if not colon:
                raise ValueError("each line must contain a field")
            record[name] = value
        records.append(record)
    return records


def listed_items(text: str) -> list[str]:
    """Return the items in a Google Cloud listing."""
    heading, *lines = text.split("\n")
    count = re.fullmatch(r".* \((\d+)\):", heading)
    if count is None or int(count[1]) != len(lines):
        raise ValueError("the listing must be complete")
    return [line.removeprefix("- ") for line in lines]


def cell_rows(text: str) -> list[list[Any]]:
    """Return the values in a `read_data_from_excel` result."""
    rows: dict[int, list[Any]] = {}
    for cell in json.loads(text)["cells"]:
        rows.setdefault(cell["row"], []).append(cell["value"])
    return list(rows.values())


def sheet_values(text: str) -> list[list[Any]]:
    """Return the values in a `get_sheet_data` result."""
    [area] = json.loads(text)["valueRanges"]
    return list(area["values"])


def read_metadata(text: str) -> Record:
    """Return the metadata in a `get_workbook_metadata` result."""
    return dict(ast.literal_eval(text))
