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

from agentgym.envs.loca.servers.office import Office
from agentgym.messages import ToolCall
from agentgym.tools import tools_of

_SAME_TOOL = {"read_file": "read_text_file"}
"""Tools by another name of theirs: both return the text of a file."""


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
    return ToolCall(_SAME_TOOL.get(call.name, call.name), arguments, call.id)


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
    defaults = {}
    for server in Office(servers).toolsets():
        for name, tool in tools_of(server).items():
            parameters = inspect.signature(tool.method).parameters
            defaults[name] = {key: each.default for key, each in parameters.items()}
    return defaults
