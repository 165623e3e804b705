"""The command `new-world`: create a package with a world whose tests pass."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli.common import exit_on_user_error, write_templates
from agentgym.text.requirements import DISTRIBUTION

_TEMPLATES = Path(__file__).parent / "new_world_files"
_FILES = {
    _TEMPLATES / "pyproject.toml.template": "pyproject.toml",
    _TEMPLATES / "README.md.template": "README.md",
    _TEMPLATES / "init.py.template": "$package/__init__.py",
    _TEMPLATES / "world.py.template": "$package/world.py",
    _TEMPLATES / "test_world.py.template": "tests/test_world.py",
}
# Reserved names that are missing from `sys.stdlib_module_names`.
_TAKEN = ("agentgym", "tests", "test")


def new_world(
    name: Annotated[str, "Name of the package, such as guess_bench."],
    out: Annotated[Path | None, "Folder of the package; by default its name, here."] = None,
) -> None:
    """Create a small package with an example world and its tests."""
    with exit_on_user_error():
        package, folder = _package(name), out or Path(name)
        words = {"package": package, "world": _class_name(package), "distribution": DISTRIBUTION}
        write_templates(folder, _FILES, words)
    typer.echo(
        f"wrote {folder} with the world {package}/{words['world']}-v0; next steps:\n"
        f"  pip install -e '{folder}[test]' && pytest {folder}\n"
        f"  agentgym check {package}/{words['world']}"
    )


def _package(name: str) -> str:
    package = name.replace("-", "_")
    usable = re.fullmatch(r"[a-z][a-z0-9_]*", package) and not keyword.iskeyword(package)
    if not usable or package in (*sys.stdlib_module_names, *_TAKEN):
        raise ValueError(
            f"{name!r} is not a valid package name; use lower-case letters, digits and _, but "
            "not the name of a standard library module"
        )
    installed = importlib.util.find_spec(package)
    if installed is not None and installed.origin is not None:  # a namespace package has no origin
        raise ValueError(f"{name!r} is already installed ({installed.origin}); choose another name")
    return package


def _class_name(package: str) -> str:
    words = [word.capitalize() for word in package.split("_") if word]
    if len(words) > 1 and words[-1] in ("Bench", "World", "Worlds"):
        words.pop()
    return f"{''.join(words)}World"
