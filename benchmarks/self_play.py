"""Self-play from scratch: `python benchmarks/self_play.py train SEED` for each seed, then `... rate`.

A small transformer clones a weak scripted player of PursuitWorld-match and goes on with GRPO
against itself, its past and its teacher. The league of its snapshots plays on held-out boards.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from agentgym.training.rl import LearnConfig, Learning

WORLD = "PursuitWorld-match"
OPTIONS = {"size": 4, "wall_density": 0.0}
TEACHER = "noisy:p=0.5"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["train", "rate"])
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs/self_play"))
    given = parser.parse_args()
    for seed in given.seeds:
        if given.command == "train":
            train(seed, given.out / str(seed))


def train(seed: int, out: Path) -> None:
    """Train one seed; an interrupted run resumes."""
    config = LearnConfig(
        world=WORLD,
        options={**OPTIONS, "split": "train"},
        teacher=TEACHER,
        pool=("current", "past", TEACHER),
        cloning_steps=150,
        rl_steps=100,
        evaluations=5,
        episodes=30,
        context=1_024,
        max_new_tokens=48,
        seed=seed,
    )
    for point in Learning(config, out).run(lambda *step: print(*step, flush=True)):
        print(point)


if __name__ == "__main__":
    main()
