"""Worlds in other packages: the entry-point group, `module:World`, and broken packages."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import agentgym
from agentgym.assemble import registry
from tests.assemble.test_registry import MODULE
from tests.helpers import forgotten_worlds, run_python

WORLD = MODULE.partition("agentgym.register")[0]


def world_named(name: str) -> str:
    return WORLD.replace("GuessWorld", name)


PRESETS = "agentgym.register(OwnGuess, presets={'wide': {'highest': 99}}, namespace='two_bench')\n"
PACKAGES = {  # the code of each package, and its entry point
    "one_bench": (world_named("PlugGuess"), "guess = one_bench:PlugGuess"),
    "two_bench": (world_named("OwnGuess") + PRESETS, "all = two_bench"),
    "bad_bench": ("1 / 0", "bad = bad_bench:BadGuess"),
    "worse_bench": ("raise SystemError('no')", "worse = worse_bench"),
    "no_bench": ("", "gone = no_bench:NoSuchWorld"),
    "odd_bench": ("", "odd = what is this?"),
    "exit_bench": ("raise SystemExit(3)", "exit = exit_bench:ExitGuess"),
    "exits_bench": ("raise SystemExit", "exits = exits_bench"),
    "élan_bench": ("", "far = élan_bench:FarGuess"),
}
COUNT_IMPORTS = """
import sys, warnings
import agentgym, gymnasium
names = {"one_bench", "two_bench", "bad_bench", "worse_bench", "no_bench"}
assert not names & sys.modules.keys(), "imported too early"
gymnasium.spec("one_bench/PlugGuess-v0")
assert not names & sys.modules.keys(), "a spec needs no class"
env = gymnasium.make("one_bench/PlugGuess-v0", highest=5)
assert env.reset(seed=0)
assert names & sys.modules.keys() == {"one_bench"}
assert agentgym.resolve("two_bench/OwnGuess-wide") == "two_bench/OwnGuess-wide-v0"
assert names & sys.modules.keys() == {"one_bench", "two_bench"}
assert agentgym.resolve("PlugGuess") == "one_bench/PlugGuess-v0"
"""


def install(folder: Path) -> None:
    for name, (code, entry) in PACKAGES.items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[agentgym.worlds]\n{entry}\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with forgotten_worlds():
        yield tmp_path
    for name in {path.stem for path in tmp_path.rglob("*.py")}:
        sys.modules.pop(name, None)


def test_a_package_is_imported_when_a_world_of_it_is_made(packages: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    shown = run_python("-W", "ignore", "-c", COUNT_IMPORTS, env=environment)
    assert shown.returncode == 0, shown.stderr


def test_broken_packages_cost_one_warning_each_and_their_own_worlds(packages: Path) -> None:
    broken = packages / "blind_bench-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: blind_bench\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_bytes(b"[agentgym.worlds]\n\xff = \xff:\xff\n")
    with pytest.warns(UserWarning) as early:  # noqa: PT030 - each is looked at below
        registry.register_plugins()
    named = [str(each.message).partition(", which")[0] for each in early]
    assert len(named) == 3, named
    for text in ("odd_bench offers worlds in 'what is", "élan_bench:FarGuess", str(broken)):
        assert any(text in each for each in named), named
    assert "one_bench/PlugGuess-v0" in gymnasium.registry
    with pytest.warns(UserWarning) as seen:  # noqa: PT030 - each is looked at below
        registry.load_plugins()
    texts = sorted(str(each.message) for each in seen)
    reasons = {
        "bad_bench": "ZeroDivisionError: division by zero",
        "exit_bench": "exit_bench exits on import (SystemExit: 3)",
        "exits_bench": "exits_bench exits on import",
        "no_bench": "NoSuchWorld",
        "worse_bench": "SystemError: no",
    }
    for text, (name, reason) in zip(texts, reasons.items(), strict=True):
        assert text.split()[2] == name
        assert reason in text
    ids = [entry.id for entry in (*agentgym.worlds(presets=True), *agentgym.teams())]
    assert {"one_bench/PlugGuess-v0", "two_bench/OwnGuess-wide-v0"} < set(ids)
    assert not [each for each in ids if "bad_bench" in each or "no_bench" in each]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry.load_plugins()
        with pytest.raises(ValueError, match="there is no world 'BadGuess'"):
            agentgym.resolve("BadGuess")


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one_bench:PlugGuess", "one_bench/PlugGuess-v0"),
        ("one_bench:PlugGuess-team", "one_bench/PlugGuess-team-v0"),
        ("one_bench:one_bench/PlugGuess-v0", "one_bench/PlugGuess-v0"),
        ("two_bench:OwnGuess-wide", "two_bench/OwnGuess-wide-v0"),
        ("two_bench:OwnGuess-wide-v0", "two_bench/OwnGuess-wide-v0"),
        ("agentgym.envs.lumina.list_world:ListWorld-easy", "agentgym/ListWorld-easy-v0"),
        ("agentgym:GridWorld", "agentgym/GridWorld-v0"),
    ],
)
def test_a_class_is_named_by_its_module(text: str, expected: str) -> None:
    assert agentgym.resolve(text) == expected
    assert agentgym.make(text).spec.id == expected  # type: ignore[union-attr]


def test_names_that_lead_nowhere_are_told(packages: Path) -> None:
    for text, error in [
        ("no_module_at_all:Guess", "cannot be imported .*No module named"),
        ("bad_bench:BadGuess", "cannot be imported .*ZeroDivisionError"),
        ("one_bench:Nothing", "there is no world 'one_bench:Nothing'"),
        ("one_bench:PlugGuess-wide", "there is no world 'one_bench:PlugGuess-wide'"),
        (":", "cannot be imported|there is no world"),
        ("CartPole-v1", "there is no world 'CartPole-v1'"),
        ("", "there is no world ''"),
    ]:
        with pytest.raises(ValueError, match=error):
            agentgym.resolve(text)
    (packages / "three_bench.py").write_text(world_named("PlugGuess"), encoding="utf-8")
    for module in ("one_bench", "three_bench"):
        agentgym.resolve(f"{module}:PlugGuess")
    with pytest.raises(ValueError, match="use one_bench/PlugGuess-v0 or three_bench/PlugGuess-v0"):
        agentgym.resolve("PlugGuess")
    with pytest.raises(
        ValueError, match="namespace may contain only letters, digits, _ and -, got 'a/b'"
    ):
        agentgym.register("one_bench:PlugGuess", namespace="a/b")


@pytest.mark.usefixtures("packages")
def test_the_page_on_worlds_of_ones_own_is_true() -> None:
    page = (Path(__file__).parents[2] / "docs" / "own_world.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})
    assert agentgym.resolve("guess_bench/ListWorld-tiny") == "guess_bench/ListWorld-tiny-v0"
    assert agentgym.resolve("ListWorld") == "agentgym/ListWorld-v0"
    assert agentgym.resolve("ListWorld-tiny") == "guess_bench/ListWorld-tiny-v0"
