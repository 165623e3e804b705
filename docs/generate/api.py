"""Generate the API reference: pages for packages and for the modules that define public names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from agentgym.training.extras import MissingExtraError
from generate.markup import cell, cut, index_page, table

# packages with public names
PACKAGES = (
    "agentgym",
    "agentgym.oracles",
    "agentgym.wrappers",
    "agentgym.multi",
    "agentgym.sandboxes",
    "agentgym.training.rollout",
    "agentgym.training.rl",
    "agentgym.training.evaluation",
    "agentgym.training.papers",
    "agentgym.training.integrations",
    "agentgym.testing",
    "agentgym.training.viewer",
)


def api_pages() -> Iterator[tuple[str, str]]:
    rows = []
    for package in PACKAGES:
        module = import_module(package)
        yield from package_pages(module)
        rows.append((f"[`{package}`]({package}.md)", _first_sentence(module)))
    text = "The public names: what `__all__` of each package lists.\n\n" + table(
        ("package", "what it is for"), rows
    )
    yield "api/index.md", index_page("API reference", text, PACKAGES)


def package_pages(package: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield a page for a package and for each module that defines public names of the package."""
    homes: dict[str, list[str]] = {}
    rows = []
    for name in _public_names(package):
        page = _page_of(package, name)
        homes.setdefault(page, []).append(name)
        link = f"{{py:obj}}`{name} <{package.__name__}.{name}>`"
        rows.append((link, cell(_summary(package, name))))
    for page, names in homes.items():
        directives = [_directive(package, name) for name in names]
        yield f"api/{page}.md", "\n\n".join([f"# {page}", *directives]) + "\n"
    text = f"{inspect.getdoc(package) or ''}\n\n{table(('name', 'meaning'), rows)}"
    yield f"api/{package.__name__}.md", index_page(package.__name__, text, homes)


def _public_names(module: ModuleType) -> list[str]:
    return getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if inspect.isfunction(value)
        and value.__module__ == module.__name__
    ]  # fmt: skip


def _page_of(package: ModuleType, name: str) -> str:
    """Return the name of the page that documents a public name of a package."""
    value = _value(package, name)
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if not isinstance(home, str) or not home.startswith("agentgym."):
        home = "constants"
    page = f"{package.__name__}.{home.rpartition('.')[2]}"
    return f"{page}.names" if page in PACKAGES else page


def _value(package: ModuleType, name: str) -> Any:
    try:
        return getattr(package, name)
    except MissingExtraError as error:
        return error


def _summary(package: ModuleType, name: str) -> str:
    value = _value(package, name)
    if isinstance(value, MissingExtraError):
        return str(value)
    documented = isinstance(value, (type, ModuleType)) or inspect.isroutine(value)
    return _first_sentence(value) if documented else cut(repr(value), 80)


def _first_sentence(item: Any) -> str:
    return " ".join((inspect.getdoc(item) or "").partition("\n\n")[0].split())


def _directive(module: ModuleType, name: str) -> str:
    value = _value(module, name)
    if isinstance(value, MissingExtraError):
        return f"`{name}`: {value}"
    full = f"{module.__name__}.{name}"
    options: list[str] = []
    if isinstance(value, ModuleType):
        kind, options = "automodule", [":members:"]
    elif isinstance(value, type):
        kind, options = "autoclass", [":members:"]
    elif inspect.isroutine(value):
        kind = "autofunction"
    else:
        # For a constant, autodoc would show the docstring of the constant's type.
        kind, options = "py:data", [f":value: {cut(repr(value), 200)}"]
    return _eval(f".. {kind}:: {full}", options)


def _eval(directive: str, options: list[str]) -> str:
    lines = [directive, *(f"   {option}" for option in options)]
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```"
