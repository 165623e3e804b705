"""Options of PuzzleWorld and LongContextQA, and generators of items (section 2.3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import chain, product
from operator import itemgetter
from string import ascii_uppercase
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from agentgym.envs.agentlongbench import SPECIES, TASKS
from agentgym.envs.agentlongbench.engine import STYLES
from agentgym.envs.agentlongbench.items import ItemTable, Section, Value
from agentgym.envs.agentlongbench.logs import FEWEST_ROUNDS, LONGEST, LONGEST_ROUNDS, SHORTEST
from agentgym.text.validation import check_int
from agentgym.world.config import Choice, Config, TokenCount
from agentgym.world.turn_budget import TurnBudget

MOST_ITEMS = 100_000  # a reset with this many items takes a minute
MOST_ROWS = 1_000_000  # the benchmark has 6,400

Columns = list[list[tuple[Value, ...]]]

# The weights are from the published code.
_SECTIONS = (
    Section("Type", numeric=False, weight=6),
    Section("Base Stats", numeric=True, weight=4),
    Section("Generation", numeric=True, weight=2),
    Section("Abilities", numeric=False, weight=5),
    Section("Evolution", numeric=False, weight=3),
    Section("Other", numeric=False, weight=1),
)
WEIGHTS: Mapping[str, int] = {
    name: section.weight
    for number, section in enumerate(_SECTIONS, 1)
    for name in (section.name, f"attr_{number}")
}
"""The weights of the published prompts, by the sections' own and masked names."""
_INVENTED = ("Kind", "Mass", "Layer", "Skills", "Origin", "Marks")
_SYLLABLES = list(map("".join, product("bdfgklmnprstvz", "aeiou")))
_CODE_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"

FEWEST_ITEMS = 8
"""Among fewer items, guesses alone are as fast as queries."""
ItemCount = Annotated[int, Field(ge=FEWEST_ITEMS, le=MOST_ITEMS)]
"""A number of items."""


@dataclass(frozen=True, kw_only=True)
class ItemsConfig(Config):
    """Options of the items.

    Attributes:
        items: The number of items, at most 1025 if `source` is `species`.
        knowledge: `intensive` for the same names and facts in every episode, or `free` for new
            random codes in each episode.
        source: The source of the items: the benchmark's `species`, or a generator (`synthetic`).
        style: The format of query results: one list of items that satisfy all conditions
            (`concise`), or one list per section (`verbose`).
    """

    items: ItemCount = 60
    knowledge: Literal["intensive", "free"] = "free"
    source: Literal["species", "synthetic"] = "species"
    style: Annotated[str, Choice(STYLES)] = "concise"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source == "species":
            check_int("items", self.items, FEWEST_ITEMS, SPECIES)

    def table(self, rng: np.random.Generator) -> ItemTable:
        """Draw the items of an episode.

        Knowledge-intensive tables contain the same facts in every episode. In knowledge-free
        tables, random codes replace names and values, and random numbers in the same order replace
        numbers.
        """
        free = self.knowledge == "free"
        if self.source == "synthetic":
            table = synthetic(self.items, rng) if free else _fixed_synthetic(self.items)
        else:
            table = species()
            if self.items < len(table):
                some = np.sort(rng.choice(len(table), self.items, replace=False)).tolist()
                table = table.part(some, range(len(table.sections)))
            if free:
                # Shuffle each section separately, so that no item has a real species' profile.
                columns = Columns()
                for column in table.columns:
                    columns.append([column[place] for place in rng.permutation(len(table))])
                table = ItemTable(table.sections, table.names, table.labels, columns)
        return _coded(table, rng) if free else table

    def targets(self, table: ItemTable, rng: np.random.Generator, least: int = 1) -> Iterator[int]:
        """Yield the items that can be distinguished from all others, in random order.

        Lists with fewer than `least` items are ignored. Raise ValueError if no items are left.
        """
        for place in rng.permutation(len(table)).tolist():
            if table.isolable(place, least):
                yield place
        raise ValueError(
            f"no item can be identified from lists of at least {least} items; use a smaller min_list "
            "or more items"
        )


@dataclass(frozen=True, kw_only=True)
class QAConfig(ItemsConfig, TurnBudget):
    """Options of LongContextQA.

    Attributes:
        task: The benchmark task.
        rounds: The number of rounds in the log.
        length: The length of the log and question in tokens; 0 to use `rounds` instead.
        counter: The token counter: `cl100k_base`, `heuristic` or `package.module:factory`.
        delivery: `task` if the task contains the log, or `pages` if a tool reads the log page by
            page.
        page: The number of rounds per page.
        min_list: The minimum number of items in a list; the simulated agent omits conditions that
            would make a list shorter.
        published: Whether to use the tool name and the codes of the published prompts, such as
            `attr_1`.
        data: A file or folder of published rows, which replace the generated logs; the options for
            items, agent, task and length then have no effect.
        row: The row of `data` to play, from 0; None for a random one.
        verified: Whether to exclude rows whose answer does not follow from the log; such rows have
            no hints or labels.
    """

    task: Annotated[str, Choice(TASKS)] = "find_target_offsets_tool"
    rounds: Annotated[int, Field(ge=FEWEST_ROUNDS, le=LONGEST_ROUNDS)] = 12
    length: Annotated[
        Annotated[int, Choice((0,))] | Annotated[int, Field(ge=SHORTEST, le=LONGEST)], TokenCount()
    ] = 0
    counter: str = "cl100k_base"
    delivery: Literal["task", "pages"] = "pages"
    page: Annotated[int, Field(ge=1, le=1_000)] = 3
    items: ItemCount = 40
    min_list: Annotated[int, Field(ge=2, le=10_000)] = 5  # one item would be the hidden one
    published: bool = False
    data: str = ""
    row: Annotated[int, Field(ge=0, le=MOST_ROWS - 1)] | None = None
    verified: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data and (self.row is not None or self.verified):
            raise ValueError(
                f"row and verified require data, got row={self.row}, verified={self.verified} "
                "without data"
            )

    def table(self, rng: np.random.Generator) -> ItemTable:
        table = super().table(rng)
        if self.published and self.knowledge == "free":
            table = _published(table, rng)
        return table

    def shortest_list(self, table: ItemTable) -> int:
        """Return the minimum list length, which is reduced for small tables."""
        return min(self.min_list, max(2, len(table) // 4))

    @property
    def setting(self) -> str:
        """The name of the setting in the benchmark, such as `kf-c`."""
        return f"k{self.knowledge[0]}-{self.style[0]}"


@dataclass(frozen=True, kw_only=True)
class PuzzleConfig(ItemsConfig, TurnBudget):
    """Options of PuzzleWorld.

    Attributes:
        hidden: The number of hidden items per puzzle. With one hidden item, the task contains
            feedback on a random first guess, as in the paper. With several hidden items, the task
            lists all items, and the player guesses the hidden items in turn.
        rounds: The number of guesses allowed for each hidden item, including the random first
            guess. With few rounds, some puzzles can be solved only by luck.
        puzzles: The number of consecutive puzzles, each with its own table.
    """

    items: ItemCount = 100
    hidden: Annotated[int, Field(ge=1, le=1_000)] = 8
    rounds: Annotated[int, Field(ge=2, le=100_000)] = 8
    puzzles: Annotated[int, Field(ge=1, le=10_000)] = 1


@cache
def species() -> ItemTable:
    """Return the table of all species, sorted by name."""
    text = files("agentgym.envs.agentlongbench").joinpath("species.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    numbers, names, *facts = zip(*sorted(rows, key=itemgetter(1)), strict=True)
    labels = [f"{name} (#{int(k):04d})" for k, name in zip(numbers, names, strict=True)]
    columns = Columns()
    for section, cells in zip(_SECTIONS, facts, strict=True):
        if section.numeric:
            columns.append([(int(cell),) for cell in cells])
        else:
            columns.append([tuple(cell.split("|")) for cell in cells])
    return ItemTable(_SECTIONS, names, labels, columns)


@cache
def _fixed_synthetic(items: int) -> ItemTable:
    return synthetic(items, np.random.default_rng(items))


def synthetic(items: int, rng: np.random.Generator) -> ItemTable:
    """Generate items with distinct profiles, sorted by name."""
    names = sorted(map(str.capitalize, _words(_SYLLABLES, 3, items, rng)))
    draws = _drawers(items)
    profiles: dict[tuple[tuple[Value, ...], ...], None] = {}
    while len(profiles) < items:
        profiles[tuple(draw(rng) for draw in draws)] = None
    sections = _renamed(_SECTIONS, _INVENTED)
    return ItemTable(sections, names, names, list(zip(*profiles, strict=True)))


def _drawers(items: int) -> list[Callable[[np.random.Generator], tuple[Value, ...]]]:
    """Return one value sampler per section; the distributions resemble the species data."""

    def texts(
        stem: str, count: int, *shares: float
    ) -> Callable[[np.random.Generator], tuple[Value, ...]]:
        def draw(rng: np.random.Generator) -> tuple[Value, ...]:
            size = 1 + int(rng.choice(len(shares), p=shares))
            return tuple(sorted(f"{stem} {k + 1}" for k in rng.choice(count, size, replace=False)))

        return draw

    def marks(rng: np.random.Generator) -> tuple[Value, ...]:
        if rng.random() < 0.8:
            return ("no mark",)
        return (f"mark {rng.integers(1, 11)}",)

    return [
        texts("kind", 18, 0.5, 0.5),
        lambda rng: (int(rng.integers(180, 721)),),
        lambda rng: (int(rng.integers(1, 10)),),
        texts("skill", max(12, min(286, items // 3)), 0.2, 0.3, 0.5),
        texts("origin", 24, 0.6, 0.4),
        marks,
    ]


def _words(
    parts: Sequence[str], length: int, count: int, rng: np.random.Generator, prefix: str = ""
) -> list[str]:
    """Draw distinct words of `length` parts each."""
    drawn = rng.choice(len(parts) ** length, count, replace=False)
    digits = np.transpose(np.unravel_index(drawn, [len(parts)] * length)).tolist()
    return [prefix + "".join(parts[digit] for digit in word) for word in digits]


def _renamed(sections: Sequence[Section], names: Iterable[str]) -> list[Section]:
    return [replace(section, name=name) for section, name in zip(sections, names, strict=True)]


def _coded(table: ItemTable, rng: np.random.Generator) -> ItemTable:
    shuffled = table.part(rng.permutation(len(table)).tolist(), range(len(table.sections)))
    names = _words(_CODE_LETTERS, 4, len(table), rng, "Item_")
    titles = [f"Attr_{ascii_uppercase[k]}" for k in rng.permutation(len(table.sections))]
    sections = _renamed(table.sections, titles)
    values = set(chain.from_iterable(chain.from_iterable(table.columns)))
    words = sorted(value for value in values if isinstance(value, str))
    drawn = _words(_CODE_LETTERS, 4, len(words), rng, "Val_")
    codes: dict[Value, Value] = dict(zip(words, drawn, strict=True))
    columns = Columns()
    for section, column in zip(sections, shuffled.columns, strict=True):
        new = _stretched(column, rng) if section.numeric else codes
        # Sorting by random codes also randomises the order of an item's values.
        columns.append([tuple(sorted(new[value] for value in each)) for each in column])
    order = rng.permutation(len(sections)).tolist()
    return ItemTable(sections, names, names, columns).part(range(len(names)), order)


def _published(table: ItemTable, rng: np.random.Generator) -> ItemTable:
    """Rename sections to codes such as `attr_1`, and values to codes such as `a1v7`."""
    # Each section has a different weight, so the weight identifies the section.
    weights = [section.weight for section in _SECTIONS]
    pairs = zip(table.sections, table.columns, strict=True)
    ordered = sorted(pairs, key=lambda pair: weights.index(pair[0].weight))
    sections, columns = [], Columns()
    for number, (section, column) in enumerate(ordered, 1):
        sections.append(replace(section, name=f"attr_{number}"))
        if section.numeric:
            columns.append(list(column))
            continue
        values = sorted(set(chain.from_iterable(column)))
        drawn = rng.permutation(len(values)).tolist()
        codes = {v: f"a{number}v{code + 1}" for v, code in zip(values, drawn, strict=True)}
        columns.append([tuple(codes[value] for value in each) for each in column])
    return ItemTable(sections, table.names, table.labels, columns)


def _stretched(column: Iterable[tuple[Value, ...]], rng: np.random.Generator) -> dict[Value, Value]:
    numbers = sorted(set(chain.from_iterable(column)))
    drawn = rng.choice(np.arange(100, 200 + 40 * len(numbers)), len(numbers), replace=False)
    return dict(zip(numbers, sorted(drawn.tolist()), strict=True))
