"""Canonical forms and effects of tool calls.

Calls that differ only in notation share a canonical form. Effects map each changed item to the new
value, so a batch update has the same effects as many single updates.
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

from agentgym.envs.loca.records import Fields, Record
from agentgym.office.email.messages import addresses
from agentgym.office.office import Office
from agentgym.office.spreadsheet.cells import parse_area
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, tools_of

# `read_file` and `read_text_file` both return the text of a file.
_SAME_TOOL = {"read_file": "read_text_file"}

# SQL dialects by tool.
_DIALECTS = {
    "bigquery_run_query": "bigquery",
    "read_query": "snowflake",
    "write_query": "snowflake",
}


def canonical_call(servers: tuple[str, ...], call: ToolCall) -> ToolCall:
    """Return the canonical form of a call."""
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


def _canonical_mail(arguments: Fields) -> Record:
    # Recipients in To, Cc and Bcc receive the same mail.
    mail = dict(arguments)
    to: list[str] = []
    try:
        for part in (mail.get("to"), mail.pop("cc", None), mail.pop("bcc", None)):
            if isinstance(part, str):
                to += [address.lower() for _, address in addresses(part)]
    except ToolError:  # an email with invalid addresses cannot have been sent
        return dict(arguments)
    mail["to"] = ", ".join(dict.fromkeys(to))
    return mail


def _canonical_value(value: Any) -> Any:
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
def _defaults(servers: tuple[str, ...]) -> Mapping[str, Fields]:
    defaults = {}
    for server in Office(servers).toolsets():
        for name, tool in tools_of(server).items():
            parameters = inspect.signature(tool.method).parameters
            defaults[name] = {key: each.default for key, each in parameters.items()}
    return defaults


# Maps the name of each changed item to the new value.
Effects: TypeAlias = Mapping[str, str]

# Name of the item that tracks the mail login.
SESSION = "session"


def effects_of(call: ToolCall) -> Effects:
    """Return the effects that a call's arguments show, or none for unknown tools."""
    if call.name not in _READERS:
        return {}
    return _effects(call.name, json.dumps(call.arguments, ensure_ascii=False))


@functools.lru_cache(maxsize=512)  # every turn compares the same pending steps
def _effects(tool: str, arguments: str) -> Effects:
    try:
        return dict(_READERS[tool](json.loads(arguments)))
    except (ToolError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return {}  # a chat may contain invalid calls


def _products(arguments: Fields) -> Effects:
    effects: dict[str, str] = {}
    for each in arguments.get("update") or ():
        fields = {name: value for name, value in each.items() if name != "id"}
        if fields:
            effects |= _product(each["id"], fields)
    return effects


def _product(number: int, data: Fields) -> Effects:
    return {f"product {number} {name}": _text(value) for name, value in data.items()}


def cell_effects(place: str, number: int, row: Sequence[Any], left: int = 1) -> Effects:
    """Return the effects of writing a row that starts in column `left`."""
    columns = enumerate(row, left)
    return {f"cell {place} {number} {column}": _text(value) for column, value in columns}


def _cells(arguments: Fields) -> Effects:
    place = f"{arguments['spreadsheet_id']} {arguments['sheet']}"
    areas = arguments.get("ranges") or {arguments["range"]: arguments["data"]}
    effects: dict[str, str] = {}
    for area, data in areas.items():
        first = parse_area(area)
        for number, row in enumerate(data, first.top):
            effects |= cell_effects(place, number, row, first.left)
    return effects


# Strings with this pattern are compared as numbers.
_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")


def _text(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if _NUMBER.fullmatch(text):
        return str(Decimal(text).normalize())
    return text


_READERS: Mapping[str, Callable[[Fields], Effects]] = {
    "woo_products_batch_update": _products,
    "woo_products_update": lambda arguments: _product(
        arguments["productId"], arguments["productData"]
    ),
    "login": lambda arguments: {SESSION: arguments["email"]},
    "logout": lambda _: {SESSION: ""},
    "storage_create_bucket": lambda arguments: {f"bucket {arguments['bucket_name']}": ""},
    "update_cells": _cells,
    "batch_update_cells": _cells,
}

# The tools that change each kind of record. SQL tools change tables; all others change only files.
_THINGS = {
    "categories": re.compile("woo_products_categories_create"),
    "events": re.compile("(create|update|delete)_event"),
    "spreadsheets": re.compile(
        "(batch_)?update_cells|add_(rows|columns)|(copy|rename|create)_(spread)?sheet"
    ),
    "storage": re.compile("storage_(create|upload|delete)_.*"),
}
PROGRAMS = frozenset({"python_execute", "run_command"})
# Tools with one of these words in their names change nothing that tasks check.
_READS = frozenset(
    "read list directory search get validate describe show open check health reports status".split()
)
# Arguments that contain the path of a file that the call may write.
_PATHS = tuple(
    "path filepath source destination output_path destination_file_path export_path".split()
)
_CHANGES = re.compile(
    r"\b(insert|update|delete|merge|create|alter|drop|truncate|comment|call|execute)\b",
    re.IGNORECASE,
)


def is_read(call: ToolCall) -> bool:
    """Return whether a call changes nothing that tasks check."""
    if call.name in _DIALECTS:
        return not _CHANGES.search(str(call.arguments.get("query")))
    return not _READS.isdisjoint(call.name.split("_"))


def things_changed(call: ToolCall, files: Collection[str] = ()) -> frozenset[str]:
    """Return the kinds of records and the files (as `file <path>`) that a call may have changed.

    A program may change every file that it names.
    """
    if is_read(call):
        return frozenset()
    if call.name in _DIALECTS:
        return frozenset({"tables"})
    for thing, tools in _THINGS.items():
        if tools.fullmatch(call.name):
            return frozenset({thing})
    named: str | list[Any] = [_canonical_value(call.arguments.get(key)) for key in _PATHS]
    if call.name in PROGRAMS:
        named = json.dumps(call.arguments, ensure_ascii=False)
    return frozenset(f"file {path}" for path in files if path in named)
