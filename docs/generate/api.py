"""The API reference: a page for each package with public names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from agentgym.training.extras import MissingExtraError
from generate.markup import cut, index_page, table

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
        yield f"api/{package}.md", package_page(module)
        rows.append((f"[`{package}`]({package}.md)", _first_sentence(module)))
    text = "The public names: what `__all__` of each package lists.\n\n" + table(
        ("package", "what it is for"), rows
    )
    yield "api/index.md", index_page("API reference", text, PACKAGES)


def _first_sentence(module: ModuleType) -> str:
    return " ".join((module.__doc__ or "").partition("\n\n")[0].split())


def package_page(module: ModuleType) -> str:
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if inspect.isfunction(value)
        and value.__module__ == module.__name__
    ]  # fmt: skip
    parts = [f"# {module.__name__}", inspect.getdoc(module) or ""]
    parts += [_directive(module, name) for name in names]
    return "\n\n".join(parts) + "\n"


def _directive(module: ModuleType, name: str) -> str:
    try:
        value = getattr(module, name)
    except MissingExtraError as error:
        return f"`{name}`: {error}"
    full = f"{module.__name__}.{name}"
    options: list[str] = []
    if isinstance(value, ModuleType):
        kind, options = "automodule", [":members:"]
    elif isinstance(value, type):
        kind, options = "autoclass", [":members:"]
    elif inspect.isroutine(value):
        kind = "autofunction"
    else:
        # autodoc would show the docstring of the value's type.
        kind, options = "py:data", [f":value: {cut(repr(value), 200)}"]
    return _eval(f".. {kind}:: {full}", options)


def _eval(directive: str, options: list[str]) -> str:
    lines = [directive, *(f"   {option}" for option in options)]
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```"
