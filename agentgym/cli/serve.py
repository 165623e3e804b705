"""The command `serve`: provide a world or office servers over MCP, or worlds for OpenEnv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym.cli.common import Options, exit_on_user_error, parse_options, parse_sizes
from agentgym.training.extras import needs_extra

if TYPE_CHECKING:
    from agentgym.training.integrations.mcp import ServedEpisode


Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET...",
        help="A world, or office servers joined by +, such as canvas+email; with --openenv one or more worlds.",
    ),
]
OpenEnv = Annotated[
    bool,
    typer.Option(
        "--openenv", help="Serve worlds as OpenEnv environments, several at /0, /1 and so on."
    ),
]
Stdio = Annotated[bool, typer.Option("--stdio", help="Serve one episode on stdin and stdout.")]
EpisodeCount = Annotated[
    int,
    typer.Option(
        min=1, max=1_000, help="Number of episodes with consecutive seeds; with --out, per size."
    ),
]
Token = Annotated[
    str,
    typer.Option(
        envvar="AGENTGYM_TOKEN",
        show_envvar=True,
        help="Bearer token that --http requires from clients, needed if others can reach the address. The variable "
        "hides it from the process list.",
    ),
]


def serve(
    targets: Targets,
    openenv: OpenEnv = False,
    stdio: Stdio = False,
    http: Annotated[str, "Serve on an address of this host, such as 127.0.0.1:8000."] = "",
    episodes: EpisodeCount = 1,
    token: Token = "",
    max_sessions: Annotated[
        int,
        typer.Option(
            min=1, max=10_000, help="Maximum concurrent sessions per episode or stack, with --http."
        ),
    ] = 64,
    idle_seconds: Annotated[
        float,
        typer.Option(min=1.0, help="Idle seconds after which a session is closed, with --http."),
    ] = 1_800.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first instance of a world.")] = 0,
    options: Options = [],  # noqa: B006
    out: Annotated[
        Path | None,
        "Folder for the trajectories, which `agentgym score` reads; episodes already in it are not "
        "served again. Each call is a turn, and an abandoned episode keeps its current score.",
    ] = None,
    sizes: Annotated[
        str, typer.Option("--horizons", help="Task sizes with --out, comma-separated.")
    ] = "",
    agent: Annotated[str, "The agent's name in the report, with --out."] = "",
) -> None:
    """Serve a world or office servers over MCP, or worlds for OpenEnv; --out records the episodes."""
    with exit_on_user_error():
        if openenv:
            if any((stdio, out, sizes, agent, seed, episodes != 1)):
                raise ValueError(
                    "--openenv requires --http and excludes --stdio, --out, --horizons, "
                    "--agent, --seed and --episodes"
                )
            _serve_openenv(targets, http, parse_options(options), max_sessions, idle_seconds, token)
            return
        if len(targets) > 1:
            raise ValueError(f"several targets require --openenv, got {', '.join(targets)}")
        (target,) = targets
        if stdio == bool(http):
            raise ValueError("serve requires --stdio or --http 127.0.0.1:PORT")
        host, port = _address(http) if http else ("", 0)
        with needs_extra("serving over MCP", "mcp"):
            from agentgym.training.integrations import http_server, mcp  # noqa: PLC0415 - slow to import, and an extra
        if http:
            http_server.check_access(host, token)
        with _open(target, seed, episodes, options, out, sizes, agent, 0 if http else 1) as opened:
            if http:
                mcp.serve_http(opened, host, port, token, max_sessions, idle_seconds)
            else:
                mcp.serve_stdio(opened[0])


def _serve_openenv(
    worlds: Sequence[str],
    http: str,
    options: Mapping[str, Any],
    max_sessions: int,
    idle_seconds: float,
    token: str,
) -> None:
    host, port = _address(http)
    with needs_extra("serving OpenEnv environments", "openenv"):
        import uvicorn  # noqa: PLC0415 - an extra

        from agentgym.training.integrations.http_server import check_access  # noqa: PLC0415
        from agentgym.training.integrations.openenv import Stack, create_app  # noqa: PLC0415
    check_access(host, token)
    app = create_app([Stack(world, options) for world in worlds], max_sessions, idle_seconds, token)
    for number, world in enumerate(worlds):
        place = f"/{number}" if len(worlds) > 1 else ""
        typer.echo(f"{world}: http://{host}:{port}{place}", err=True)
    uvicorn.run(app, host=host, port=port, log_level="warning")


def _open(
    target: str,
    seed: int,
    episodes: int,
    options: list[str],
    out: Path | None,
    sizes: str,
    agent: str,
    most: int,
) -> AbstractContextManager[Sequence[ServedEpisode]]:
    from agentgym.training.integrations import mcp, mcp_runs  # noqa: PLC0415 - slow to import, and an extra

    given = parse_options(options)
    if out is None:
        if sizes or agent:
            raise ValueError("--horizons and --agent require --out")
        return nullcontext(
            [mcp.open_episode(target, seed + k, **given) for k in range(most or episodes)]
        )
    if not sizes or seed:
        raise ValueError("--out requires --horizons and cannot be used with --seed")
    ablation = mcp_runs.external_ablation(target, parse_sizes(sizes), episodes, agent, given)
    return mcp_runs.open_run(ablation, out, most or len(ablation.cells()))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"--http must be HOST:PORT, such as 127.0.0.1:8000, got {text!r}")
    return host.strip("[]"), int(port)
