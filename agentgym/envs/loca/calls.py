"""Canonical form of calls that differ in writing only, such as in a path with or without /workspace
or in an argument at its default.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentgym.envs.loca.servers.email.messages import addresses
from agentgym.envs.loca.servers.office import Office
from agentgym.messages import ToolCall
from agentgym.tools import ToolError, tools_of

_SAME_TOOL = {"read_file": "read_text_file"}
"""Tools by another name of theirs: both return the text of a file."""

_DIALECTS = {
    "bigquery_run_query": "bigquery",
    "read_query": "snowflake",
    "write_query": "snowflake",
}
"""The dialect of the statements that a tool takes."""


def canonical_call(servers: tuple[str, ...], call: ToolCall) -> ToolCall:
    """Return a call in the form that all calls share which have the same effect.

    Args:
        servers: The servers of the office, whose tools have the defaults.
        call: The call.
    """
    defaults = _defaults(servers).get(call.name, {})
    arguments = {
        name: _canonical_value(value)
        for name, value in call.arguments.items()
        if value is not None and not (name in defaults and defaults[name] == value)
    }
    if call.name in _DIALECTS and isinstance(arguments.get("query"), str):
        from agentgym.envs.loca.servers.warehouse.canonical_sql import canonical_query  # noqa: PLC0415 - it loads sqlglot

        arguments["query"] = canonical_query(arguments["query"], _DIALECTS[call.name])
    if call.name == "send_email":
        arguments = _canonical_mail(arguments)
    return ToolCall(_SAME_TOOL.get(call.name, call.name), arguments, call.id)


def _canonical_mail(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a mail with its recipients as bare addresses in one list, since
    every mail reaches them the same.
    """
    parts = [arguments.get(name) for name in ("to", "cc", "bcc")]
    try:
        people = [addresses(part) for part in parts if isinstance(part, str)]
    except ToolError:  # such a mail was never sent
        return dict(arguments)
    to = dict.fromkeys(address.lower() for some in people for _, address in some)
    rest = {name: value for name, value in arguments.items() if name not in ("cc", "bcc")}
    return {**rest, "to": ", ".join(to)}


def _canonical_value(value: Any) -> Any:
    """Return a path without the workspace before it, a moment in UTC, anything else unchanged."""
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
    """Return the defaults of the arguments of each tool."""
    return {
        name: {key: each.default for key, each in inspect.signature(tool.method).parameters.items()}
        for server in Office(servers).toolsets()
        for name, tool in tools_of(server).items()
    }
