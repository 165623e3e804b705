"""Compare a team against a single agent: `python benchmarks/teams.py`.

The table shows the turns, replies and tokens of scripted play as mean ± standard deviation over
five instances. A worker has up to 32 turns per sub-task.
"""

from __future__ import annotations

from statistics import fmean, stdev

from agentgym import make
from agentgym.oracles import TeamPolicy
from agentgym.training.rollout import rollout, usage

OPERATIONS = 40
SEEDS = range(5)


def main() -> None:
    print(
        "| DocumentWorld | score | turns | replies | longest prompt | all prompts "
        "|\n|---|---|---|---|---|---|"
    )
    for suffix in ("", "-team", "-manager"):
        env_id = f"DocumentWorld{suffix}"
        env = make(env_id, operations=OPERATIONS, window=1_000_000)
        played = [rollout(TeamPolicy(env_id, patience=32), env, seed) for seed in SEEDS]
        tokens = [counted for trajectory in played if (counted := usage(trajectory))]
        cells = [
            f"{fmean(trajectory.reward for trajectory in played):.1f}",
            *(
                f"{fmean(values):,.0f} ± {stdev(values):,.0f}"
                for values in (
                    [trajectory.steps[-1].info["turn"] for trajectory in played],
                    [len(trajectory.steps) for trajectory in played],
                    [counted.peak_tokens for counted in tokens],
                    [counted.prompt_tokens for counted in tokens],
                )
            ),
        ]
        print(f"| {suffix.removeprefix('-') or 'one agent'} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
