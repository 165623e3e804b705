"""Build the page docs/results.md from the files in docs/results, for `docs/build_results.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import agentgym
from agentgym.assemble.registry import Entry
from agentgym.oracles import ARMS, sort_arms
from agentgym.play.env import DEFAULT_RESULT_CHARS
from agentgym.training.evaluation import Interval, wilson
from agentgym.training.evaluation.study_folder import column_of
from agentgym.training.evaluation.submission import CellCounts, Submission

DOCS = Path(__file__).parent
FILES = DOCS / "results"
TEXT, PROFILES = FILES / "page.txt", FILES / "profiles.json"
# The option that runs of a fixed preset nominally vary, because no preset sets this option.
FIXED = "max_result_chars"
SIZES = {"horizon": "{:,} turns", "length": "{:,} tokens"}
ESCAPED = str.maketrans({"|": r"\|", "<": "&lt;", "\n": " ", "\r": " "})
# Settings that tasks on the page show if they differ from the usual values.
USUAL = {"hint_scope": "persistent", "shots": 0, "oracle_options": {}, "window": None, "samples": 1}
PROFILE = ("world", "turns", "last prompt", "plan", "state", "history", "slope", "shortcut")


def page() -> str:
    """Return the text of the page."""
    paths = [path for path in sorted(FILES.glob("*.json")) if path != PROFILES]
    files = {path.stem: Submission.load(path) for path in paths}
    logs: dict[str, str] = {}
    for name, submission in files.items():
        if (first := logs.setdefault(submission.log, name)) != name:
            raise ValueError(
                f"{first}.json and {name}.json are of the same run; delete one of them"
            )
    measured = json.loads(PROFILES.read_text(encoding="utf-8"))
    shortcuts = best_shortcuts()
    rows = [[w, *cells, shortcuts.get(w, "")] for w, cells in sorted(measured["profiles"].items())]
    oracle = [cell for each in files.values() for cell in each.cells if cell.policy == "oracle"]
    solved, episodes = sum(cell.solved for cell in oracle), sum(cell.episodes for cell in oracle)
    return TEXT.read_text(encoding="utf-8").format(
        oracle=f"{solved:,} of {episodes:,} episodes",
        profiles=table(PROFILE, rows),
        scores="\n\n".join(scores(files, measured["seconds"])),
        unmeasured="\n".join(unmeasured(files)),
        files=listing(files, measured["seconds"]),
    )


def best_shortcuts() -> dict[str, str]:
    """Return the best shortcut's score by world, from the audit page."""
    text = (DOCS / "audit.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \|(.*)\| \w{8} \|$", text, re.MULTILINE)
    return {world: cells.split("|")[3].strip() for world, cells in rows}


def table(header: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [list(header), ["---"] * len(header)]
    for row in rows:  # the names in a submission are another person's
        lines.append([cell.translate(ESCAPED) for cell in row])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def scores(files: Mapping[str, Submission], own: Mapping[str, Any]) -> Iterator[str]:
    """Yield each world's heading and table; rows from other contributors show the file name."""
    worlds: dict[str, dict[tuple[Any, ...], dict[str, CellCounts]]] = {}
    for name, submission in files.items():
        for cell in submission.cells:
            policy = cell.policy if name in own else f"{cell.policy} ({name})"
            row = (*task(cell, submission), policy)
            world = plain(cell.world).partition("-")[0]
            worlds.setdefault(world, {}).setdefault(row, {})[cell.arm] = cell
    for world, rows in sorted(worlds.items()):
        arms = sort_arms({*ARMS}.union(*rows.values()))
        shown = []
        for (*_, text, policy), cells in sorted(rows.items()):
            if any(
                cell.policy != "oracle" or cell.solved < cell.episodes for cell in cells.values()
            ):
                shown.append([text, policy, *(rate(cells.get(arm)) for arm in arms)])
        yield f"### {world}"
        yield table(("task", "policy", *(arm or "none" for arm in arms)), shown)


def task(cell: CellCounts, submission: Submission) -> tuple[Any, ...]:
    """Return a cell's sort keys, and its preset, size and options as text."""
    run = next(run for run in submission.runs if contains(run, cell))
    world = plain(cell.world)
    preset = ", ".join(name.partition("-")[2] for name in twins().get(world, [world]))
    size = SIZES.get(run["axis"], run["axis"] + "={}").format(cell.horizon)
    if (run["axis"], cell.horizon) == (FIXED, DEFAULT_RESULT_CHARS):
        size = ""
    options = {**run["options"].get("", {}), **run["options"].get(cell.world, {})}
    given = [f"{name}={value}" for name, value in options.items() if name != "split"]
    given += [f"{name}={run[name]}" for name, usual in USUAL.items() if run[name] != usual]
    context = "" if cell.context == "none" else cell.context
    text = ", ".join(filter(None, [preset, size, *given, context]))
    order = [short(entry) for entry in agentgym.worlds(presets=True)]
    place = order.index(world) if world in order else len(order)
    return bool(preset), bool(given), place, cell.horizon, text


def contains(run: Mapping[str, Any], cell: CellCounts) -> bool:
    inside = cell.world in run["worlds"] and cell.horizon in run["horizons"]
    inside = inside and cell.arm in run["arms"] and cell.context in run["contexts"]
    return inside and cell.policy == column_of(run)


def rate(cell: CellCounts | None) -> str:
    if cell is None:
        return ""
    lost = f" ({cell.lost} lost)" if cell.lost else ""
    return shares(wilson(cell.solved, cell.episodes)) + lost


def shares(interval: Interval, signed: bool = False) -> str:
    form = "{:+d} [{:+d}, {:+d}]" if signed else "{:d} [{:d},\u00a0{:d}]"
    return form.format(*(round(100 * end) for end in (interval.value, interval.low, interval.high)))


def unmeasured(files: Mapping[str, Submission]) -> Iterator[str]:
    """Yield this project's worlds without results; worlds with the same presets share a line."""
    sizes: dict[str, list[dict[str, int]]] = {}
    for submission in files.values():
        for run in submission.runs:
            for world in map(plain, run["worlds"]):
                sizes.setdefault(world, []).extend({run["axis"]: size} for size in run["horizons"])
    missing: dict[str, list[str]] = {}
    for entry in agentgym.worlds(presets=True):
        world, _, preset = short(entry).partition("-")
        played = any(name in sizes for name in twins()[short(entry)])
        there = played or entry.options in sizes.get(world, [])
        if entry.path.startswith("agentgym.envs.") and not there:
            missing.setdefault(world, []).append(preset or "no preset")
    alike: dict[str, list[str]] = {}
    for world, presets in missing.items():
        alike.setdefault(", ".join(presets), []).append(world)
    for text, names in alike.items():
        yield f"* {', '.join(sorted(names))}: {text}."


@cache
def twins() -> dict[str, list[str]]:
    """Map each world or preset to all names with the same class and options."""
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in agentgym.worlds(presets=True):
        options = json.dumps(entry.options, sort_keys=True)
        groups.setdefault((entry.source, options), []).append(short(entry))
    return {name: names for names in groups.values() for name in names}


def short(entry: Entry) -> str:
    return plain(entry.id)


def plain(name: str) -> str:
    """Return a world's name without the namespace and version, which a run may spell out."""
    return name.removeprefix("agentgym/").removesuffix("-v0")


def listing(files: Mapping[str, Submission], seconds: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table of the result files, with policies, instances, CPU time, version and commit."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, submission in files.items():
        instances = str(min(run["seeds"] for run in submission.runs))
        code = f"{submission.agentgym}, {submission.commit[:8] or 'unknown'}"
        policies = []
        for label, facts in submission.policies.items():
            told = name in seconds or facts.get("policy") == label
            policies.append(label if told else f"{label} = {facts.get('policy')}")
        groups.setdefault(("; ".join(policies), instances, code), []).append(name)
    rows = []
    for (players, instances, code), names in groups.items():
        used = sum(sum(seconds.get(name, {}).values()) for name in names)
        minutes = f"{used / 60:.0f} min" if used else ""
        rows.append([", ".join(names), players, instances, minutes, code])
    header = ("files", "policies", "instances", "processor time", "agentgym, commit")
    return table(header, rows)
