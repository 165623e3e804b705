from __future__ import annotations

import pytest

from agentgym.office import SERVERS, server_class
from agentgym.text.tools import ToolError, tools_of
from tests.office.published import differences
from tests.office.test_laws import digest

DISABLED_TOOLS = {
    name: [tool for tool, difference in differences(name).items() if difference.disabled]
    for name in SERVERS
}


@pytest.mark.parametrize("name", [name for name in SERVERS if DISABLED_TOOLS[name]])
def test_a_disabled_tool_is_listed_and_refused(name: str) -> None:
    server = server_class(name)()
    before = digest(server)
    for tool in DISABLED_TOOLS[name]:
        bound = tools_of(server)[tool]
        assert bound.schema.description
        for arguments in ({}, {"any": 1, "self": [None]}):
            with pytest.raises(ToolError, match="not enabled for this account"):
                bound(arguments)
    assert digest(server) == before
