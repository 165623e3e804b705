"""The words that knowledge-free texts must not contain."""

from __future__ import annotations

from agentgym.envs.agentlongbench.config import species


def vocabulary() -> set[str]:
    table = species()
    values = {
        value
        for column in table.columns
        for values in column
        for value in values
        if isinstance(value, str)
    }
    return {*table.names, *values, *(section.name for section in table.sections)}
