"""Write docs/controls.md: control experiments for the oracle method, and interval coverage.

`PYTHONPATH=. python docs/build_controls.py [WORLD ...]` plays the named worlds, or all worlds.
Worlds with results in runs/controls are not played again. `--coverage N` also measures the
coverage in N simulated studies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import asdict
from math import comb
from pathlib import Path
from typing import Any

import agentgym
from agentgym.training.evaluation import Interval, percent
from tests.training.evaluation.controls import DEFICITS, METRICS, NOISE, Control, run_controls
from tests.training.evaluation.synthetic import coverage

FOLDER = Path("runs/controls")
PAGE = Path("docs/controls.md")
SEEDS = 20
NAMES = {"P": "planning", "S": "tracking", "H": "distraction"}
# Worlds in which a known deficit is not found, with the reason.
REASONS = {
    "AcademicWarning": (
        "the distraction deficit is not found, because the plan is short at this size, so the chat "
        "contains little history that could distract the agent."
    )
}

HEAD = """# Control experiments for the oracle method

<!-- Written by `docs/build_controls.py`; edit that file instead. -->

[Placebos and wrong hints](arms.md) show *why* an oracle helps.

"""


TAIL = """
## Episodes with the same opening count once

Some policies, such as models at temperature 0, always give the same reply to the same prompt. Seeds
with the same first prompt and reply are therefore treated as one cluster. In simulations with 20
seeds and 1 to 20 different openings, at least 93% of the intervals contain the true rate and
effect (`tests/training/evaluation/test_clusters.py`).
"""


def commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def worlds() -> list[str]:
    ids = (entry.id for entry in agentgym.worlds())
    return [name.removeprefix("agentgym/").removesuffix("-v0") for name in ids]


def play(names: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = FOLDER / f"{name}.json"
        if not path.exists():
            control = run_controls(name, SEEDS)
            stored = {"commit": commit(), **asdict(control)}
            path.write_text(json.dumps(stored) + "\n", encoding="utf-8")
            print(name, {letter: control.found(letter) for letter in NAMES}, flush=True)


def read(path: Path) -> Control:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    del data["commit"]
    for agent in ("planted", "null"):
        data[agent] = {
            letter: {metric: Interval(**values) for metric, values in metrics.items()}
            for letter, metrics in data[agent].items()
        }
    return Control(**data)


def page(
    controls: list[Control], covered: dict[str, float], studies: int, commits: set[str]
) -> str:
    complete = [c for c in controls if all(map(c.found, NAMES))]
    misses = [sum(part) for part in zip(*(c.false_findings() for c in controls), strict=True)]
    rates = ", ".join(
        f"{NAMES[letter]} {getattr(deficits, NAMES[letter])}"
        for letter, deficits in DEFICITS.items()
    )
    lines = [
        HEAD,
        "## Oracles detect known deficits\n",
        (
            "A scripted agent plays optimally except for one deficit (error "
            f"probabilities: {rates}). The agent plays {SEEDS} instances without and with the oracle that compensates "
            "for its deficit: the plan for planning, the state for tracking, and the pruned history for "
            "distraction (with the state in both arms). A deficit is found if the 95% confidence "
            "interval of the oracle's effect on success or on step accuracy is above 0. "
            f"All three deficits are found in {len(complete)} of {len(controls)} worlds. "
            f"The table was measured with seeds 0 to {SEEDS - 1} (commits {', '.join(sorted(commits))}; "
            "`PYTHONPATH=. python docs/build_controls.py`).\n"
        ),
        "| world | options | turns | planning | tracking | distraction |",
        "|---|---|---|---|---|---|",
    ]
    for c in controls:
        options = ", ".join(f"{name}={value}" for name, value in c.options.items()) or "defaults"
        cells = [
            f"{percent(c.planted[letter]['success'], signed=True)}; "
            f"{percent(c.planted[letter]['step_accuracy'], signed=True)}"
            f"{'' if c.found(letter) else ' (not found)'}"
            for letter in NAMES
        ]
        lines.append(f"| {c.world} | {options} | {c.steps:.1f} | {' | '.join(cells)} |")
    lines.append(
        "\nEach cell shows the oracle's effects on success and on step accuracy, in percentage points.\n"
    )
    lines += [f"* {name}: {why}" for name, why in REASONS.items()]
    lines += [
        "\n## Oracles show no effect on an agent that hints cannot help\n",
        (
            f"The noisy agent errs in {NOISE:.0%} of its steps whatever it observes, with different random "
            f"draws in each arm. For {misses[0]} of {misses[1]} effects (of the plan, state and history oracles on "
            f"{' and '.join(METRICS)} in {len(controls)} worlds), the interval excludes 0. "
            f"By chance, up to {most_misses(misses[1])} intervals may exclude 0 (99.9% quantile of Binomial({misses[1]}, 0.05)).\n"
        ),
    ]
    if covered:
        lines += [
            "## Confidence intervals have the stated coverage\n",
            (
                f"The table summarises {studies:,} synthetic studies with known success probabilities. Each study "
                "has 20 to 40 seeds, one to three horizons, six arms and two contexts, and is evaluated by the "
                "functions that evaluate real studies "
                "(`PYTHONPATH=. python docs/build_controls.py --coverage N`):\n"
            ),
            "| estimate | coverage of the 95% interval |",
            "|---|---|",
            *(f"| {kind} | {share:.1%} |" for kind, share in covered.items()),
        ]
    return "\n".join(lines).rstrip() + "\n" + TAIL


def most_misses(tests: int) -> int:
    """Return the 99.9% quantile of the number of false findings among tests at the 0.05 level."""
    total, misses = 0.0, -1
    while total < 0.999:
        misses += 1
        total += comb(tests, misses) * 0.05**misses * 0.95 ** (tests - misses)
    return misses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worlds", nargs="*", help="short ids; all by default")
    parser.add_argument("--coverage", type=int, default=0, metavar="N", help="studies to simulate")
    options = parser.parse_args()
    play(options.worlds or worlds())
    simulated = FOLDER / "coverage.json"
    if options.coverage:
        shares = {"studies": options.coverage, "shares": coverage(options.coverage)}
        simulated.write_text(json.dumps(shares) + "\n", encoding="utf-8")
    stored = json.loads(simulated.read_text()) if simulated.exists() else {}
    paths = [path for name in worlds() if (path := FOLDER / f"{name}.json").exists()]
    commits = {json.loads(path.read_text())["commit"] for path in paths}
    text = page(list(map(read, paths)), stored.get("shares", {}), stored.get("studies", 0), commits)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
