"""The command `new-world`: a package with a world of one's own, whose tests pass as it is made."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from agentgym.cli.common import exit_on_user_error
from agentgym.training.rollout.storage import write_text

_FILES = {
    "pyproject.toml.template": "pyproject.toml",
    "README.md.template": "README.md",
    "init.py.template": "{package}/__init__.py",
    "world.py.template": "{package}/world.py",
    "test_world.py.template": "tests/test_world.py",
}
_TAKEN = ("agentgym", "tests", "test")
"""More names that are taken: of the package, of the folder of its tests, and of Python's own tests,
which its list of modules leaves out.
"""
_TEMPLATES = Path(__file__).parent / "new_world_files"


def new_world(
    name: Annotated[str, typer.Argument(help="Name of the package, such as guess_bench.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the package; by default its name, here.")
    ] = None,
) -> None:
    """Make a small package with a world that obeys all laws, and its tests, to start from."""
    with exit_on_user_error():
        package, folder = _package(name), out or Path(name)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} is there already; give another --out, or an empty folder")
        words = {"package": package, "world": _class_name(package)}
        for source, target in _FILES.items():
            path = folder / target.format(package=package)
            path.parent.mkdir(parents=True, exist_ok=True)
            template = Template((_TEMPLATES / source).read_text(encoding="utf-8"))
            write_text(path, template.substitute(words))
    typer.echo(
        f"wrote {folder} with the world {package}/{words['world']}-v0; next:\n"
        f"  pip install -e {folder} && pytest {folder}\n"
        f"  agentgym check {package}/{words['world']}"
    )


def _package(name: str) -> str:
    """Return the name under which a package is imported.

    Raises:
        ValueError: It cannot be one, or a module of Python or of the package has it.
    """
    package = name.replace("-", "_")
    usable = re.fullmatch(r"[a-z][a-z0-9_]*", package) and not keyword.iskeyword(package)
    if not usable or package in (*sys.stdlib_module_names, *_TAKEN):
        raise ValueError(
            f"{name!r} cannot be the name of a package; use small letters, digits and _, and no "
            "name of a module of Python"
        )
    installed = importlib.util.find_spec(package)
    if installed is not None and installed.origin is not None:  # a mere folder has none
        raise ValueError(
            f"{name!r} is the name of a package that is installed ({installed.origin}); choose "
            "another name"
        )
    return package


def _class_name(package: str) -> str:
    """Return the class of the world: `GuessWorld` for `guess_bench` or `guess`."""
    words = [word.capitalize() for word in package.split("_") if word]
    stem = "".join(words[:-1] if words[-1] in ("Bench", "World", "Worlds") and words[1:] else words)
    return f"{stem}World"
