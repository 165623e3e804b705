from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym.assemble import registry
from agentgym.assemble.registry import Entry

MODULE = '''
"""Guess a number."""
from dataclasses import dataclass
import agentgym

@dataclass(frozen=True)
class GuessConfig(agentgym.Config):
    highest: int = 10

class GuessWorld(agentgym.World[GuessConfig]):
    """Guess it.

    There is more to say.
    """

    Config = GuessConfig
    def generate(self):
        self.number, self.max_turns = int(self.rng.integers(self.config.highest)), 4
    def rules(self): return "Guess."
    def task(self): return "Which number?"
    def score(self): return 0.0
    @agentgym.tool
    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: The number.
        """
        return "no"

agentgym.register(GuessWorld, presets={"wide": {"highest": 99}})
'''


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    tables: list[dict[str, Any]] = [registry._worlds, registry._teams, gymnasium.registry]
    before = [dict(table) for table in tables]
    yield tmp_path
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)
    own = {path.stem for path in tmp_path.iterdir()}
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]


def entry_of(env_id: str) -> Entry:
    return next(
        entry for entry in (*agentgym.worlds(presets=True), *agentgym.teams()) if entry.id == env_id
    )


def test_a_world_registered_by_path_is_imported_when_it_is_made(modules: Path) -> None:
    (modules / "lazy_guess.py").write_text(MODULE, encoding="utf-8")
    agentgym.register("lazy_guess:GuessWorld", presets={"wide": {"highest": 99}})
    assert "lazy_guess" not in sys.modules
    assert agentgym.resolve("GuessWorld-wide") == "agentgym/GuessWorld-wide-v0"
    assert registry.is_team("GuessWorld-team")
    entry = entry_of("agentgym/GuessWorld-wide-v0")
    assert (entry.path, entry.options) == ("lazy_guess:GuessWorld", {"highest": 99})
    spec = gymnasium.spec("agentgym/GuessWorld-wide-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the module may register its world again without a warning
        env = gymnasium.make("agentgym/GuessWorld-wide-v0")
    assert agentgym.tool_env(env).world_class is entry.world is sys.modules["lazy_guess"].GuessWorld
    assert gymnasium.spec(spec.id) is spec
    assert entry.summary == "Guess it."


def test_a_module_that_is_imported_adds_what_was_not_known(modules: Path) -> None:
    (modules / "lazy_guess.py").write_text(MODULE, encoding="utf-8")
    agentgym.register("lazy_guess:GuessWorld")
    with pytest.raises(ValueError, match="there is no world 'GuessWorld-wide'"):
        agentgym.make("GuessWorld-wide")
    agentgym.make("GuessWorld", highest=3)
    agentgym.make("GuessWorld-wide")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("raise RuntimeError('no luck')", "no luck"),
        ("class GuessWorld(:", "invalid syntax"),
        ("import no_such_package", "no_such_package"),
        ("", "has no attribute 'GuessWorld'"),
        ("GuessWorld = 3", "must be a subclass of agentgym.World"),
    ],
)
def test_a_broken_module_is_told_when_its_world_is_made(
    modules: Path, text: str, error: str
) -> None:
    (modules / "broken_guess.py").write_text(text, encoding="utf-8")
    agentgym.register("broken_guess:GuessWorld")
    assert [entry.id for entry in agentgym.worlds()][-1] == "agentgym/GuessWorld-v0"
    for make in (agentgym.make, agentgym.config_schema, gymnasium.make):
        with pytest.raises(ValueError, match=error):
            make("agentgym/GuessWorld-v0")
    agentgym.make("ListWorld")


@pytest.mark.parametrize("path", ["GuessWorld", "module:", ":GuessWorld", "a b:C", "a..b:C"])
def test_a_path_that_names_no_class_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"must name a class; write 'package\.module:Class'"):
        agentgym.register(path)
