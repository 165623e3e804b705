"""The command `view`: the episodes of a run in a browser."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli.common import exit_on_user_error
from agentgym.training.viewer import RunIndex, ViewerServer, build_view, write_page
from agentgym.training.viewer.optimal import build_view_with_optimal_calls


def view(
    run: Annotated[Path, typer.Argument(help="A run folder or a log.")],
    out: Annotated[
        Path | None, typer.Option(help="Write one self-contained HTML file instead of serving.")
    ] = None,
    optimal: Annotated[
        bool,
        typer.Option(
            "--optimal",
            help="Replay episodes to show the optimal calls.",
        ),
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 picks a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Show the episodes of a finished or running run in a browser. Ctrl-C ends."""
    view_of = build_view_with_optimal_calls if optimal else build_view
    with exit_on_user_error():
        index = RunIndex(run)
        if out is not None:
            while index.refresh():
                pass
            count = write_page(index, out, view_of)
            typer.echo(f"wrote {out} ({count} episodes, {out.stat().st_size / 1e6:.1f} MB)")
            return
        server = ViewerServer(index, view_of, port)
    typer.echo(f"serving {run} at {server.url} (press Ctrl-C to stop)")
    sys.stdout.flush()  # for a reader of a pipe, which waits for the address
    if browser:
        webbrowser.open(server.url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo()
    finally:
        server.server_close()
