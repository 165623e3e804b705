"""Bounds of the lengths and sizes of office tasks."""

from __future__ import annotations

MIN_LENGTH, MAX_LENGTH = 4_000, 4_000_000
"""One unit of some tasks takes nearly 4,000 tokens; no model has a context window above the
maximum.
"""

MAX_SIZE = 100_000
"""The names, SKUs and ids of every task suffice for this size."""
