"""Serve office servers or worlds over MCP (Model Context Protocol), one server per episode."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import anyio
import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from agentgym.assemble.registry import make
from agentgym.office.office import SERVERS, Office
from agentgym.play.guard import FAULT, Guard
from agentgym.text.messages import Content
from agentgym.text.tool_results import run_tool
from agentgym.text.tools import Tool, ToolError, check_jsonable, echo, first_paragraph, tools_of
from agentgym.training.integrations.common import mcp_env, mcp_instructions
from agentgym.training.integrations.http_server import (
    LOOPBACK,
    MAX_BODY_BYTES,
    OneAnswerEach,
    RequireToken,
    check_access,
    server_config,
)

# Sessions per episode; each client needs one.
MAX_SESSIONS = 64
# Seconds until an idle session is closed; models reply sooner.
IDLE_SECONDS = 1_800.0
# Maximum number of waiting calls per episode; each of them keeps a connection open.
MAX_WAITING = 8


class ServedEpisode(Protocol):
    """The tools of an episode, and a method to call them."""

    name: str
    instructions: str

    @property
    def tools(self) -> Sequence[Tool]:
        """The available tools."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> Content:
        """Run a call; raise `ToolError` if it is refused."""

    def close(self) -> None:
        """Release the episode's resources."""


class OfficeEpisode:
    """The tools of an office, whose servers may already contain data."""

    def __init__(self, office: Office) -> None:
        self._office, self._guard = office, Guard("report")
        servers = office.toolsets()
        self.name = "+".join(server.name for server in servers)
        self.instructions = "\n".join(first_paragraph(type(server).__doc__) for server in servers)
        self._tools = tools_of(*servers)
        self.tools: Sequence[Tool] = [bound.schema for bound in self._tools.values()]

    def call(self, name: str, arguments: Mapping[str, Any]) -> Content:
        """Run a call."""
        if name not in self._tools:
            raise ToolError(f"there is no tool {echo(name)}; tools: {', '.join(self._tools)}")
        check_jsonable(arguments)
        # A server undoes its own failed calls, so there is nothing to restore.
        with self._guard.watch(name, passes=(ToolError,)):
            answer = run_tool(self._tools[name], arguments)
            return answer if isinstance(answer, Content) else Content(answer)
        _print_faults(self._guard)
        raise ToolError(FAULT)

    def close(self) -> None:
        """Close the servers."""
        self._office.close()


class WorldEpisode:
    """An episode of a world; the score is printed to stderr at the end.

    MCP clients send calls instead of replies, so the world's turn limit does not apply.
    """

    def __init__(self, env_id: str, seed: int, **options: Any) -> None:
        self.name = env_id
        self._env = mcp_env(make(env_id, **options))
        chat, _ = self._env.reset(seed=seed)
        self.tools: Sequence[Tool] = self._env.tools
        self.instructions = mcp_instructions(self._env, chat)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Content:
        """Run a call."""
        over = self._env.world.done
        try:
            result = self._env.call(name, arguments)
        finally:
            _print_faults(self._env.guard)
        if self._env.world.done and not over:
            score, _ = self._env.guard.score(self._env.world)
            shown = "a scorer that broke" if score is None else f"score {score:g}"
            print(f"{self.name}: the episode has ended with {shown}", file=sys.stderr)
        return result

    def close(self) -> None:
        """Close the env."""
        self._env.close()


def _print_faults(guard: Guard) -> None:
    for fault in guard.take_faults():
        print(fault.traceback, file=sys.stderr)


def open_episode(target: str, seed: int, **options: Any) -> ServedEpisode:
    """Return an episode of a world, or of empty office servers joined by `+`."""
    if not set(target.split("+")) & set(SERVERS):
        return WorldEpisode(target, seed, **options)
    if options:
        raise ValueError(f"office servers accept no options, got {sorted(options)[0]!r}")
    office = Office(target.split("+"))
    office.context.seed = seed
    return OfficeEpisode(office)


def build_server(episode: ServedEpisode) -> Server[Any]:
    """Return an MCP server for an episode; calls run in one thread, in order of arrival."""
    lock = anyio.Lock()
    thread = anyio.CapacityLimiter(1)

    async def on_list_tools(context: Any, params: Any) -> types.ListToolsResult:
        tools = []
        for tool in episode.tools:
            schema = dict(tool.parameters)
            tools.append(
                types.Tool(name=tool.name, description=tool.description, input_schema=schema)
            )
        return types.ListToolsResult(tools=tools)

    async def on_call_tool(
        context: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        if lock.statistics().tasks_waiting >= MAX_WAITING:
            raise MCPError(types.INTERNAL_ERROR, "too many calls of this episode are waiting")
        async with lock:
            answer = partial(_answer, episode.call, params.name, params.arguments or {})
            return await anyio.to_thread.run_sync(answer, limiter=thread)

    return Server(
        episode.name,
        instructions=episode.instructions,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )


def _answer(
    call: Callable[[str, Mapping[str, Any]], Content], name: str, arguments: Mapping[str, Any]
) -> types.CallToolResult:
    try:
        result = call(name, arguments)
    except ToolError as error:
        refusal = types.TextContent(text=f"error: {error}")
        return types.CallToolResult(content=[refusal], is_error=True)
    content: list[Any] = [types.TextContent(text=result.text)]
    for image in result.images:
        data = base64.b64encode(image.png).decode()
        content.append(types.ImageContent(data=data, mime_type="image/png"))
    return types.CallToolResult(content=content)


def serve_stdio(episode: ServedEpisode) -> None:
    """Serve one episode on stdin and stdout until stdin ends."""

    async def serve() -> None:
        server = build_server(episode)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    try:
        anyio.run(serve)
    finally:
        episode.close()


def http_app(
    episodes: Sequence[ServedEpisode],
    host: str = LOOPBACK[0],
    max_sessions: int = MAX_SESSIONS,
    idle_seconds: float = IDLE_SECONDS,
    token: str = "",
) -> ASGIApp:
    """Return a web app that serves episode `k` (0, 1, ...) at `/episodes/<k>/mcp`.

    On a loopback `host`, the app answers only local clients. Each episode has at most
    `max_sessions` sessions, and further requests get a 503; idle sessions are closed. If the token
    is empty, every client is accepted.
    """
    # mcp 2.0, which `verifiers` requires, lacks this module
    from mcp.server.transport_security import RequestBodyLimitMiddleware  # noqa: PLC0415

    apps = []
    for episode in episodes:
        app = build_server(episode).streamable_http_app(
            json_response=True,
            host=host,
            max_sessions=max_sessions,
            session_idle_timeout=idle_seconds,
        )
        apps.append(app)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for each in apps:  # mounted apps do not start by themselves
                await stack.enter_async_context(each.router.lifespan_context(each))
            yield
        for episode in episodes:
            episode.close()

    mounts = [Mount(f"/episodes/{k}", app=each) for k, each in enumerate(apps)]
    site = OneAnswerEach(Starlette(routes=mounts, lifespan=lifespan))
    limited = RequestBodyLimitMiddleware(site, MAX_BODY_BYTES)
    return RequireToken(limited, token) if token else limited


def serve_http(
    episodes: Sequence[ServedEpisode],
    host: str,
    port: int,
    token: str = "",
    max_sessions: int = MAX_SESSIONS,
    idle_seconds: float = IDLE_SECONDS,
) -> None:
    """Serve episodes until interrupted; see `http_app`.

    Clients must send `Authorization: Bearer TOKEN`; the token may be empty only on a loopback host.
    """
    check_access(host, token)
    for k, episode in enumerate(episodes):
        print(f"{episode.name}: http://{host}:{port}/episodes/{k}/mcp", file=sys.stderr)
    app = http_app(episodes, host, max_sessions, idle_seconds, token)
    uvicorn.Server(server_config(app, host, port)).run()
