"""Prompts, and additional tools such as `think` (Zhu et al., sections 4.1 and 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agentgym.envs.reading import load_texts
from agentgym.text.tools import tool

TOOL_SETS: Mapping[str, Sequence[str]] = {
    "base": (),
    "think": ("think",),
    "explore": ("explore",),
    "revisit": ("revisit",),
    "explore_revisit": ("explore", "revisit"),
}
"""Tools added to `search` and `next_page`, by tool set."""

_TEXTS = load_texts(__file__, "prompts")


def rules(static: bool, tools: str, prompt: str) -> str:
    """Return the system message for a setting, tool set and prompt style."""
    task = _TEXTS["static" if static else "agentic"]
    lines = [f"{task} {_TEXTS['answer']}"]
    lines += [_TEXTS["notes"][name] for name in TOOL_SETS[tools]]
    if prompt in _TEXTS:
        lines.append(_TEXTS[prompt])
    return "\n".join(lines)


class _Searcher(Protocol):
    def run_search(self, name: str, query: str) -> str:
        """Run a search and log it under the name of a tool."""

    def answer(self, value: str) -> str:
        """Submit an answer."""


class WorldTool:
    """Base class for SearchWorld's tools."""

    def __init__(self, world: _Searcher) -> None:
        self._world = world


class Think(WorldTool):
    """Tool that only returns the thought."""

    @tool
    def think(self, thought: str) -> str:
        """Write down a thought; nothing else happens.

        Args:
            thought: What you think.
        """
        return thought


class Explore(WorldTool):
    """Search under another name."""

    @tool
    def explore(self, query: str) -> str:
        """Search the database with a query that is unlike your earlier ones; shows the five documents that fit best.

        Args:
            query: What to look for.
        """
        return self._world.run_search("explore", query)


class Revisit(WorldTool):
    """Search under another name."""

    @tool
    def revisit(self, query: str) -> str:
        """Search the database again for a subject of an earlier query; shows the five documents that fit best.

        Args:
            query: What to look for again.
        """
        return self._world.run_search("revisit", query)


class AnswerTool(WorldTool):
    """Tool for submitting an answer."""

    @tool
    def answer(self, value: str) -> str:
        """Give the answer. This ends the task.

        Args:
            value: The number.
        """
        return self._world.answer(value)


EXTRA_TOOLS: Mapping[str, type[WorldTool]] = {
    "think": Think,
    "explore": Explore,
    "revisit": Revisit,
}
