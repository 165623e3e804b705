"""Files other than logs in a run's folders: summaries, settings and figures."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agentgym.training.rollout.lines import ENDING

# Log name that `agentgym ablate` uses in a run's folder.
_TRAJECTORIES = "trajectories"
# Maximum bytes per file, about ten times the size of a figure of `agentgym ablate`.
_MAX_BYTES = 2 << 20
_MAX_FILES = 60


def run_name(root: Path, path: Path, prefix: str) -> str:
    """Return a run's name: the folder below `root`, and the log's name if it is not the default.

    `prefix` distinguishes the root from other roots.
    """
    if path == root:
        return prefix or path.name
    folder = path.parent.relative_to(root).parts
    stem = path.name.removesuffix(ENDING).removesuffix(".jsonl")
    parts = (prefix, *folder, "" if stem == _TRAJECTORIES else stem)
    return "/".join(filter(None, parts)) or root.resolve().name


def run_files(root: Path, prefix: str) -> list[dict[str, str]]:
    """Return a run's files as dicts with `run`, `name`, and `text` or `image` (a data URL)."""
    files: list[dict[str, str]] = []
    for path in _paths(root):
        # The file may have been deleted, or may not be text.
        with suppress(OSError, ValueError):
            file = {"run": run_name(root, path.with_name(_TRAJECTORIES), prefix), "name": path.name}
            data = path.read_bytes()
            if path.suffix == ".png":
                file["image"] = "data:image/png;base64," + base64.b64encode(data).decode()
            else:
                file["text"] = data.decode()
            files.append(file)
    return files[:_MAX_FILES]


def _paths(root: Path) -> Iterator[Path]:
    if not root.is_dir():
        return
    for pattern in ("summary.md", "ablation.json", "*.settings.json", "*.png"):
        for path in sorted(root.rglob(pattern)):
            inside = path.resolve().is_relative_to(root.resolve())
            if inside and path.is_file() and path.stat().st_size <= _MAX_BYTES:
                yield path
