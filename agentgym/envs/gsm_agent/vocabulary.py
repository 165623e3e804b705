"""Vocabulary of problems and documents, without number words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentgym.envs.reading import load_texts

_TEXTS = load_texts(__file__, "vocabulary")

FIRST_NAMES: Sequence[str] = _TEXTS["first_names"]
LAST_NAMES: Sequence[str] = _TEXTS["last_names"]
NOUNS: Sequence[str] = _TEXTS["nouns"]
MODIFIERS: Sequence[str] = _TEXTS["modifiers"]
CONTAINERS: Sequence[tuple[str, str]] = _TEXTS["containers"]
PLACES: Sequence[str] = _TEXTS["places"]
EVENTS: Sequence[str] = _TEXTS["events"]
PARTINGS: Sequence[tuple[str, str]] = _TEXTS["partings"]
ROLES: Sequence[str] = _TEXTS["roles"]
TOWNS: Sequence[str] = _TEXTS["towns"]
MONTHS: Sequence[str] = _TEXTS["months"]
TOPICS: Sequence[str] = _TEXTS["topics"]
DOCUMENT_TYPES: Mapping[str, Mapping[str, Sequence[str]]] = _TEXTS["document_types"]
"""Headings and filling sentences by type of record."""
