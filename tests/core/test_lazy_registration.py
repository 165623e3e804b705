"""What is registered from the sources of worlds is what importing them registers."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentgym
from agentgym.lazy_registration import register_worlds
from tests.core.test_registry import MODULE, modules  # noqa: F401 - a fixture

COMPARE = """
import json, pkgutil, sys
from importlib import import_module
import gymnasium, agentgym
from agentgym import registry

def registered():
    entries = (*registry.worlds(presets=True), *registry.teams())
    specs = {i: repr(spec) for i, spec in gymnasium.registry.items() if i.startswith("agentgym/")}
    return [(e.id, e.path, repr(e.options), specs.pop(e.id)) for e in entries] + list(specs)

read = registered()
lazy = [name for name in sys.modules if name.startswith("agentgym.envs.")]
for table in (registry._worlds, registry._teams, gymnasium.registry):
    table.clear()
for info in pkgutil.walk_packages(agentgym.envs.__path__, "agentgym.envs."):
    if ".servers" not in info.name:
        import_module(info.name)
print(json.dumps({"read": read, "lazy": lazy, "imported": registered()}))
"""
"""Ids, paths, options and specs as read, then as the modules register them in an empty registry."""


def test_every_world_preset_and_team_is_registered_as_its_module_registers_it() -> None:
    process = subprocess.run([sys.executable, "-c", COMPARE], capture_output=True, check=True)
    result = json.loads(process.stdout)
    assert result["read"] == result["imported"]
    worlds = {path.partition(":")[0] for _, path, _, _ in result["read"]}
    assert len(result["read"]) >= 200
    assert len(worlds) >= 20
    assert not worlds & set(result["lazy"]), "a world was imported to be registered"


Write = Callable[[dict[str, str]], str]


@pytest.fixture
def write(modules: Path) -> Write:  # noqa: F811 - the fixture
    """Write modules of a package by name, in which it is `{package}`, and return its name."""

    def write_package(files: dict[str, str]) -> str:
        for path, text in {"__init__.py": "", **files}.items():
            file = modules / "guess_worlds" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("{package}", "guess_worlds"), encoding="utf-8")
        importlib.invalidate_caches()
        return "guess_worlds"

    return write_package


def presets() -> dict[str, Any]:
    return {
        entry.id.removeprefix("agentgym/GuessWorld").removesuffix("-v0").strip("-"): entry.options
        for entry in agentgym.worlds(presets=True)
        if "GuessWorld" in entry.id
    }


def registering(statement: str, above: str = "") -> str:
    head, _, _ = MODULE.partition("agentgym.register")
    return (
        head.replace(
            "import agentgym\n", f"import agentgym\nfrom agentgym import register\n{above}\n"
        )
        + statement
    )


WIDE = {"": {}, "wide": {"highest": 99}}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.py": registering('register(GuessWorld, {"wide": {"highest": 99}})')}, WIDE),
        ({"a.py": MODULE}, WIDE),
        (
            {
                "a.py": registering(
                    "register(\n    GuessWorld,\n    presets={name: {**BOTH[name]} for name in BOTH},\n)",
                    "from {package}.b import (\n    # The presets.\n    TABLE as BOTH,\n    OTHER,\n)",
                ),
                "b.py": '"""Presets, and\n\nTABLE = 3: no statement.\n"""\nfrom __future__ import annotations\nimport math as m\n'
                "OTHER = 1\n_TOP = m.floor(99.5)\n"
                '"""The highest, as\nTABLE = 4 has it."""\nTABLE: dict[str, Unknown] = {\n    "wide": {"highest": _TOP},\n}\n',
            },
            WIDE,
        ),
        (
            {
                "a.py": registering(
                    "register_guess(GuessWorld)", "from {package}.sub.b import register_guess"
                ),
                "sub/__init__.py": "",
                "sub/b.py": "from agentgym.registry import register\nSIZES = [99]\n\n"
                "def register_guess(world):\n    register(world, {'wide': {'highest': max(SIZES)}})\n",
            },
            WIDE,
        ),
    ],
    ids=[
        "literal",
        "attribute of the package",
        "constants of another module",
        "a function of another module",
    ],
)
def test_a_registration_runs_without_its_module(
    write: Write, files: dict[str, str], expected: dict[str, Any]
) -> None:
    name = write(files)
    register_worlds(name)
    assert presets() == expected
    assert f"{name}.a" not in sys.modules
    assert f"{name}.b" not in sys.modules
    assert agentgym.tool_env(agentgym.make("GuessWorld-wide")).world_class.__module__ == f"{name}.a"
    assert presets() == expected


@pytest.mark.parametrize(
    "statements",
    [
        "for name in ['wide']:\n    register(GuessWorld, {name: {'highest': 99}})",
        "if True:\n    agentgym.register(GuessWorld, {'wide': {'highest': 99}})",
        "DONE = register(GuessWorld, {'wide': {'highest': 99}})",
        "register(GuessWorld, {'wide': {'highest': GuessWorld.Config().highest + 89}})",
        'A = """\nwide"""\nregister(GuessWorld, {A.strip(): {\'highest\': 99}})',
        "A = {}\nA['wide'] = {'highest': 99}\nregister(GuessWorld, {'wide': A['wide']})",
        "A = {}\nA.update(wide={'highest': 99})\nregister(GuessWorld, A)",
        "A = {}\nfor name in ['wide']:\n    A[name] = {'highest': 99}\nregister(GuessWorld, A)",
        "A = {'small': {}}\nA = {'wide': {'highest': 99}}\nregister(GuessWorld, A)",
        "@lambda table: table()\ndef a():\n    return {'wide': {'highest': 99}}\nregister(GuessWorld, a)",
    ],
    ids=[
        *("loop", "condition", "assignment", "class", "text of several lines"),
        *(
            "filled table",
            "updated table",
            "table of a loop",
            "defined twice",
            "decorated function",
        ),
    ],
)
def test_a_module_whose_registration_needs_more_is_imported(write: Write, statements: str) -> None:
    name = write({"a.py": registering(statements)})
    register_worlds(name)
    assert presets() == WIDE
    assert f"{name}.a" in sys.modules


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import agentgym\nregister(", "SyntaxError"),
        ("1 / 0\nregister(Missing)", "ZeroDivisionError"),
        ("import no_such_package\nregister(no_such_package.World)", "no_such_package"),
        ("from agentgym import register\nregister('no path')", "names no class"),
    ],
)
def test_a_broken_module_is_left_out_with_a_warning(write: Write, text: str, error: str) -> None:
    name = write({"a_broken.py": text, "b.py": registering("register(GuessWorld)")})
    with pytest.warns(RuntimeWarning, match=rf"{name}\.a_broken cannot be imported \(.*{error}"):
        register_worlds(name)
    assert presets() == {"": {}}


def test_skipped_packages_and_modules_without_worlds_are_not_imported(write: Write) -> None:
    name = write(
        {
            "plain.py": "raise RuntimeError",
            "servers/__init__.py": "raise RuntimeError",
            "servers/a.py": registering("register(GuessWorld)"),
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_worlds(name, skip=("servers",))
    assert presets() == {}


def test_modules_are_attributes_of_their_packages() -> None:
    code = "import agentgym; print(agentgym.envs.lumina.list_world.ListWorld.__name__); agentgym.envs.lumina.nothing"
    process = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert process.stdout == "ListWorld\n"
    assert (
        "AttributeError: module 'agentgym.envs.lumina' has no attribute 'nothing'" in process.stderr
    )
