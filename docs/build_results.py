"""Write docs/results.md: reference results, and submissions in docs/results.

`python docs/build_results.py --play` plays what runs/reference lacks; rerun it after an interruption.
`--policy NAME=FOLDER` adds a trained model, which plays the worlds of `--world`. Without `--play` it
only rewrites the page from the files in docs/results.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import agentgym
from agentgym.envs.loca.task import OfficeTask
from agentgym.oracles import ARMS
from agentgym.text.tokens import counter
from agentgym.training.evaluation import (
    Ablation,
    effects,
    group_by,
    load_results,
    log_of,
    percent,
    run_ablation,
    wilson,
)
from agentgym.training.evaluation.ablation import cell_of
from agentgym.training.evaluation.submission import SPLIT, CellCounts, Submission, objections
from agentgym.training.rollout import PolicyConfig
from agentgym.training.rollout.storage import write_text

DOCS = Path(__file__).parent
RUNS = Path("runs/reference")
PAGE, FILES, PROFILES = DOCS / "results.md", DOCS / "results", DOCS / "results" / "profiles.json"
# Deficits at which the control agent neither fails nor succeeds in most worlds.
POLICIES = ("oracle", "random", "control:planning=0.1:tracking=0.05:distraction=0.01")
LETTERS = {"P": "plan", "S": "state", "H": "history"}

HEAD = """# Reference results: what should my model score?

<!-- Written by `python docs/build_results.py`. -->

Percentage of instances solved, with 95 % Wilson intervals, on the split `test`. A lost episode counts as unsolved. The size is
the number of turns of an optimal policy, in offices the length of the task's data in tokens. `random` plays random legal calls,
and `control` is an agent with planted deficits in planning, tracking and attention. The *best shortcut* is the strongest policy
of the [audit](audit.md), which does not do the task. To add a row, [submit a run](studies.md#submissions).
"""
PROFILE_HEAD = """
## Profiles of the worlds

Means over the oracle's episodes in arm none: turns, and the tokens of the last prompt (`cl100k_base`). The gains are those of
the control agent, in percentage points over all sizes, paired by instance, and the *slope* is the change of its success in arm
none from the smallest size to the largest.
"""


def settings() -> dict[str, dict[str, Any]]:
    """Return the settings of each study; every one covers all arms."""
    names: dict[bool, list[str]] = {True: [], False: []}
    for entry in agentgym.worlds():
        name = entry.id.removeprefix("agentgym/").removesuffix("-v0")
        names[issubclass(entry.world, OfficeTask)].append(name)
    shared = {"arms": ARMS, "options": {"": {"split": SPLIT}}}
    return {
        "research": {"worlds": names[False], "horizons": (4, 8, 16), **shared},
        "office": {"worlds": names[True], "horizons": (8_000, 32_000), "axis": "length", **shared},
    }


def play(policies: list[PolicyConfig], worlds: list[str], seeds: int) -> None:
    profiles = json.loads(PROFILES.read_text(encoding="utf-8")) if PROFILES.exists() else {}
    for study, given in settings().items():
        chosen = [name for name in given["worlds"] if not worlds or name in worlds]
        out = RUNS / study
        for policy in policies if chosen else ():
            before = _seconds()
            ablation = Ablation(**{**given, "worlds": chosen}, policy=policy, seeds=seeds)
            run_ablation(ablation, out, 1)
            seconds = profiles.setdefault("seconds", {})
            key = f"{policy.column}: {study}"
            seconds[key] = round(seconds.get(key, 0) + _seconds() - before, 1)
        if chosen:
            submission = Submission.of(out)
            if reasons := list(objections(submission, out, replays=0)):
                raise SystemExit("\n".join(reasons))
            write_text(FILES / f"{study}.json", submission.to_json())
            profiles |= profile(out)
            write_text(PROFILES, json.dumps(profiles, indent=1, sort_keys=True) + "\n")


def _seconds() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def profile(out: Path) -> dict[str, list[str]]:
    """Return the columns of the second table by world."""
    turns: dict[str, list[int]] = {}
    tokens: dict[str, list[int]] = {}
    cl100k = counter("cl100k_base")
    for trajectory in log_of(out):
        cell = cell_of(trajectory)
        if cell.policy == "oracle" and not cell.arm:
            turns.setdefault(cell.world, []).append(len(trajectory.steps))
            last = trajectory.steps[-1].chat
            tokens.setdefault(cell.world, []).append(cl100k.count_chat(last))
    rows = {}
    results = [row for row in load_results(out) if row.policy.startswith("control")]
    gains = effects(results, ("world",), "success")
    for world, some in group_by(results, "world").items():
        bare = {
            size: wilson(sum(row.success for row in each), len(each))
            for size, each in group_by([row for row in some if not row.arm], "horizon").items()
        }
        slope = bare[max(bare)].value - bare[min(bare)].value
        rows[world] = [
            f"{fmean(turns[world]):.1f}",
            f"{fmean(tokens[world]):,.0f}",
            *(percent(gains[world, letter], signed=True) for letter in LETTERS),
            f"{100 * slope:+.0f}",
        ]
    return rows


def shortcuts() -> dict[str, str]:
    """Return the best shortcut's score by world, from the page of the audit."""
    text = (DOCS / "audit.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\w+) \|(.*)\| \w{8} \|$", text, re.MULTILINE)
    return {world: cells.split("|")[3].strip() for world, cells in table}


def page() -> str:
    parts = [HEAD.strip()]
    for path in sorted(FILES.glob("*.json")):
        if path != PROFILES:
            submission = Submission.load(path)
            commit = submission.commit[:8] or "unknown"
            parts.append(f"## {path.stem}\n\nagentgym {submission.agentgym}, commit {commit}.")
            parts.append("\n".join(_table(submission.cells)))
    profiles = json.loads(PROFILES.read_text(encoding="utf-8"))
    seconds = profiles.pop("seconds")
    parts.append(PROFILE_HEAD.strip())
    header = ["world", "turns", "last prompt", *LETTERS.values(), "slope", "best shortcut"]
    best = shortcuts()
    rows = [[world, *profiles[world], best.get(world, "")] for world in sorted(profiles)]
    parts.append("\n".join(_lines(header, rows)))
    used = "; ".join(f"{name} {value:,.0f} s" for name, value in sorted(seconds.items()))
    parts.append(f"Processor time of one thread, with scoring: {used}.")
    return "\n\n".join(parts) + "\n"


def _table(cells: list[CellCounts]) -> Iterator[str]:
    rows = []
    groups = group_by(cells, "world", "horizon", "policy")
    for (world, size, policy), some in sorted(groups.items()):
        by_arm = {cell.arm: cell for cell in some}
        shown = {arm: percent(wilson(cell.solved, cell.episodes)) for arm, cell in by_arm.items()}
        name = policy.partition(":")[0]
        rows.append([world, f"{size:,}", name, *(shown.get(arm, "") for arm in ARMS)])
    return _lines(["world", "size", "policy", *(arm or "none" for arm in ARMS)], rows)


def _lines(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    for cells in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--play", action="store_true")
    parser.add_argument("--policy", action="append", default=[])
    parser.add_argument("--world", action="append", default=[])
    parser.add_argument("--episodes", type=int, default=20)
    given = parser.parse_args()
    if given.play:
        named = [policy.partition("=") for policy in given.policy]
        own = [PolicyConfig(name, label=label) for label, _, name in named]
        play(own or [PolicyConfig(name) for name in POLICIES], given.world, given.episodes)
    write_text(PAGE, page())
