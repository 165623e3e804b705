"""Tools that a server lists but refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentgym.office import SERVERS, server_class
from agentgym.office.server import Server
from agentgym.text.tools import ToolError, tools_of
from tests.office.published import differences

DISABLED_TOOLS = {
    name: [tool for tool, difference in differences(name).items() if difference.disabled]
    for name in SERVERS
}


def method_of(server: Server, tool: str) -> Callable[..., Any]:
    [part] = [part for part in server.parts if hasattr(part, tool)]
    method: Callable[..., Any] = getattr(part, tool)
    return method


@pytest.mark.parametrize("name", [name for name in SERVERS if DISABLED_TOOLS[name]])
def test_a_disabled_tool_is_listed_and_refused(name: str) -> None:
    server = server_class(name)()
    before = server.store.version()
    for tool in DISABLED_TOOLS[name]:
        assert tools_of(server)[tool].schema.description
        with pytest.raises(ToolError, match="not enabled for this account"):
            method_of(server, tool)()
    assert server.store.version() == before
