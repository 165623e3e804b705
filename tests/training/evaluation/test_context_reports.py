from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentgym import STRATEGIES, Chat, Policy, make
from agentgym.oracles import NoisyPolicy
from agentgym.training.evaluation import (
    Ablation,
    Result,
    ablation_tables,
    differences,
    log_of,
    ordered_contexts,
    run_ablation,
    summarize,
    write_report,
)
from agentgym.training.evaluation.intervals import TOKENS
from agentgym.training.rollout import PolicyConfig, Trajectory, Usage, rollout, usage

CONTEXTS = (
    *"none clear_results clear_thinking compaction awareness memory programmatic".split(),
    "clear_results+memory",
)


def play(
    context: str, policy: Policy | None = None, window: int = 1_500, **options: Any
) -> Trajectory:
    env = make("TreeWorld", context=context, window=window, **{"nodes": 60, **options})
    return rollout(policy or NoisyPolicy("TreeWorld", 0.1, seed=3), env, 2)


def starts_with(chat: Chat, step: Any) -> bool:
    told = [(m.role, m.text, m.thinking, m.calls) for m in chat.messages]
    before = [(m.role, m.text, m.thinking, m.calls) for m in step.chat.messages]
    return told[: len(before)] == before and chat.messages[len(before)].raw == step.reply.text


@pytest.mark.parametrize("scope", ["persistent", "ephemeral"])
@pytest.mark.parametrize("context", [*CONTEXTS, "+".join(STRATEGIES)])
def test_every_step_is_in_one_segment(context: str, scope: str) -> None:
    trajectory = play(context, oracles="SP", hint_scope=scope, window=4_000)
    segments = trajectory.segments()
    assert [k for segment in segments for k in segment] == list(range(len(trajectory.steps)))
    cuts = {segment.start for segment in segments} - {0}
    for k in range(1, len(trajectory.steps)):
        grows = len(trajectory.steps[k].chat.messages) > len(trajectory.steps[k - 1].chat.messages)
        assert (k in cuts) != (
            grows and starts_with(trajectory.steps[k].chat, trajectory.steps[k - 1])
        )
    if scope == "ephemeral":
        assert len(segments) == len(trajectory.steps), (
            "a hint that goes away rewrites the prompt at every turn"
        )


def test_a_trajectory_without_a_window_has_no_usage() -> None:
    trajectory = rollout(NoisyPolicy("ListWorld", 0.1), make("ListWorld"), 0)
    assert usage(trajectory) is None
    assert usage(replace(trajectory, steps=())) is None


@pytest.mark.rotation
def test_the_ablation_over_strategies_says_accuracy_and_trajectory_length(tmp_path: Path) -> None:
    ablation = Ablation(
        worlds=("ListWorld", "TreeWorld"),
        arms=("", "S"),
        horizons=(24,),
        seeds=2,
        policy=PolicyConfig("noisy:p=0.02"),
        contexts=CONTEXTS,
        window=1_500,
    )
    rows = run_ablation(ablation, tmp_path, 1)
    assert len(rows) == 2 * 2 * 2 * len(CONTEXTS)
    assert ordered_contexts(reversed(rows)) == list(CONTEXTS)
    for trajectory in log_of(tmp_path):
        found = usage(trajectory)
        assert found is not None
        row = next(row for row in rows if same(row, trajectory))
        assert row.usage == found
    title, header, lines = next(
        table for table in ablation_tables(rows) if "TreeWorld, context" in table[0]
    )
    assert "mean tokens (cl100k_base)" in title
    assert header[:4] == ["context", "success rate", "vs none", "trajectory length"]
    assert [line[0].partition(" (")[0] for line in lines] == list(CONTEXTS)
    mine = [
        row.usage.trajectory_tokens
        for row in rows
        if row.usage and (row.world, row.context) == ("TreeWorld", "compaction")
    ]
    assert lines[3][3] == f"{sum(mine) / len(mine):,.0f}"
    assert "contexts.png" in {path.name for path in write_report(rows, tmp_path)}
    assert (
        json.loads((tmp_path / "results.jsonl").read_text().splitlines()[0])["usage"]["counter"]
        == "cl100k_base"
    )


def same(row: Result, trajectory: Trajectory) -> bool:
    labels = trajectory.labels
    mine = (row.world, row.arm, row.context, row.seed)
    return mine == (labels["world"], labels["arm"], labels["context"], trajectory.seed)


def result(context: str, seed: int, success: float, tokens: int, arm: str = "") -> Result:
    counted = Usage("heuristic", tokens, 10 * tokens, 9 * tokens, tokens, 5, 0, 3, 0, 0)
    return Result("W", arm, 8, seed, success, 4, 3, 4, 3, context, counted)


def test_contexts_are_compared_within_an_arm_and_an_instance() -> None:
    rows = [result("none", seed, 0.0, 100, arm) for seed in range(4) for arm in ("", "S")]
    rows += [result("memory", seed, 1.0, 150) for seed in range(4)]
    gain = differences(rows, (), "success", "none", "context")["memory",]
    assert gain.value == 1.0
    assert gain.low > 0
    longer = differences(rows, (), "trajectory_tokens", "none", "context")["memory",]
    assert longer.value == 50
    assert "trajectory_tokens" in TOKENS
    assert summarize(rows, ("context",), "prompt_tokens")["memory",].value == 1_500
    assert differences(rows, (), "success")["S",].value == 0.0, (
        "arms are compared within a context: the memory's episodes have no partner"
    )
