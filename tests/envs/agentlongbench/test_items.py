"""Compare AgentLongBench's items, query tool and feedback with brute force and with the paper."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from agentgym.envs.agentlongbench.belief import Constraints
from agentgym.envs.agentlongbench.config import ItemsConfig, species, synthetic
from agentgym.envs.agentlongbench.engine import (
    read_feedback,
    read_lists,
    search,
    to_atoms,
    to_conditions,
    write_feedback,
)
from agentgym.envs.agentlongbench.items import Atom, ItemTable, Section, normalize_name
from agentgym.envs.agentlongbench.logs import largest_section
from agentgym.text.tools import ToolError

DRAWS = [
    ("intensive", "species", 1025),
    ("free", "species", 300),
    ("intensive", "synthetic", 200),
    ("free", "synthetic", 40),
]


def draw_table(knowledge: str, source: str, items: int, rng: np.random.Generator) -> ItemTable:
    return ItemsConfig(knowledge=knowledge, source=source, items=items).table(rng)


def profile(table: ItemTable, place: int) -> dict[str, tuple[Any, ...]]:
    return {
        section.name: column[place]
        for section, column in zip(table.sections, table.columns, strict=True)
    }


def true_of(item: dict[str, tuple[Any, ...]], atom: Atom) -> bool:
    section, operator, value = atom
    held: Any = item[section]
    tests = {"has": value in held, "lacks": value not in held, "==": held[0] == value}
    return (
        tests[operator]
        if operator in tests
        else (held[0] > value if operator == ">" else held[0] < value)
    )


def random_atoms(table: ItemTable, rng: np.random.Generator) -> list[Atom]:
    item, atoms = profile(table, int(rng.integers(len(table)))), []
    for section in table.sections:
        if rng.random() < 0.5:
            operators = (">", "<", "==") if section.numeric else ("has", "lacks")
            atoms += [
                (section.name, operators[rng.integers(len(operators))], value)
                for value in item[section.name]
            ]
    return atoms or [(table.sections[0].name, "lacks", table.columns[0][0][0])]  # type: ignore[return-value]


def query(table: ItemTable, *conditions: Any, style: str = "concise") -> Any:
    return json.loads(search(table, conditions, style))


def value(section: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"type": "value", "section": section, "values": list(values), **more}


def test_the_lists_are_those_of_the_figures() -> None:
    grass = query(species(), value("Type", "Grass"))["intersection"]
    assert (grass[:5], grass[-1]) == (
        ["Abomasnow", "Amoonguss", "Appletun", "Applin", "Arboliva"],
        "Zarude",
    )
    above = query(
        species(), {"type": "numeric", "section": "Base Stats", "comparator": ">", "threshold": 220}
    )["intersection"]
    assert (above[:5], above[-1]) == (
        ["Abomasnow", "Abra", "Absol", "Accelgor", "Aegislash"],
        "Zygarde",
    )
    third = {"type": "numeric", "section": "Generation", "comparator": "==", "threshold": 3}
    assert len(query(species(), third)["intersection"]) == 135


@pytest.mark.rotation
def test_the_species_are_those_of_the_paper() -> None:
    table = species()
    assert len(table) == 1025
    totals = {
        name: profile(table, table.find(name))["Base Stats"][0]
        for name in ("Kakuna", "Kirlia", "Palossand", "Seedot")
    }
    assert totals == {"Kakuna": 205, "Kirlia": 278, "Palossand": 480, "Seedot": 220}
    assert table.labels[table.find("kakuna")] == "Kakuna (#0014)"
    assert profile(table, table.find("Hitmonchan"))["Evolution"] == (
        "Level >= 20 (Atk<Def)",
        "Stage 1",
    )
    twins = ("Nidorina", "Nidorino", "Latias", "Latios")
    assert not any(table.isolable(table.find(name)) for name in twins)


@pytest.mark.parametrize(("knowledge", "source", "items"), DRAWS)
def test_lists_are_what_brute_force_finds(knowledge: str, source: str, items: int) -> None:
    rng = np.random.default_rng(1)
    table = draw_table(knowledge, source, items, rng)
    profiles = [profile(table, place) for place in range(items)]
    for _ in range(40):
        atoms = random_atoms(table, rng)
        conditions = to_conditions(atoms)
        assert sorted(map(str, to_atoms(conditions))) == sorted(map(str, atoms))
        want = [
            name
            for name, item in zip(table.names, profiles, strict=True)
            if all(true_of(item, atom) for atom in atoms)
        ]
        concise = search(table, conditions, "concise")
        assert json.loads(concise) == {"intersection": want}
        assert read_lists(conditions, concise) == [(to_atoms(conditions), want)]
        verbose = search(table, conditions, "verbose")
        for part in json.loads(verbose)["per_section"]:
            mine = [atom for atom in atoms if atom[0] == part["section"]]
            assert part["candidates"] == [
                name
                for name, item in zip(table.names, profiles, strict=True)
                if all(true_of(item, atom) for atom in mine)
            ]
        assert [sorted(map(str, a)) for a, _ in read_lists(conditions, verbose)] == [
            sorted(map(str, (atom for atom in atoms if atom[0] == name)))
            for name in dict.fromkeys(atom[0] for atom in atoms)
        ]


@pytest.mark.parametrize(("knowledge", "source", "items"), DRAWS)
def test_feedback_says_what_is_so_and_can_be_read(knowledge: str, source: str, items: int) -> None:
    rng = np.random.default_rng(2)
    table = draw_table(knowledge, source, items, rng)
    for number in range(1, 60):
        guess, target = rng.integers(items, size=2).tolist()
        text = write_feedback(table, number, guess, target, 70 - number)
        (found,) = read_feedback(text)
        assert (found.round, found.name, found.right, found.left) == (
            number,
            table.names[guess],
            guess == target,
            70 - number,
        )
        assert all(true_of(profile(table, target), atom) for atom in found.atoms)
        mine = profile(table, guess)
        assert [(a[0], a[2]) for a in found.atoms] == [
            (name, value) for name, values in mine.items() for value in values
        ]


def test_an_item_is_isolable_if_the_feedback_on_all_others_leaves_it_alone() -> None:
    sections = (Section("S", False, 1), Section("N", True, 1))
    texts = ("a",), ("a", "b"), ("a", "b"), ("c",)
    numbers = (1,), (1,), (2,), (1,)
    apart = ItemTable(sections, "wxyz", "wxyz", [texts, numbers])
    assert [apart.isolable(k) for k in range(4)] == [True] * 4
    alike = ItemTable(sections, "wxyz", "wxyz", [(*texts[:2], ("a",), ("c",)), numbers])
    assert not alike.isolable(1), "only it has b, so that nothing tells it from w"
    assert [apart.isolable(k, least=3) for k in range(4)] == [False, False, False, False]
    config, rng = ItemsConfig(), np.random.default_rng(0)
    table = config.table(rng)
    with pytest.raises(ValueError, match=r"no item .* lists of at least 60 items; use a smaller"):
        list(config.targets(table, rng, 60))


@pytest.mark.parametrize("items", [8, 500, 5_000])
def test_synthetic_profiles_are_all_different(items: int) -> None:
    table = synthetic(items, np.random.default_rng(items))
    assert len(set(table.names)) == len(set(zip(*table.columns, strict=True))) == items
    sets = {tuple(map(frozenset, profile)) for profile in zip(*table.columns, strict=True)}
    assert len(sets) == items
    assert list(table.names) == sorted(table.names)


def test_knowledge_intensive_facts_never_change_and_knowledge_free_ones_always_do() -> None:
    first, second = (
        draw_table("intensive", "synthetic", 50, np.random.default_rng(seed)) for seed in (1, 2)
    )
    assert (first.names, first.columns) == (second.names, second.columns)
    some = draw_table("intensive", "species", 300, np.random.default_rng(1))
    for place, name in enumerate(some.names):
        known = profile(species(), species().find(name))
        assert profile(some, place).items() <= known.items()
    assert {len(column) for column in some.columns} == {300}
    free = [
        draw_table("free", source, 50, np.random.default_rng(seed))
        for source in ("species", "synthetic")
        for seed in (1, 2)
    ]
    assert len({table.names for table in free}) == 4


def test_knowing_the_species_is_of_no_use_in_the_knowledge_free_setting() -> None:
    """Guessing a species by list position or by the rank of a number is no better than chance."""
    known = species()
    stats = [values[0] for values in known.columns[1]]
    abilities = np.array([len(values) for values in known.columns[3]])
    chance = sum((n / 1025) ** 2 for n in Counter(abilities.tolist()).values())
    rates: dict[str, list[float]] = {"order": [], "rank": []}
    for seed in range(12):
        table = draw_table("free", "species", 1025, np.random.default_rng(seed))
        # The column of abilities has the largest number of distinct values.
        column = max(
            table.columns,
            key=lambda each: len({v for values in each for v in values if isinstance(v, str)}),
        )
        sizes = np.array([len(values) for values in column])
        rates["order"].append(float((sizes == abilities).mean()))
        rates["rank"].append(float((sizes == abilities[by_rank(table, stats)]).mean()))
    for rate in rates.values():
        assert abs(np.mean(rate) - chance) < 0.02


def by_rank(table: ItemTable, stats: list[Any]) -> np.ndarray[Any, Any]:
    numbers = [values[0] for values in table.columns[largest_section(table)]]
    guesses = np.zeros(len(numbers), int)
    guesses[np.argsort(numbers, kind="stable")] = np.argsort(stats, kind="stable")
    return guesses


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ([], "a query must have 1 to 1024 conditions, got 0"),
        ([value("Kind", "Bug")], 'there is no section "Kind"; the sections are Type, Base Stats'),
        ([value("Type", "bug")], 'section "Type" has no value "bug"'),
        (
            [value("Base Stats", "3")],
            "section \"Base Stats\" accepts only conditions of type 'numeric'",
        ),
        (
            [{"type": "numeric", "section": "Type", "comparator": ">", "threshold": 3}],
            "accepts only conditions of type 'value'",
        ),
        (
            [{"type": "numeric", "section": "Generation"}],
            "a condition of type numeric requires section, comparator and threshold",
        ),
        ([value("Type")], "a condition of type value requires section, 1 to 1024 values"),
        ([value("Type", "Bug", threshold=3)], "a condition of type value requires section"),
    ],
)
def test_queries_that_cannot_be_run_say_why(conditions: Any, message: str) -> None:
    for style in ("concise", "verbose"):
        with pytest.raises(ToolError, match=re.escape(message)):
            search(species(), conditions, style)


def test_names_are_found_however_they_are_written() -> None:
    table = species()
    for name, want in {
        "flabebe": "Flabébé",
        "FARFETCH'D": "Farfetch’d",
        "type null": "Type: Null",
        "mr mime": "Mr. Mime",
        "hooh": "Ho-Oh",
        "porygon z": "Porygon-Z",
        "Porygon2": "Porygon2",
    }.items():
        assert table.names[table.find(name)] == want
    assert len({normalize_name(name) for name in table.names}) == 1025
    with pytest.raises(ToolError, match='there is no item called "Kakunaa"'):
        table.find("Kakunaa")


def test_an_unknown_comparator_states_nothing() -> None:
    atom: Any = ("Mass", ">=", 3)
    assert Constraints.of([atom]).atoms() == []
