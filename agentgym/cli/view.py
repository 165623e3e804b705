"""The command `view`: show the episodes of a run in a browser."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli.common import exit_on_user_error
from agentgym.cli.spending import parse_price
from agentgym.training.viewer import RunIndex, ViewerServer, build_view, write_page
from agentgym.training.viewer.optimal import build_view_with_optimal_calls


def view(
    runs: Annotated[list[Path], "Run folders or logs."],
    out: Annotated[Path | None, "Write one self-contained HTML file instead of serving."] = None,
    optimal: Annotated[
        bool,
        typer.Option(
            "--optimal",
            help="Replay episodes to show the optimal calls.",
        ),
    ] = False,
    price: Annotated[
        str,
        typer.Option(
            metavar="PROMPT,REPLY",
            help="Price per million prompt and reply tokens, such as 0.15,0.6, to show costs.",
        ),
    ] = "0,0",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 picks a free one.")] = 0,
    browser: Annotated[bool, "Open the page in a browser."] = True,
) -> None:
    """Show the episodes of finished or running runs in a browser. Ctrl-C ends."""
    view_of = build_view_with_optimal_calls if optimal else build_view
    with exit_on_user_error():
        index = RunIndex(*runs, price=parse_price(price))
        if out is not None:
            while index.refresh():
                pass
            count = write_page(index, out, view_of)
            typer.echo(f"wrote {out} ({count} episodes, {out.stat().st_size / 1e6:.1f} MB)")
            return
        server = ViewerServer(index, view_of, port)
    typer.echo(f"serving {', '.join(map(str, runs))} at {server.url} (press Ctrl-C to stop)")
    sys.stdout.flush()  # a program may read the URL from a pipe
    if browser:
        webbrowser.open(server.url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo()
    finally:
        server.server_close()
