"""Write docs/results.md: reference results, and the submissions in docs/results.

`python docs/build_results.py --play` plays what runs/reference lacks; rerun it after an interruption.
Models play once `make learn` and `make rl` have trained them. Without `--play` the script only
rewrites the page from the files in docs/results.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from math import sqrt
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import agentgym
from agentgym.assemble.registry import Entry
from agentgym.envs.loca.task import OfficeTask
from agentgym.oracles import ARMS
from agentgym.play.env import DEFAULT_RESULT_CHARS
from agentgym.text.tokens import counter
from agentgym.training.evaluation import (
    Ablation,
    Interval,
    effects,
    group_by,
    load_results,
    log_of,
    run_ablation,
    wilson,
)
from agentgym.training.evaluation.ablation import cell_of
from agentgym.training.evaluation.scoring import Result
from agentgym.training.evaluation.study_folder import column_of
from agentgym.training.evaluation.submission import SPLIT, CellCounts, Submission, objections
from agentgym.training.rollout import PolicyConfig
from agentgym.training.rollout.models.sampling import ModelOptions
from agentgym.training.rollout.storage import write_text

DOCS = Path(__file__).parent
RUNS, FILES = Path("runs/reference"), DOCS / "results"
PAGE, TEXT, PROFILES = DOCS / "results.md", FILES / "page.txt", FILES / "profiles.json"
# Deficits at which the control agent neither fails nor succeeds in most worlds.
CONTROL = "control:planning=0.1:tracking=0.05:distraction=0.01"
POLICIES = [PolicyConfig("oracle"), PolicyConfig("random"), PolicyConfig(CONTROL, label="control")]
SCRATCH = {"from scratch": "runs/learn"}
SMOLLM2 = {
    "SmolLM2": "runs/rl/start0/base",
    "SmolLM2, cloned": "runs/rl/start0",
    "SmolLM2, GRPO": "runs/rl/reward0",
}
# Their episodes have hundreds of turns, take seconds, or differ from another preset's only in size.
LONG = re.compile(r"-(long|extreme|k[if]-[cv]|n\d+)-v0$|SearchWorld-(small|medium|full)-v0$")
# A run needs an axis, and no preset sets this option.
FIXED = "max_result_chars"
SIZES = {"horizon": "{:,} turns", "length": "{:,} tokens", FIXED: ""}
LETTERS = {"P": "plan", "S": "state", "H": "history"}


def studies() -> dict[str, tuple[dict[str, Any], list[PolicyConfig]]]:
    """Return the settings and policies of each study, by the name of its folder and its file."""
    found = {}
    for entry in agentgym.worlds():
        world = short(entry)
        if issubclass(entry.world, OfficeTask):  # its presets set only the length
            found[world] = study([world], axis="length", horizons=(8_000, 32_000)), POLICIES
            continue
        found[world] = study([world], horizons=(4, 8, 16)), POLICIES
        family = [one for one in agentgym.worlds(presets=True) if one.source == entry.source]
        presets = [short(one) for one in family if one.options and not LONG.search(one.id)]
        fixed = study(presets, axis=FIXED, horizons=(DEFAULT_RESULT_CHARS,))
        found[f"{world}-presets"] = fixed, POLICIES
    six = study(["ListWorld"], {"items": 6}, axis="removals", horizons=(1, 2, 3, 4, 5))
    found["scratch"] = six, models(SCRATCH)
    python = study(["ListWorld"], {"dialect": "python", "max_failed_rounds": 1}, horizons=(2, 3, 4))
    found["smollm2"] = python, models(SMOLLM2, max_new_tokens=24, batch_size=64)
    return dict(sorted(found.items(), key=lambda item: "presets" not in item[0]))  # slow ones first


def short(entry: Entry) -> str:
    return entry.id.removeprefix("agentgym/").removesuffix("-v0")


def study(
    worlds: list[str], options: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "worlds": worlds,
        "arms": ARMS,
        "options": {"": {"split": SPLIT, **(options or {})}},
        **more,
    }


def models(folders: Mapping[str, str], **options: Any) -> list[PolicyConfig]:
    """Return the models that are trained already."""
    model = ModelOptions(**options)
    trained = {label: name for label, name in folders.items() if Path(name, "config.json").exists()}
    return [PolicyConfig(name, label=label, model=model) for label, name in trained.items()]


def play(
    name: str, settings: dict[str, Any], policies: list[PolicyConfig], episodes: int
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Play a study and write its submission; return its processor seconds and profiles."""
    out, path = RUNS / name, FILES / f"{name}.json"
    for policy in policies:
        before = _seconds()
        try:
            run_ablation(Ablation(**settings, policy=policy, seeds=episodes), out, workers=1)
        finally:
            times = _read(out / "seconds.json")
            times[policy.column] = round(times.get(policy.column, 0) + _seconds() - before, 1)
            write_text(out / "seconds.json", json.dumps(times))
    submission = Submission.of(out)
    if reasons := list(objections(submission, out, replays=0)):
        raise ValueError("; ".join(reasons))
    # A rerun must not claim that its commit played.
    if not path.exists() or Submission.load(path).log != submission.log:
        write_text(path, submission.to_json())
    return times, profiles(out)


def _seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def profiles(out: Path) -> dict[str, list[str]]:
    """Return rows of the table of profiles, by world; none for trained models."""
    lengths: dict[str, dict[int, list[tuple[int, int]]]] = {}
    cl100k = counter("cl100k_base")
    for trajectory in log_of(out):
        cell = cell_of(trajectory)
        if cell.policy == "oracle" and not cell.arm:
            last = cl100k.count_chat(trajectory.steps[-1].chat)
            sizes = lengths.setdefault(cell.world, {})
            sizes.setdefault(cell.horizon, []).append((len(trajectory.steps), last))
    control = [row for row in load_results(out) if row.policy == "control"]
    gains = effects(control, ("world",), "success")
    rows = {}
    for world, sizes in lengths.items():
        ends = sorted({min(sizes), max(sizes)})
        means = [[fmean(values) for values in zip(*sizes[size], strict=True)] for size in ends]
        texts = [
            " to ".join(f"{value:,.0f}" for value in pair) for pair in zip(*means, strict=True)
        ]
        texts += [shares(gains[world, letter], signed=True) for letter in LETTERS]
        rows[world] = [
            *texts,
            slope([row for row in control if row.world == world and not row.arm]),
        ]
    return rows


def slope(results: list[Result]) -> str:
    """Return the change of success from the smallest size to the largest (Newcombe 1998, method 10)."""
    groups = group_by(results, "horizon")
    if len(groups) == 1:
        return ""
    rates = {
        size: wilson(sum(row.success for row in some), len(some)) for size, some in groups.items()
    }
    first, last = rates[min(rates)], rates[max(rates)]
    change = last.value - first.value
    low = change - sqrt((last.value - last.low) ** 2 + (first.high - first.value) ** 2)
    high = change + sqrt((last.high - last.value) ** 2 + (first.value - first.low) ** 2)
    return shares(Interval(change, low, high), signed=True)


def shares(interval: Interval, signed: bool = False) -> str:
    form = "{:+.0f} [{:+.0f}, {:+.0f}]" if signed else "{:.0f} [{:.0f}, {:.0f}]"
    return form.format(100 * interval.value, 100 * interval.low, 100 * interval.high)


def page() -> str:
    """Return the page of the files in docs/results."""
    paths = [path for path in sorted(FILES.glob("*.json")) if path != PROFILES]
    files = {path.stem: Submission.load(path) for path in paths}
    measured, shortcuts = _read(PROFILES), best_shortcuts()
    header = ["world", "turns", "last prompt", *LETTERS.values(), "slope", "shortcut"]
    rows = [[w, *cells, shortcuts.get(w, "")] for w, cells in sorted(measured["profiles"].items())]
    oracle = [cell for each in files.values() for cell in each.cells if cell.policy == "oracle"]
    solved, episodes = (
        sum(getattr(cell, name) for cell in oracle) for name in ("solved", "episodes")
    )
    return TEXT.read_text(encoding="utf-8").format(
        oracle=f"{solved:,} of {episodes:,} episodes",
        profiles=table(header, rows),
        scores="\n\n".join(scores(files)),
        unmeasured=unmeasured(files),
        files=listing(files, measured["seconds"]),
    )


def best_shortcuts() -> dict[str, str]:
    """Return the best shortcut's score by world, from the page of the audit."""
    text = (DOCS / "audit.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \|(.*)\| \w{8} \|$", text, re.MULTILINE)
    return {world: cells.split("|")[3].strip() for world, cells in rows}


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def scores(files: Mapping[str, Submission]) -> list[str]:
    """Return a section for each world: its tasks and policies by arm."""
    worlds: dict[str, dict[tuple[Any, ...], dict[str, CellCounts]]] = {}
    for name, submission in files.items():
        for cell in submission.cells:
            world, order = task(cell, submission)
            own = cell.policy if name in studies() else f"{cell.policy} ({name})"
            worlds.setdefault(world, {}).setdefault((*order, own), {})[cell.arm] = cell
    header = ["task", "policy", *(arm or "none" for arm in ARMS)]
    parts = []
    for world in sorted(worlds):
        rows = []
        for (*_, text, policy), cells in worlds[world].items():
            if policy != "oracle" or any(c.solved < c.episodes for c in cells.values()):
                rates = [
                    wilson(cells[a].solved, cells[a].episodes) if a in cells else None for a in ARMS
                ]
                rows.append([text, policy, *(shares(rate) if rate else "" for rate in rates)])
        parts += [f"### {world}", table(header, rows)]
    return parts


def task(cell: CellCounts, submission: Submission) -> tuple[str, tuple[Any, ...]]:
    """Return the world of a cell, and its preset, size and options with their place in the table."""
    run = next(run for run in submission.runs if holds(run, cell))
    world, _, preset = cell.world.partition("-")
    size = SIZES.get(run["axis"], run["axis"] + "={}").format(cell.horizon)
    options = {**run["options"].get("", {}), **run["options"].get(cell.world, {})}
    set_here = [f"{name}={value}" for name, value in options.items() if name != "split"]
    context = cell.context if cell.context != "none" else ""
    text = ", ".join(filter(None, [preset, size, *set_here, context]))
    return world, (bool(preset), bool(set_here), run["axis"], cell.horizon, text)


def holds(run: Mapping[str, Any], cell: CellCounts) -> bool:
    inside = cell.world in run["worlds"] and cell.horizon in run["horizons"]
    return inside and cell.arm in run["arms"] and column_of(run) == cell.policy


def unmeasured(files: Mapping[str, Submission]) -> str:
    """List this project's worlds and presets without results, by what is missing."""
    there: set[Any] = set()
    for submission in files.values():
        for run in submission.runs:
            there |= {
                *run["worlds"],
                *((w, run["axis"], h) for w in run["worlds"] for h in run["horizons"]),
            }
    missing: dict[str, list[str]] = {}
    for entry in agentgym.worlds(presets=True):
        world, _, preset = short(entry).partition("-")
        as_size = any((world, name, value) in there for name, value in entry.options.items())
        if (
            entry.path.startswith("agentgym.envs.")
            and short(entry) not in there
            and not (len(entry.options) == 1 and as_size)
        ):
            missing.setdefault(world, []).append(preset or "its sizes")
    by_names: dict[str, list[str]] = {}
    for world, names in missing.items():
        by_names.setdefault(", ".join(names), []).append(world)
    return "\n".join(
        f"* {', '.join(sorted(worlds))}: {names}" for names, worlds in by_names.items()
    )


def listing(files: Mapping[str, Submission], seconds: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table of the files: their policies, instances, processor time and commit."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, submission in files.items():
        seeds = sorted({run["seeds"] for run in submission.runs})
        instances = " to ".join(str(count) for count in (min(seeds), max(seeds)))
        code = f"{submission.agentgym}, {submission.commit[:8] or 'unknown'}"
        groups.setdefault((", ".join(submission.policies), instances, code), []).append(name)
    rows = []
    for (policies, instances, code), names in groups.items():
        used = sum(sum(seconds.get(name, {}).values()) for name in names)
        rows.append([", ".join(names), policies, instances, f"{used / 60:,.0f} min", code])
    return table(
        ["files in docs/results", "policies", "instances", "processor time", "agentgym, commit"],
        rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--play", action="store_true", help="play what runs/reference lacks")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with one study")
    parser.add_argument("--episodes", type=int, default=20, help="instances of each cell")
    parser.add_argument(
        "--study", action="append", default=[], help="studies to play instead of all"
    )
    given = parser.parse_args()
    chosen = {
        name: each for name, each in studies().items() if name in given.study or not given.study
    }
    measured = {"seconds": {}, "profiles": {}, **_read(PROFILES)}
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        waiting = {}
        for name, (settings, policies) in chosen.items():
            if given.play and policies:
                waiting[pool.submit(play, name, settings, policies, given.episodes)] = name
        for done in as_completed(waiting):
            name = waiting[done]
            if error := done.exception():
                print(f"{name}: {error!r}; run the command again", flush=True)
                continue
            seconds, rows = done.result()
            measured["seconds"][name] = seconds
            measured["profiles"] |= rows
            write_text(PROFILES, json.dumps(measured, indent=1, sort_keys=True) + "\n")
            print(f"{name}: {sum(seconds.values()):,.0f} s", flush=True)
    write_text(PAGE, page())


if __name__ == "__main__":
    main()
