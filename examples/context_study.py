"""Context study: compare the success and cost of strategies for full context windows.

Needs: pip install 'agentgym-suite[cli]' (for the figures)

Prints: success, trajectory length, hidden tokens and summary tokens of each strategy. The scripted
agent uses only its observations; use --policy to evaluate another agent.
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

CONTEXTS = ("none", "clear_results:trigger=75%:keep=3", "compaction:trigger=75%")


def main(arguments: Sequence[str] | None = None) -> list[Result]:
    """Run the study and return its scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", default="TreeWorld")
    parser.add_argument("--horizon", type=int, default=48, help="turns of an optimal policy")
    parser.add_argument("--window", default="1.5k", help="tokens of the context window")
    parser.add_argument("--contexts", nargs="+", default=CONTEXTS)
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--policy", default="oracle")
    parser.add_argument("--out", type=Path, default=Path("runs/context_study"))
    given = parser.parse_args(arguments)
    study = Ablation(
        worlds=[given.world],
        arms=[""],
        horizons=[given.horizon],
        contexts=given.contexts,
        window=given.window,
        seeds=given.episodes,
        policy=PolicyConfig(given.policy),
    )
    results = run_ablation(study, given.out, workers=1)
    for table in ablation_tables(results):
        print(to_markdown(table), end="\n\n")
    print("files:", *write_report(results, given.out))
    return results


if __name__ == "__main__":
    main()
