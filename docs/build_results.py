"""Write docs/results.md: the reference results and the submissions in docs/results.

`python docs/build_results.py --play` plays the episodes missing from runs/reference; repeat the
command after an interruption. Models play only after `make learn` and `make rl` have trained them.
Without `--play` the script only rewrites the page from the files in docs/results.
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

from results_page import DOCS, FILES, FIXED, PROFILES, page, shares, short

import agentgym
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
from agentgym.training.evaluation.submission import SPLIT, Submission, objections
from agentgym.training.rollout import PolicyConfig
from agentgym.training.rollout.models.sampling import ModelOptions
from agentgym.training.rollout.storage import write_text

RUNS = Path("runs/reference")
# Deficits with which the control agent solves some, but not all, instances of most worlds.
CONTROL = "control:planning=0.1:tracking=0.05:distraction=0.01"
POLICIES = [PolicyConfig("oracle"), PolicyConfig("random"), PolicyConfig(CONTROL, label="control")]
SCRATCH = {"from scratch": "runs/learn"}
SMOLLM2 = {
    "SmolLM2": "runs/rl/start0/base",
    "start": "runs/rl/start0",
    "reward": "runs/rl/reward0",
}
# Only `--study` plays these worlds: their episodes have hundreds of turns, take seconds, or differ
# only in size from the episodes of another preset.
LONG = re.compile(r"-(long|extreme|k[if]-[cv]|n\d+|lengths)$|SearchWorld-(small|medium|full)$")
OTHER_LENGTHS = (16_000, 64_000, 96_000, 128_000, 256_000)


def studies() -> dict[str, tuple[dict[str, Any], list[PolicyConfig]]]:
    """Return a mapping from study names to settings and policies."""
    found = {}
    for entry in agentgym.worlds():
        world = short(entry)
        if issubclass(entry.world, OfficeTask):  # presets of office tasks set only the length
            found[world] = study([world], axis="length", horizons=(8_000, 32_000)), POLICIES
            others = study([world], axis="length", horizons=OTHER_LENGTHS)
            found[f"{world}-lengths"] = others, POLICIES
            continue
        found[world] = study([world], horizons=(4, 8, 16)), POLICIES
        family = [one for one in agentgym.worlds(presets=True) if one.source == entry.source]
        presets = [short(one) for one in family if one.options]
        played = [preset for preset in presets if not LONG.search(preset)]
        groups = {f"{world}-presets": played} | {one: [one] for one in presets if one not in played}
        for name, names in groups.items():
            found[name] = study(names, axis=FIXED, horizons=(DEFAULT_RESULT_CHARS,)), POLICIES
    six = study(["ListWorld"], {"items": 6}, axis="removals", horizons=(1, 2, 3, 4, 5))
    found["scratch"] = six, models(SCRATCH)
    python = study(["ListWorld"], {"dialect": "python", "max_failed_rounds": 1}, horizons=(2, 3, 4))
    found["smollm2"] = python, models(SMOLLM2, max_new_tokens=24, batch_size=64)
    # Studies of presets are slow, so they start first.
    return dict(sorted(found.items(), key=lambda item: not item[0].endswith("presets")))


def study(worlds: list[str], options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "worlds": worlds,
        "arms": ARMS,
        "options": {"": {"split": SPLIT, **(options or {})}},
    } | more


def models(folders: Mapping[str, str], **options: Any) -> list[PolicyConfig]:
    """Return the models that are already trained."""
    model = ModelOptions(**options)
    trained = {label: name for label, name in folders.items() if Path(name, "config.json").exists()}
    return [PolicyConfig(name, label=label, model=model) for label, name in trained.items()]


def play(
    name: str, settings: dict[str, Any], policies: list[PolicyConfig], episodes: int
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Play a study and write its submission; return CPU seconds and rows of the profile table."""
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
    # Keep the stored commit if a rerun gives the same results.
    if not path.exists() or Submission.load(path).log != submission.log:
        write_text(path, submission.to_json())
    # The profile of an office task comes from its main study, not from its study of other lengths.
    return times, {} if name.endswith("-lengths") else profiles(out)


def _seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def profiles(out: Path) -> dict[str, list[str]]:
    """Return each world's row of the profile table."""
    lengths: dict[str, dict[int, list[tuple[int, int]]]] = {}
    cl100k = counter("cl100k_base")
    for trajectory in log_of(out):
        cell = cell_of(trajectory)
        if cell.policy == "oracle" and not cell.arm:
            last = cl100k.count_chat(trajectory.steps[-1].chat)
            sizes = lengths.setdefault(cell.world, {})
            sizes.setdefault(cell.horizon, []).append((len(trajectory.steps), last))
    control = [row for row in load_results(out) if row.policy == "control"]
    gains = effects(control, ("world",), "success") if control else {}
    rows = {}
    for world, sizes in lengths.items():
        ends = [zip(*sizes[size], strict=True) for size in sorted({min(sizes), max(sizes)})]
        turns, tokens = zip(*(map(fmean, end) for end in ends), strict=True)
        bare = [row for row in control if row.world == world and not row.arm]
        effect = [shares(gains[world, letter], signed=True) for letter in "PSH"]
        rows[world] = [span(turns), span(tokens), *effect, slope(bare)]
    return rows


def span(values: tuple[float, ...]) -> str:
    return " to ".join(f"{value:,.0f}" for value in values)


def slope(results: list[Result]) -> str:
    """Return the change in success from the smallest to the largest size (Newcombe 1998, method 10)."""
    groups = group_by(results, "horizon")
    if len(groups) == 1:
        return ""
    ends = groups[min(groups)], groups[max(groups)]
    first, last = (wilson(sum(row.success for row in some), len(some)) for some in ends)
    change = last.value - first.value
    low = change - sqrt((last.value - last.low) ** 2 + (first.high - first.value) ** 2)
    high = change + sqrt((last.high - last.value) ** 2 + (first.value - first.low) ** 2)
    return shares(Interval(change, low, high), signed=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--play", action="store_true", help="play what runs/reference lacks")
    add("--workers", type=int, default=1, help="processes, each with one study")
    add("--episodes", type=int, default=20, help="instances of each cell")
    add("--study", action="append", help="studies to play instead of all but the long presets")
    given = parser.parse_args()
    chosen = given.study or [name for name in studies() if not LONG.search(name)]
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        waiting = {}
        for name, (settings, policies) in studies().items():
            if given.play and policies and name in chosen:
                waiting[pool.submit(play, name, settings, policies, given.episodes)] = name
        for done in as_completed(waiting):
            name = waiting[done]
            if error := done.exception():
                print(f"{name}: {error!r}; run the command again", flush=True)
                continue
            seconds, rows = done.result()
            # Another command may have changed the file in the meantime.
            measured = {"seconds": {}, "profiles": {}, **_read(PROFILES)}
            measured["seconds"][name] = seconds
            measured["profiles"] |= rows
            write_text(PROFILES, json.dumps(measured, indent=1, sort_keys=True) + "\n")
            print(f"{name}: {sum(seconds.values()):,.0f} s", flush=True)
    write_text(DOCS / "results.md", page())


if __name__ == "__main__":
    main()
