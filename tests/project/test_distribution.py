"""No text tells users to install `agentgym`, which is another project on PyPI."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from agentgym.text.requirements import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = re.compile(
    r"(?:pip|uv|pipx|poetry)\s+(?:pip\s+)?(?:install|add)\b[^\n]*?['\"\s](agentgym[\w.-]*)"
)
REQUIRED = re.compile(r"""['"`](agentgym[\w-]*)\[""")


def texts() -> list[tuple[str, str]]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    found = []
    for name in names:
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and path.suffix not in (".png", ".so", ".zst"):
            found.append((name, path.read_text(encoding="utf-8", errors="replace")))
    return found


def test_every_text_installs_the_distribution() -> None:
    wrong = [
        (name, match[0])
        for name, text in texts()
        if name != "tests/project/test_distribution.py"
        for pattern in (INSTALLED, REQUIRED)
        for match in pattern.finditer(text)
        if match[1] != DISTRIBUTION
    ]
    assert not wrong
