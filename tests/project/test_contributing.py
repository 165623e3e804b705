"""The recipes in CONTRIBUTING."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_recipes_are_short_and_name_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = text.partition("## Recipes\n")[2].partition("\n## ")[0].split("### ")[1:]
    assert len(recipes) == 6
    for recipe in recipes:
        title, *steps = recipe.strip().splitlines()
        assert 1 <= len(steps) <= 10, title
        paths = [path for path in re.findall(r"`([\w./]+/[\w.]+)`", recipe) if "<" not in path]
        assert paths, title
        for path in paths:
            assert (ROOT / path).exists() or (ROOT / "agentgym" / path).exists(), (title, path)
