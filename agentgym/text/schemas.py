"""Schemas of configurations and tools, as pydantic and their docstrings have them.

Imported when the first schema is needed: pydantic's part that builds them takes a fifth of the time
of `import gymnasium, pydantic, numpy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from docstring_parser import Docstring, DocstringStyle
from docstring_parser import parse as parse_docstring
from pydantic import ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

# Strict, so that no value is converted on the quiet: True is not 1, "2" is not 2 and 1.0 is not 1.
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_make_shape: Any = TypedDict  # type checkers know its literal form only


def strict_adapter(name: str, types: Mapping[str, Any]) -> TypeAdapter[dict[str, Any]]:
    """Return the strict checks of a mapping with fields of some types.

    Raises:
        PydanticUserError: A type has no schema.
    """
    shape = _make_shape(name, dict(types))
    shape.__pydantic_config__ = _STRICT
    return TypeAdapter(shape)


def described(hint: Any, description: str) -> Any:
    """Return a type with the description that its schema is to have."""
    return Annotated[hint, Field(description=description or None)]


def read_docstring(text: str) -> Docstring:
    """Read a docstring in Google's style."""
    return parse_docstring(text, style=DocstringStyle.GOOGLE)
