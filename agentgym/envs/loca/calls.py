"""Canonical forms and effects of tool calls.

Calls that differ only in notation, such as a path with or without /workspace, share a canonical
form. The effects of a call, read from its arguments, are the things that it sets and their values.
A plan step is done once its effects exist, whichever calls caused them: one batch update of a
hundred products equals a hundred single updates.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentgym.office.email.messages import addresses
from agentgym.office.office import Office
from agentgym.office.spreadsheet.cells import parse_area
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, tools_of

# Both return the text of a file.
_SAME_TOOL = {"read_file": "read_text_file"}

# SQL dialects by tool.
_DIALECTS = {
    "bigquery_run_query": "bigquery",
    "read_query": "snowflake",
    "write_query": "snowflake",
}


def canonical_call(servers: tuple[str, ...], call: ToolCall) -> ToolCall:
    """Return the canonical form of a call.

    Args:
        servers: The servers of the office, whose tools define the default arguments.
        call: The call.
    """
    defaults = _defaults(servers).get(call.name, {})
    arguments = {}
    for name, value in call.arguments.items():
        is_default = name in defaults and defaults[name] == value
        if value is not None and not is_default:
            arguments[name] = _canonical_value(value)
    if call.name in _DIALECTS and isinstance(arguments.get("query"), str):
        from agentgym.office.warehouse.canonical_sql import canonical_query  # noqa: PLC0415 - it loads sqlglot

        arguments["query"] = canonical_query(arguments["query"], _DIALECTS[call.name])
    if call.name == "send_email":
        arguments = _canonical_mail(arguments)
    return ToolCall(_SAME_TOOL.get(call.name, call.name), arguments, call.id)


def _canonical_mail(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the recipients into one list of bare addresses: to, cc and bcc deliver the same mail."""
    parts = [arguments.get(name) for name in ("to", "cc", "bcc")]
    try:
        people = [addresses(part) for part in parts if isinstance(part, str)]
    except ToolError:  # such a mail cannot have been sent
        return dict(arguments)
    to = dict.fromkeys(address.lower() for some in people for _, address in some)
    rest = {name: value for name, value in arguments.items() if name not in ("cc", "bcc")}
    return {**rest, "to": ", ".join(to)}


def _canonical_value(value: Any) -> Any:
    """Return a path without the workspace prefix, a moment in UTC, or the value unchanged."""
    if isinstance(value, str):
        return value.removeprefix("/workspace/").removeprefix("./")
    if not isinstance(value, Mapping) or not isinstance(value.get("dateTime"), str):
        return value
    try:
        moment = datetime.fromisoformat(value["dateTime"])
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=ZoneInfo(value["timeZone"]))
        return moment.astimezone(UTC).isoformat()
    except (ValueError, KeyError, TypeError, OverflowError, OSError, ZoneInfoNotFoundError):
        return value


@functools.cache
def _defaults(servers: tuple[str, ...]) -> Mapping[str, Mapping[str, Any]]:
    defaults = {}
    for server in Office(servers).toolsets():
        for name, tool in tools_of(server).items():
            parameters = inspect.signature(tool.method).parameters
            defaults[name] = {key: each.default for key, each in parameters.items()}
    return defaults


Effects: TypeAlias = Mapping[str, str]
"""New value of each changed thing, by the thing's name; both are text."""

NO_EFFECTS: Effects = {}
MAKERS = frozenset({"create_spreadsheet", "woo_products_categories_create"})
"""Tools whose result contains the id of a new record, which later steps need."""
LASTING = MAKERS | {"storage_create_bucket"}
"""Tools whose result no other tool can remove."""
# The value of a removed thing.
_GONE = "gone"
# Every turn compares the same pending steps, so their effects are cached.
_CACHED = 512


def effects_of(call: ToolCall) -> Effects:
    """Return the effects visible in the arguments of an executed call; empty for unknown tools."""
    if call.name not in _READERS:
        return NO_EFFECTS
    return _effects(call.name, json.dumps(call.arguments, ensure_ascii=False))


@functools.lru_cache(maxsize=_CACHED)
def _effects(tool: str, arguments: str) -> Effects:
    try:
        return dict(_READERS[tool](json.loads(arguments)))
    except (ToolError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return NO_EFFECTS  # a chat may contain any call


def _products(arguments: Mapping[str, Any]) -> Effects:
    effects: dict[str, str] = {}
    for each in arguments.get("update") or ():
        fields = {name: value for name, value in each.items() if name != "id"}
        if fields:
            effects |= _product(each["id"], fields)
    return effects


def _product(number: int, data: Mapping[str, Any]) -> Effects:
    return {f"product {number} {name}": _text(value) for name, value in data.items()}


def _category(arguments: Mapping[str, Any]) -> Effects:
    data = arguments["categoryData"]
    return {f"category {data.get('parent') or 0} {data['name']}": ""}


def _spreadsheet(arguments: Mapping[str, Any]) -> Effects:
    return {f"spreadsheet {arguments['title']}": ""}


def cell_effects(place: str, number: int, row: Sequence[Any], left: int = 1) -> Effects:
    """Return the effects of writing a row of values.

    Args:
        place: The spreadsheet and the sheet, separated by a space.
        number: The row number.
        row: The values.
        left: The column of the first value.
    """
    return {f"cell {place} {number} {left + x}": _text(value) for x, value in enumerate(row)}


def _cells(place: str, area: str, data: Any) -> Effects:
    first = parse_area(area)
    effects: dict[str, str] = {}
    for number, row in enumerate(data, first.top):
        effects |= cell_effects(place, number, row, first.left)
    return effects


def _sheet_cells(arguments: Mapping[str, Any]) -> Effects:
    place = f"{arguments['spreadsheet_id']} {arguments['sheet']}"
    areas = arguments.get("ranges") or {arguments["range"]: arguments["data"]}
    effects: dict[str, str] = {}
    for area, data in areas.items():
        effects |= _cells(place, area, data)
    return effects


def _event(arguments: Mapping[str, Any]) -> Effects:
    return {f"event {json.dumps(arguments, sort_keys=True)}": ""}


def _book(arguments: Mapping[str, Any]) -> str:
    return str(arguments["filepath"]).removeprefix("/workspace/").removeprefix("./")


def _workbook(arguments: Mapping[str, Any]) -> Effects:
    # The first sheet is left out: a later step may rename it.
    return {f"book {_book(arguments)}": ""}


def _workbook_cells(arguments: Mapping[str, Any]) -> Effects:
    place = f"{_book(arguments)} {arguments['sheet_name']}"
    area = arguments.get("start_cell") or "A1"
    return {f"sheet {place}": "", **_cells(place, area, arguments["data"])}


def _renamed(arguments: Mapping[str, Any]) -> Effects:
    book = _book(arguments)
    return {
        f"sheet {book} {arguments['old_name']}": _GONE,
        f"sheet {book} {arguments['new_name']}": "",
    }


def _sheet(value: str) -> Callable[[Mapping[str, Any]], Effects]:
    return lambda arguments: {f"sheet {_book(arguments)} {arguments['sheet_name']}": value}


def _rows(arguments: Mapping[str, Any]) -> Effects:
    query = arguments["query"]
    if "insert" not in query[:_HEAD].lower():
        return NO_EFFECTS
    from agentgym.office.warehouse.canonical_sql import inserted_rows  # noqa: PLC0415 - it loads sqlglot

    return {
        f"row {table} {_text(sorted(values))}": ""
        for table, values in inserted_rows(query, "bigquery")
    }


# Text compared as a number; no office contains longer numbers.
_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")
# The verb of a statement, after comments, is within this many characters; reads are not parsed.
_HEAD = 1_000

_READERS: Mapping[str, Callable[[Mapping[str, Any]], Effects]] = {
    "woo_products_batch_update": _products,
    "woo_products_update": lambda arguments: _product(
        arguments["productId"], arguments["productData"]
    ),
    "woo_products_categories_create": _category,
    "create_spreadsheet": _spreadsheet,
    "create_event": _event,
    "storage_create_bucket": lambda arguments: {f"bucket {arguments['bucket_name']}": ""},
    "update_cells": _sheet_cells,
    "batch_update_cells": _sheet_cells,
    "create_workbook": _workbook,
    "write_data_to_excel": _workbook_cells,
    "rename_worksheet": _renamed,
    "create_worksheet": _sheet(""),
    "delete_worksheet": _sheet(_GONE),
    "bigquery_run_query": _rows,
}


# Tools that add something each time: the same call again is another change.
_ADDING = frozenset(
    {
        "create_spreadsheet",
        "create_workbook",
        "create_event",
        "bigquery_run_query",
        "woo_products_categories_create",
    }
)
# Tools that read, of the servers whose other tools change things.
_READING = frozenset(
    {
        "get_sheet_data",
        "get_sheet_formulas",
        "get_multiple_sheet_data",
        "get_multiple_spreadsheet_summary",
        "list_sheets",
        "list_spreadsheets",
        "get_event",
        "list_events",
        "storage_list_buckets",
        "storage_list_objects",
        "storage_get_bucket_info",
        "storage_get_bucket_size",
        "storage_generate_signed_url",
        "storage_download_file",
    }
)
# What the tools of a server change, by prefixes of their names.
_THINGS = {
    "storage_": "storage",
    "woo_products_categories_": "categories",
    "bigquery_load_": "tables",
    "snowflake_create_": "tables",
}
_SHEETS = "spreadsheets"
_SHEET_TOOLS = re.compile(
    r"(?:batch_)?update_cells|(?:add|copy|rename|create|share)_\w*(?:rows|columns|sheet)"
)
_EVENT_TOOLS = frozenset({"create_event", "update_event", "delete_event"})
# Arguments that name a file which a call may write.
_PATHS = ("path", "filepath", "source", "destination", "output_path", "destination_file_path", "export_path")  # fmt: skip
_FILE_READERS = re.compile(r"read_|list_|directory_|search_|get_|validate_")
_PROGRAMS = frozenset({"python_execute", "run_command"})
_CHANGING = re.compile(
    r"\b(insert|update|delete|merge|create|alter|drop|truncate|comment|call|execute)\b",
    re.IGNORECASE,
)


def adds(call: ToolCall) -> bool:
    """Return whether the call adds something each time that it is made."""
    return call.name in _ADDING


def things_changed(call: ToolCall, files: Collection[str] = ()) -> frozenset[str]:
    """Return what an executed call may have changed: kinds of records, and `file <path>` for those
    of the files.

    Programs may change every file whose name they contain.
    """
    name, arguments = call.name, call.arguments
    if name in _PROGRAMS:
        text = json.dumps(arguments, ensure_ascii=False)
        return frozenset(f"file {path}" for path in files if path in text)
    if name in _READING or (name.startswith("woo_") and name.endswith("_list")):
        return frozenset()
    if name in _EVENT_TOOLS:
        return frozenset({"events"})
    if _SHEET_TOOLS.fullmatch(name) and "filepath" not in arguments:
        return frozenset({_SHEETS})
    if name in _DIALECTS:
        return frozenset({"tables"} if _CHANGING.search(str(arguments.get("query"))) else ())
    for prefix, thing in _THINGS.items():
        if name.startswith(prefix):
            return frozenset({thing})
    if _FILE_READERS.match(name):
        return frozenset()
    named = [_canonical_value(arguments.get(key)) for key in _PATHS]
    return frozenset(f"file {path}" for path in files if path in named)


def _text(value: Any) -> str:
    """Return a value as text; numbers are normalised, so 2 equals "2.0"."""
    text = value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if _NUMBER.fullmatch(text):
        return str(Decimal(text).normalize())
    return text
