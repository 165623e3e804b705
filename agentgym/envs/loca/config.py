"""Lengths and sizes of office tasks."""

from __future__ import annotations

LENGTHS = {
    "8k": 8_000,
    "16k": 16_000,
    "32k": 32_000,
    "64k": 64_000,
    "96k": 96_000,
    "128k": 128_000,
    "256k": 256_000,
}
"""The environment description lengths of the paper (section 2.3), in tokens."""

MIN_LENGTH, MAX_LENGTH = 4_000, 4_000_000
"""A unit of some tasks takes nearly 4,000 tokens; no model has a longer context window than that."""

MAX_SIZE = 100_000
"""So that the names, SKUs and numbers of all tasks suffice."""
