"""Schemas of configurations and tools; imported on first use, because pydantic is slow to import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from docstring_parser import Docstring, DocstringStyle
from docstring_parser import parse as parse_docstring
from pydantic import ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

# Strict mode prevents silent conversions, such as True to 1 or "2" to 2.
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_make_shape: Any = TypedDict  # type checkers reject a TypedDict with computed fields


def strict_adapter(name: str, types: Mapping[str, Any]) -> TypeAdapter[dict[str, Any]]:
    """Return a strict validator for mappings with typed fields."""
    shape = _make_shape(name, dict(types))
    shape.__pydantic_config__ = _STRICT
    return TypeAdapter(shape)


def described(hint: Any, description: str) -> Any:
    """Return a type annotated with a description that appears in its JSON Schema."""
    return Annotated[hint, Field(description=description or None)]


def read_docstring(text: str) -> Docstring:
    """Parse a Google-style docstring."""
    return parse_docstring(text, style=DocstringStyle.GOOGLE)
