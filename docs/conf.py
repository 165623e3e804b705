"""Sphinx configuration: `make site` builds the documentation in `docs/_build`."""

from __future__ import annotations

import inspect
import sys
import tomllib
from contextlib import suppress
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from generate import write_pages  # noqa: E402 - it stands beside this file

import agentgym  # noqa: E402 - as above

write_pages(HERE)
ROOT = HERE.parent
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = _PROJECT["urls"]["Repository"]

project = "agentgym"
author = "The agentgym developers"
copyright = author  # noqa: A001 - the name that Sphinx wants
version = release = agentgym.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "generate", "notebooks", "*.py"]
html_theme = "furo"
html_title = f"agentgym {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(HERE / "scorer.js")
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # some generated pages skip a heading level
# Type hints refer to other projects, and an offline build cannot load their inventories.
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
copybutton_prompt_text = "$ "


def literal_tables(*arguments: Any) -> None:
    """Render Markdown tables in docstrings literally (`autodoc-process-docstring`)."""
    lines: list[str] = arguments[-1]
    groups = groupby(list(lines), key=lambda line: line.lstrip().startswith("|"))
    lines.clear()
    for is_table, group in groups:
        lines += ["::", "", *(f"   {line}" for line in group), ""] if is_table else group


def skip_tuple_fields(*arguments: Any) -> bool | None:
    """Skip the fields of named tuples, which the class docstrings describe."""
    return True if type(arguments[3]).__name__ == "_tuplegetter" else None


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return the URL of an object's source code, or None for data."""
    with suppress(AttributeError, KeyError, OSError, TypeError, ValueError):
        item = reduce(getattr, info["fullname"].split("."), sys.modules[info["module"]])
        item = inspect.unwrap(item.fget if isinstance(item, property) else item)
        path = Path(inspect.getsourcefile(item) or "").relative_to(ROOT).as_posix()
        return f"{REPOSITORY}/blob/main/{path}#L{inspect.getsourcelines(item)[1]}"
    return None


def setup(app: Any) -> None:
    app.connect("autodoc-skip-member", skip_tuple_fields)
    app.connect("autodoc-process-docstring", literal_tables)
