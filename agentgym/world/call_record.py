"""Records of completed tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentgym.text.messages import Record


class CallRecord(Record, frozen=True):
    """A completed tool call; replaying the records re-creates a world.

    Attributes:
        answer: The result, or the checksum of a long result.
    """

    name: str
    arguments: Mapping[str, Any]
    turn: int
    answer: str | int

    def __deepcopy__(self, memo: object) -> CallRecord:
        return self  # snapshots can share an immutable record
