"""The words that knowledge-free texts must not contain."""

from __future__ import annotations

from agentgym.envs.agentlongbench.config import species


def vocabulary() -> set[str]:
    """List all words of the knowledge-intensive setting: names, sections and values of species."""
    table = species()
    values = {
        value
        for column in table.columns
        for values in column
        for value in values
        if isinstance(value, str)
    }
    return {*table.names, *values, *(section.name for section in table.sections)}
