"""Lengths and sizes of office tasks."""

from __future__ import annotations

MIN_LENGTH, MAX_LENGTH = 4_000, 4_000_000
"""A unit of some tasks takes nearly 4,000 tokens; no model has a longer context window than that."""

MAX_SIZE = 100_000
"""So that the names, SKUs and numbers of all tasks suffice."""
