from __future__ import annotations

import os
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.office import SERVERS
from tests.helpers import play_optimally, run_python, start
from tests.training.integrations.openenv_server import serving as serving_app

anyio: Any = pytest.importorskip("anyio")
mcp: Any = pytest.importorskip("mcp")
serving: Any = pytest.importorskip("agentgym.training.integrations.mcp")

ROOT = Path(agentgym.__file__).parents[1]


def talk(server: Any, say: Callable[[Any], Awaitable[Any]], mode: str = "auto") -> Any:
    async def run() -> Any:
        async with mcp.Client(server, mode=mode) as client:
            return await say(client)

    return anyio.run(run)


def texts(result: Any) -> list[str]:
    return [part.text for part in result.content]


async def write_and_read(client: Any) -> list[Any]:
    listed = (await client.list_tools()).tools
    tools = [(tool.name, tool.description, tool.input_schema) for tool in listed]
    wrote = await client.call_tool("write_file", {"path": "a.txt", "content": "é\n"})
    read = await client.call_tool("read_text_file", {"path": "a.txt"})
    none = await client.call_tool("read_text_file", {"path": "../b"})
    wrong = await client.call_tool("read_text_file", {"paths": "a"})
    unknown = await client.call_tool("fly", {})
    return [
        tools,
        texts(wrote),
        texts(read),
        texts(none),
        [r.is_error for r in (wrote, read, none, wrong, unknown)],
    ]


EXPECTED = [
    ["Successfully wrote to a.txt"],
    ["é\n"],
    ['error: permission denied: "../b" is outside of /workspace; use paths inside that directory'],
    [False, False, True, True, True],
]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_servers_in_process(mode: str) -> None:
    episode = serving.open_episode("filesystem+claim_done", 0)
    tools, *answers = talk(serving.build_server(episode), write_and_read, mode)
    assert tools == [(t.name, t.description, t.parameters) for t in episode.tools]
    assert {"write_file", "claim_done"} <= {name for name, *_ in tools}
    assert answers == EXPECTED


@pytest.mark.parametrize("name", SERVERS)
def test_instructions_of_servers_name_tools_only(name: str) -> None:
    episode = serving.open_episode(name, 0)
    named = re.findall("`([^`/]+)`", episode.instructions)
    assert episode.instructions
    assert set(named) <= {tool.name for tool in episode.tools}


def test_a_world_is_played_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    env = start("ListWorld", seed=3)
    assert play_optimally(env).reward == 1
    log = env.chat.messages
    episode = serving.open_episode("ListWorld", 3)
    calls = [call for message in log for call in message.calls]
    assert env.world.rules() in episode.instructions

    async def play(client: Any) -> list[Any]:
        assert client.instructions == episode.instructions
        results = [await client.call_tool(call.name, dict(call.arguments)) for call in calls]
        return [*results, await client.call_tool(calls[0].name, dict(calls[0].arguments))]

    *results, after = talk(serving.build_server(episode), play)
    assert [texts(result) for result in results] == [
        [message.text] for message in log if message.role == "tool"
    ]
    assert texts(after) == ["error: the episode has ended; this call was not run"]
    assert "ListWorld: the episode has ended with score 1\n" in capsys.readouterr().err


@pytest.mark.rotation
def test_stdio() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = ["-c", "from agentgym.cli import main; main()", "serve", "filesystem", "--stdio"]
    parameters = mcp.StdioServerParameters(command=sys.executable, args=command, env=environment)
    tools, *answers = talk(parameters, write_and_read)
    assert ("write_file" in [name for name, *_ in tools], answers) == (True, EXPECTED)


def test_http_keeps_episodes_apart() -> None:
    pytest.importorskip("uvicorn")
    episodes = [serving.open_episode("filesystem", k) for k in range(2)]

    async def listing(client: Any) -> Any:
        return texts(await client.call_tool("list_directory", {"path": "."}))

    with serving_app(serving.http_app(episodes)) as url:
        assert talk(f"{url}/episodes/0/mcp", write_and_read)[1:] == EXPECTED
        assert talk(f"{url}/episodes/0/mcp", listing) == ["[FILE] a.txt"]
        assert talk(f"{url}/episodes/1/mcp", listing) == [""]


def test_without_the_extra_the_remedy_is_told() -> None:
    code = "import sys; sys.modules['mcp_types'] = None; from agentgym.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = run_python("-c", code, "serve", "filesystem", "--stdio", env=environment)
    assert (result.returncode, "pip install 'agentgym-suite[mcp]'" in result.stderr) == (2, True)
