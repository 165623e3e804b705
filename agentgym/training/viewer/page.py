"""The page: one HTML document with its style, its script and, in a file, all episodes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from agentgym.training.rollout.storage import replacing
from agentgym.training.viewer.run_index import RunIndex, row_data

_SCRIPTS = ("data.js", "elements.js", "chart.js", "episode.js", "app.js")
"""The parts of the script, in the order in which they need each other."""

_ESCAPES = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
)
"""Signs that could end a script element or a line in it, as JSON escapes."""

_LEVEL = 4
"""Of the compression: higher ones take several times as long on such texts, for little."""


def escape_json(data: Any) -> str:
    """Return data as JSON that may stand in a script element."""
    return json.dumps(data, ensure_ascii=False).translate(_ESCAPES)


def asset(name: str) -> str:
    """Return the text of a file of the page."""
    return (files("agentgym.training.viewer") / "assets" / name).read_text(encoding="utf-8")


def script() -> str:
    """Return the script of the page."""
    return "\n".join(asset(name) for name in _SCRIPTS)


def content_policy(script_text: str, style: str) -> str:
    """Return the policy by which a browser runs this script alone and loads nothing else."""
    return (
        f"default-src 'none'; script-src '{_digest(script_text)}'; style-src '{_digest(style)}'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def render_page(boot: dict[str, Any], episodes: Iterable[str] = ()) -> Iterator[str]:
    """Yield the document in parts.

    Args:
        boot: What the script starts with.
        episodes: The elements that hold episodes.
    """
    style, code = asset("style.css"), script()
    head, tail = asset("page.html").split("<!--episodes-->")
    values = {"policy": content_policy(code, style), "style": style, "boot": escape_json(boot)}
    for name, value in values.items():
        head = head.replace(f"<!--{name}-->", value, 1)
    yield head
    yield from episodes
    yield tail.replace("<!--script-->", code, 1)


def write_page(index: RunIndex, out: Path, view_of: Callable[[bytes], dict[str, Any]]) -> int:
    """Write a run as one file, which holds each episode compressed and reads it when it is opened.

    Args:
        index: The run, read to its end.
        out: The file.
        view_of: Makes the view of an episode from its line.

    Returns:
        The number of episodes.

    Raises:
        ValueError: The run has no episodes.
        OSError: The file cannot be written; the one at its place is as it was.
    """
    if not index.rows:
        raise ValueError(f"{index.run} holds no trajectories; name a folder or a log that has some")
    boot = {"title": index.run.name, "rows": [row_data(row) for row in index.rows]}
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as file:
        for part in render_page(boot, _elements(index, view_of)):
            # A lone surrogate, which a model can write, has no form in UTF-8.
            file.write(part.encode("utf-8", "replace"))
    return len(index.rows)


def _elements(index: RunIndex, view_of: Callable[[bytes], dict[str, Any]]) -> Iterator[str]:
    for row in index.rows:
        view = episode_or_problem(index, row.number, view_of)
        # Texts of models are not in the document as they are, so nothing in them can end it.
        packed = gzip.compress(json.dumps(view).encode(), compresslevel=_LEVEL, mtime=0)
        yield (
            f'<script type="application/gzip" id="episode-{row.number}">'
            f"{base64.b64encode(packed).decode()}</script>\n"
        )


def episode_or_problem(
    index: RunIndex, number: int, view_of: Callable[[bytes], dict[str, Any]]
) -> dict[str, Any]:
    """Return the view of an episode, or the problem that there is instead of one.

    Raises:
        LookupError: There is no such episode.
    """
    try:
        return view_of(index.line(number))
    except (OSError, ValueError) as error:
        return {"problem": str(error)}
