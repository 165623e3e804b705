"""Helpers that load text files and parse strings written by worlds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError


def expect(match: re.Match[str] | None, what: str, text: str) -> re.Match[str]:
    """Return the match, or raise a ValueError that mentions `what`."""
    if match is None:
        raise ValueError(f"this is not {what}: {text[:100]!r}")
    return match


def load_texts(module: str, name: str) -> dict[str, Any]:
    """Return the tables of `texts/NAME.toml`, located next to the file `module`."""
    path = Path(module).with_name("texts") / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def describe_faults(error: ValidationError, *parents: str) -> Iterator[str]:
    """Yield a description of each fault in a row: the field, the expectation and the value."""
    for fault in error.errors(include_url=False, include_context=False):
        name = ".".join(map(str, (*parents, *fault["loc"]))) or "of the line"
        yield f"field {name}: {fault['msg']}, got {repr(fault['input'])[:80]}"
