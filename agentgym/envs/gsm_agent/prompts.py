"""Prompts, and tools that differ from `search` only in their descriptions (Zhu et al., sections 4.1
and 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from agentgym.text.tools import tool

TOOL_SETS: Mapping[str, Sequence[str]] = {
    "base": (),
    "think": ("think",),
    "explore": ("explore",),
    "revisit": ("revisit",),
    "explore_revisit": ("explore", "revisit"),
}
"""Tools added to `search` and `next_page`, by tool set."""

TOOL_NOTES = {
    "think": "Use think to write down what you have found and what is missing before you go on.",
    "explore": "Use explore to try queries that are unlike those you have made.",
    "revisit": "Use revisit to come back, in other words, to a subject that you have searched for "
    "before: it may hold more.",
}
STEP_BY_STEP = (
    "Think step by step: before each call and before the answer, write down what you "
    "know, what follows, and what is missing."
)
EXAMPLE = (
    "An example. Question: How many lemons did Tess Hill have in July 1999?\n"
    "You search for 'lemons Tess Hill July 1999'. A document says that the lemons of Tess Hill are "
    "made up of those in the "
    "kitchen and those in the garden, and that there were 4 lemons in the kitchen. The garden is "
    "missing, so you search for "
    "'lemons in the garden July 1999'. A note that names nobody, but whose date and name fit, says "
    "that there were twice as many "
    "lemons in the garden as oranges. You search for 'oranges Tess Hill July 1999' and read that "
    "there were 3 oranges. So there "
    "were 6 lemons in the garden, and 4 + 6 = 10 lemons in all. You reply: #### 10"
)


def rules(static: bool) -> str:
    """Return the shared instructions."""
    task = (
        "You answer a question of grade-school arithmetic. The documents that tell what it depends "
        "on are given with it."
        if static
        else "You answer a question of grade-school arithmetic. What it depends on is not given "
        "with it, but stands in documents "
        "of a database: find them with search, and look further down the results with next_page. "
        "Each document tells little, "
        "other documents are about other people or other months, and some leave out the name of "
        "the person, which then stands "
        "beside the date. What a document refers to may stand in yet another one."
    )
    return (
        f"{task} When you know the answer, which is a number, give it with the tool answer, or reply "
        "with '#### ' and the number as the last line."
    )


class _Searcher(Protocol):
    def run_search(self, name: str, query: str) -> str:
        """Run a search for a tool of that name."""

    def answer(self, value: str) -> str:
        """Submit an answer."""


class WorldTool:
    """A tool that a tool set adds to a world.

    Args:
        world: The world that runs it.
    """

    def __init__(self, world: _Searcher) -> None:
        self._world = world


class Think(WorldTool):
    """A tool that does nothing but give a thought back."""

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
    """The tool that ends a task, in every setting."""

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
