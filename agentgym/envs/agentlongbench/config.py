"""Options common to both worlds of the benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from agentgym.arguments import check_choice, check_int
from agentgym.config import Choice, Config
from agentgym.envs.agentlongbench.engine import STYLES
from agentgym.envs.agentlongbench.items import ItemTable
from agentgym.envs.agentlongbench.worlds import KNOWLEDGE, MOST_ITEMS, SOURCES, SPECIES, draw_table

SECTIONS = ("type", "stats", "generation", "abilities", "evolution", "other")
"""The six sections, as options name them."""
NUMBERS = ("stats", "generation")
"""Those of them that hold a number."""
SETTINGS = {
    "ki-c": {"knowledge": "intensive", "style": "concise"},
    "ki-v": {"knowledge": "intensive", "style": "verbose"},
    "kf-c": {"knowledge": "free", "style": "concise"},
    "kf-v": {"knowledge": "free", "style": "verbose"},
}
"""The four settings of the benchmark, by the names of its folders."""
FULL: Mapping[str, Mapping[str, Any]] = {
    name: {**options, "source": "species", "items": SPECIES} for name, options in SETTINGS.items()
}
"""The settings with the items of the benchmark."""

FEWEST_ITEMS = 8
"""Fewest items: among fewer, guesses alone are as fast as queries."""
ItemCount = Annotated[int, Field(ge=FEWEST_ITEMS, le=MOST_ITEMS)]
"""A number of items."""


@dataclass(frozen=True, kw_only=True)
class ItemsConfig(Config):
    """Options of the items.

    Attributes:
        items: The number of items; of species at most 1025.
        knowledge: Whether items are shown as they are, the same in every episode (`intensive`), or
            under new codes each time (`free`).
        source: Where items come from: the `species` of the benchmark, or drawn ones (`synthetic`).
        style: The result of a query: the items that meet all its conditions (`concise`), or a list
            for each section (`verbose`).
        sections: The sections of a profile, by commas, of type, stats, generation, abilities,
            evolution and other; or `all`.
    """

    items: ItemCount = 60
    knowledge: Annotated[str, Choice(KNOWLEDGE)] = "free"
    source: Annotated[str, Choice(SOURCES)] = "species"
    style: Annotated[str, Choice(STYLES)] = "concise"
    sections: str = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source == "species":
            check_int("items", self.items, FEWEST_ITEMS, SPECIES)
        for name in self._sections():
            check_choice("sections", name, ("all", *SECTIONS))

    def _sections(self) -> tuple[str, ...]:
        return SECTIONS if self.sections == "all" else tuple(self.sections.split(","))

    def table(self, rng: np.random.Generator) -> ItemTable:
        """Draw the items of an episode."""
        sections = tuple(map(SECTIONS.index, self._sections()))
        return draw_table(self.knowledge, self.source, self.items, rng, sections)

    def targets(self, table: ItemTable, rng: np.random.Generator, least: int = 1) -> Iterator[int]:
        """Yield the items that can be distinguished from all others, in random order.

        Args:
            table: The items.
            rng: The only source of randomness.
            least: Only lists with at least this many items count.

        Raises:
            ValueError: There are no more.
        """
        for place in rng.permutation(len(table)).tolist():
            if table.isolable(place, least):
                yield place
        raise ValueError(
            f"no item can be told from the others by its {self.sections} sections; give more "
            "sections or other items"
        )
