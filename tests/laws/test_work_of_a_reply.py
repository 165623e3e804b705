"""No tool call takes long, takes much memory, or invalidates its episode."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentgym import ToolCall, make, render, tool, tool_env, worlds
from agentgym.office.office import SERVERS, server_class
from agentgym.text.tools import HostLimitError, ToolError, Toolset, tools_of
from tests import bombs
from tests.office.test_laws import SLOW

IDS = [entry.id for entry in worlds()]
OFFICE_TOOLS = {name for server in SERVERS for name in tools_of(server_class(server)())}
# Most calls take milliseconds. The longest allowed SQL statements take some 5 s.
MOST_SECONDS = 15.0
MOST_MEGABYTES = 600.0


def faults_of(toolset: Toolset) -> list[str]:
    """Call every tool with every bomb; return what broke the law."""
    broken = []
    for name, bound in tools_of(toolset).items():
        for arguments in bombs.calls(bound.schema.parameters):
            before = bombs.seconds()
            problem = ""
            try:
                bound(arguments)
            except HostLimitError:
                problem = "makes the episode invalid"
            except ToolError:
                pass
            except Exception as error:  # noqa: BLE001 - any other exception breaks the law
                problem = repr(error)[:200]
            if (spent := bombs.seconds() - before) > MOST_SECONDS:
                problem = f"took {spent:.1f} s"
            if problem:
                broken.append(f"{name} {problem}: {json.dumps(arguments)[:200]}")
    return broken


@pytest.mark.rotation(name=[name for name in SERVERS if name not in SLOW])
def test_no_call_of_an_office_tool_takes_long(name: str) -> None:
    server = server_class(name)()
    for path, data in bombs.files().items():
        server.context.files.write(path, data)
    memory = bombs.megabytes()
    assert faults_of(server) == []
    assert bombs.megabytes() - memory < MOST_MEGABYTES
    server.close()


@pytest.mark.rotation(env_id=IDS)
def test_no_reply_takes_long_or_makes_its_episode_invalid(env_id: str) -> None:
    env = tool_env(make(env_id))
    chat, _ = env.reset(seed=0)
    broken: list[Any] = []
    # The tools of office servers are tested above.
    own = [each for each in chat.tools if each.name not in OFFICE_TOOLS]
    for schema in own:
        for arguments in bombs.calls(schema.parameters):
            before = bombs.seconds()
            reply = render(ToolCall(schema.name, arguments), "json")
            _, _, terminated, truncated, info = env.step(reply)
            spent, invalid = bombs.seconds() - before, info["detail"].invalid
            if spent > MOST_SECONDS or invalid:
                broken.append((schema.name, spent, invalid, json.dumps(arguments)[:200]))
            if terminated or truncated:
                env.reset(seed=0)
    assert broken == []


class Greedy(Toolset):
    """Tools that break the law."""

    @tool
    def count(self, text: str) -> int:
        """Count for long.

        Args:
            text: Anything.
        """
        return sum(k % 7 for k in range(3_000 * len(text)))

    @tool
    def stop(self, text: str) -> str:
        """Blame the host.

        Args:
            text: Anything.
        """
        raise HostLimitError("limit exceeded")


def test_the_law_finds_tools_that_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.laws.test_work_of_a_reply.MOST_SECONDS", 0.5)
    monkeypatch.setattr(bombs, "WORDS", ("a", "a" * 5_000))
    found = faults_of(Greedy())
    assert [each.split(" ")[0] for each in found] == ["count", "stop", "stop"]
