"""Oracle study: does the agent lack planning, state tracking, or both?

All arms play the same instances, so differences are paired. An interrupted run resumes.

Needs: pip install 'agentgym-suite[cli]' (for the figures)

Prints: success and step accuracy of each arm with 95% intervals, and the effect of each oracle.
The scripted agent plans badly; use --policy my.module:make_policy for another agent.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from agentgym.training.evaluation import (
    Ablation,
    Result,
    ablation_tables,
    run_ablation,
    to_markdown,
    write_report,
)
from agentgym.training.rollout import PolicyConfig


def main(arguments: Sequence[str] | None = None) -> list[Result]:
    """Run the study and return its scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", default="ListWorld")
    parser.add_argument("--horizons", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--episodes", type=int, default=10, help="of each cell")
    parser.add_argument("--policy", default="control:planning=0.2")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("runs/oracle_study"))
    given = parser.parse_args(arguments)
    study = Ablation(
        worlds=[given.world],
        arms=["", "S", "P", "SP"],  # no hints, state hints, plan hints, both kinds of hints
        horizons=given.horizons,
        seeds=given.episodes,
        policy=PolicyConfig(given.policy),
    )
    results = run_ablation(study, given.out, workers=given.workers)
    for table in ablation_tables(results):
        print(to_markdown(table), end="\n\n")
    print("files:", *write_report(results, given.out))
    return results


if __name__ == "__main__":
    main()
