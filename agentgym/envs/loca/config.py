"""Bounds of the lengths and sizes of office tasks."""

from __future__ import annotations

# One unit of some tasks takes nearly 4,000 tokens; no context window exceeds the maximum.
MIN_LENGTH, MAX_LENGTH = 4_000, 4_000_000

# Names, SKUs and ids of every task suffice for this size.
MAX_SIZE = 100_000
