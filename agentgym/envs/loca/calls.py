"""Calls that differ in writing only, such as in a path with or without /workspace or in an argument
that has its default anyway.
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

_SAME_TOOL = {"read_file": "read_text_file", "terminal_read_file": "read_text_file"}


def plain(servers: tuple[str, ...], call: ToolCall) -> ToolCall:
    """A call in the form that all calls have that do the same.

    Args:
        servers: The servers of the office, which tell the defaults.
        call: The call.
    """
    usual = _defaults(servers).get(call.name, {})
    kept = {
        name: _plain_value(value)
        for name, value in call.arguments.items()
        if value is not None and not (name in usual and usual[name] == value)
    }
    return ToolCall(_SAME_TOOL.get(call.name, call.name), kept, call.id)


def _plain_value(value: Any) -> Any:
    """A path without the workspace before it, a moment in UTC, anything else as it is."""
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
    """The defaults of the arguments of each tool."""
    return {
        name: {
            each.name: each.default for each in inspect.signature(bound.method).parameters.values()
        }
        for server in Office(servers).toolsets()
        for name, bound in tools_of(server).items()
    }
