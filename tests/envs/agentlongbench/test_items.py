"""Items, query tool and feedback against brute force over profiles and the paper's facts."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym.envs.agentlongbench import build_species
from agentgym.envs.agentlongbench.config import ItemsConfig, draw_table, species, synthetic
from agentgym.envs.agentlongbench.engine import (
    dumps,
    read_feedback,
    read_lists,
    search,
    to_atoms,
    to_conditions,
    write_feedback,
)
from agentgym.envs.agentlongbench.items import Atom, ItemTable, Section, normalize_name
from agentgym.text.tools import ToolError
from tests.envs.agentlongbench.vocabulary import vocabulary

TSV = Path(build_species.__file__).with_name("species.tsv")
TWINS = [
    {"Nidorina", "Nidorino"},
    {"Nidoqueen", "Nidoking"},
    {"Silcoon", "Cascoon"},
    {"Lunatone", "Solrock"},
    {"Latias", "Latios"},
    {"Uxie", "Mesprit", "Azelf", "Cresselia"},
    {"Buzzwole", "Pheromosa"},
]
DRAWS = [
    ("intensive", "species", 1025),
    ("free", "species", 300),
    ("intensive", "synthetic", 200),
    ("free", "synthetic", 40),
]


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
    """Return conditions suggested by some item, true or not."""
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
    groups = defaultdict(set)
    for place, name in enumerate(table.names):
        groups[str([sorted(map(str, column[place])) for column in table.columns])].add(name)
    assert sorted(map(sorted, (names for names in groups.values() if len(names) > 1))) == sorted(
        map(sorted, TWINS)
    )
    shared = {name for names in TWINS for name in names}
    assert not shared & {table.names[place] for place in range(len(table)) if table.isolable(place)}


def test_the_table_is_small_and_a_row_is_made_from_the_facts_of_the_source(tmp_path: Path) -> None:
    assert len(gzip.compress(TSV.read_bytes())) < 60_000
    stats = dict.fromkeys(("hp", "atk", "def", "spa", "spd", "spe"), 10)
    entries = {
        "a": {
            "num": 8,
            "name": "Aa",
            "types": ["X"],
            "baseStats": stats,
            "abilities": {"0": "P", "H": "Q"},
        },
        "b": {
            "num": 151,
            "name": "Bb",
            "types": ["X", "Y"],
            "baseStats": stats,
            "abilities": {"0": "P"},
            "prevo": "Aa",
            "evoLevel": 20,
            "evoCondition": "with an Atk stat < its Def stat",
            "tags": ["Mythical"],
            "otherFormes": ["Bb-Mega", "Bb-Galar"],
        },
        "form": {"num": 151, "name": "Bb-Mega", "baseSpecies": "Bb"},
        "none": {"num": -1, "name": "Cc"},
    }
    assert build_species.table(entries).splitlines()[1:] == [
        "8\tAa\tX\t60\t1\tP|Q\tBasic\tStarter",
        "151\tBb\tX|Y\t60\t1\tP\tLevel >= 20 (Atk<Def)|Stage 1\tMythical|Has Mega|Has regional form",
    ]
    other = tmp_path / "other.whl"
    other.write_bytes(b"no wheel")
    with pytest.raises(
        ValueError,
        match=r"other.whl has the sha256 .*; the table is made from poke-env 0.10.0, whose is 7b3c9887",
    ):
        build_species.main(other, tmp_path / "out.tsv")


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
    rng = np.random.default_rng(3)
    tables = [draw_table(*DRAWS[k], rng) for k in (1, 2, 3)]
    sections = (Section("S", False, 1), Section("N", True, 1))
    columns: Any = [[("a",), ("a", "b"), ("a", "b"), ("c",)], [(1,), (1,), (2,), (1,)]]
    tables.append(ItemTable(sections, "wxyz", "wxyz", columns))
    tables.append(
        ItemTable(
            sections,
            "wxyz",
            "wxyz",
            [[("a",), ("a", "b"), ("a",), ("c",)], [(1,), (1,), (2,), (1,)]],
        )
    )
    for table in tables:
        for target in range(min(len(table), 60)):
            atoms = [
                atom
                for guess in range(len(table))
                if guess != target
                for atom in table.feedback_atoms(guess, target)
            ]
            alone = table.listed(table.meet(atoms)) == [table.names[target]]
            assert table.isolable(target) == alone
    assert [tables[-2].isolable(k) for k in range(4)] == [True, True, True, True]
    assert not tables[-1].isolable(1), "only it has b, so that nothing tells it from w"


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
    assert first == second
    free = [
        draw_table("free", source, 50, np.random.default_rng(seed))
        for source in ("species", "synthetic")
        for seed in (1, 2)
    ]
    assert len({table.names for table in free}) == 4


@pytest.mark.rotation
def test_no_word_of_the_species_is_in_knowledge_free_text() -> None:
    words = vocabulary()
    assert {"Kakuna", "Type", "None", "Level >= 20 (Atk<Def)", "Static"} <= words
    pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, sorted(words))) + r")(?!\w)")
    assert pattern.search("the Type of it")
    table = draw_table("free", "species", 1025, np.random.default_rng(5))
    text = "\n".join(write_feedback(table, 1, place, 0, 1) for place in range(len(table)))
    assert not pattern.search(text)
    assert not any(normalize_name(word) in map(normalize_name, table.names) for word in words)
    assert all(re.fullmatch("Item_[A-Z]{4}", name) for name in table.names), (
        "a name that no parser takes for a number"
    )
    assert not re.search(r"#[0-9]|Item_\w* \(", text)


def test_knowing_the_species_is_of_no_use_in_the_knowledge_free_setting() -> None:
    # Attackers who know the whole table guess the species from list positions or number ranks. They
    # do no better than chance, while the same attacks reveal everything if items are only renamed.
    known = species()
    stats = [values[0] for values in known.columns[1]]
    rates, chances = Counter[str](), Counter[str]()
    rounds = 12
    for seed in range(rounds):
        table = draw_table("free", "species", 1025, np.random.default_rng(seed))
        for attack, guesses in (
            ("order", range(1025)),
            ("rank", by_rank(table, stats)),
            ("renamed", range(1025)),
        ):
            truth = known if attack == "renamed" else table
            column = max(
                truth.columns,
                key=lambda values: (
                    len({v for each in values for v in each}) * isinstance(values[0][0], str)
                ),
            )
            sizes = [len(values) for values in column]
            supposed = [len(known.columns[3][guess]) for guess in guesses]
            rates[attack] += float(np.mean([a == b for a, b in zip(sizes, supposed, strict=True)]))  # type: ignore[assignment]
            counts = Counter(sizes)
            chances[attack] += sum((n / 1025) ** 2 for n in counts.values())  # type: ignore[assignment]
    assert rates["renamed"] == rounds
    for attack in ("order", "rank"):
        assert abs(rates[attack] - chances[attack]) / rounds < 0.02


def by_rank(table: ItemTable, stats: list[Any]) -> list[int]:
    """Return the species with the item's rank in the numeric section with the most distinct
    numbers.
    """
    numeric = [
        column
        for section, column in zip(table.sections, table.columns, strict=True)
        if section.numeric
    ]
    numbers = [values[0] for values in max(numeric, key=lambda column: len(set(column)))]
    guesses = [0] * len(numbers)
    for mine, theirs in zip(
        np.argsort(numbers, kind="stable"), np.argsort(stats, kind="stable"), strict=True
    ):
        guesses[int(mine)] = int(theirs)
    return guesses


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ([], "a query takes 1 to 1024 conditions, got 0"),
        ([value("Kind", "Bug")], 'there is no section "Kind"; sections: Type, Base Stats'),
        ([value("Type", "bug")], 'section "Type" has no value "bug"'),
        (
            [value("Base Stats", "3")],
            "section \"Base Stats\" takes conditions of type 'numeric' only",
        ),
        (
            [{"type": "numeric", "section": "Type", "comparator": ">", "threshold": 3}],
            "takes conditions of type 'value' only",
        ),
        (
            [{"type": "numeric", "section": "Generation"}],
            "a condition of type numeric takes section, comparator and threshold",
        ),
        ([value("Type")], "a condition of type value takes section, 1 to 1024 values and exclude"),
        ([value("Type", "Bug", threshold=3)], "a condition of type value takes section"),
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


def test_options_are_checked() -> None:
    for options, message in {
        ("items", 7): r"items must be an integer in \[8, 100000\], got 7",
        ("items", 1026): r"items must be an integer in \[8, 1025\], got 1026",
        ("knowledge", "some"): "knowledge must be one of intensive, free, got 'some'",
        ("source", "web"): "source must be one of species, synthetic, got 'web'",
        ("style", "short"): "style must be one of concise, verbose, got 'short'",
        ("sections", "type,size"): "sections must be one of all, type, stats, .*, got 'size'",
    }.items():
        with pytest.raises(ValueError, match=message):
            ItemsConfig(**dict([options]))  # type: ignore[arg-type]
    config = ItemsConfig(knowledge="intensive", sections="other,stats", items=1025)
    table = config.table(np.random.default_rng(0))
    assert [section.name for section in table.sections] == ["Base Stats", "Other"]
    with pytest.raises(
        ValueError, match="no item can be told from the others by its generation sections"
    ):
        list(
            ItemsConfig(sections="generation").targets(
                ItemsConfig(sections="generation").table(np.random.default_rng(0)),
                np.random.default_rng(0),
            )
        )
    assert dumps({"a": "é"}) == '{"a": "é"}'
