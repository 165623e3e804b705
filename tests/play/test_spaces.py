from __future__ import annotations

import agentgym
from agentgym.play.spaces import ActionSpace


def test_action_spaces_are_equal_if_tools_and_dialect_are() -> None:
    spaces = [
        agentgym.make(name, dialect=dialect).action_space
        for name in ("ListWorld", "TreeWorld")
        for dialect in ("json", "python")
    ]
    assert all(isinstance(space, ActionSpace) for space in spaces)
    for k, one in enumerate(spaces):
        assert [one == two for two in spaces] == [k == n for n in range(4)]
        assert one != "a space"
    assert spaces[0] == agentgym.make("ListWorld", dialect="json").action_space
