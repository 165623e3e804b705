"""The context strategy and the recipes in CONTRIBUTING."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(
    r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL
)
(STRATEGY,) = [text for text in EXAMPLES if "EditMessages" in text]


def test_the_context_strategy_keeps_the_last_messages() -> None:
    names: dict[str, Any] = {}
    exec(STRATEGY, names)
    env = names["env"]
    env.reset(seed=0)
    assert [len(env.step("no call")[0].messages) for _ in range(7)] == [4, 6, 8, 10, 12, 12, 12]


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
