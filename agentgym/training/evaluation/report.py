"""What an ablation found, as tables, files and figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from agentgym.oracles import ARMS
from agentgym.training.evaluation.bootstrap import differences, effects, summarize
from agentgym.training.evaluation.plots import plot_arms, plot_contexts, plot_horizons, plot_interventions, plot_lore
from agentgym.training.evaluation.scoring import Result, ordered_contexts
from agentgym.training.evaluation.tables import Table, percent, to_markdown
from agentgym.training.papers.loca import loca_tables
from agentgym.training.papers.lore import is_lore
from agentgym.training.papers.lore_report import lore_tables, write_curves

METRICS = ("success", "step_accuracy", "alive_step_accuracy")
_NAMES = {"success": "success rate", "step_accuracy": "step accuracy", "alive_step_accuracy": "step accuracy while alive"}
_TOKENS = {
    "trajectory_tokens": "trajectory length",
    "prompt_tokens": "prompts",
    "reusable_prompt_tokens": "reusable",
    "tool_output_tokens": "tool output",
    "hidden_tool_tokens": "hidden",
    "summary_tokens": "summaries",
}
_INTERVENTIONS = {"P": "plan", "S": "state", "H": "history"}


def tables(results: Sequence[Result]) -> list[Table]:
    """The tables of office tasks; arms per world; effects of single interventions; the curves of worlds of LORE."""
    worlds = list(dict.fromkeys(row.world for row in results))
    arms = [_arms_table(world, results) for world in worlds if not _managed(results) or len({row.arm for row in results}) > 1]
    contexts = [_contexts_table(world, results) for world in worlds if _managed(results)]
    return [*loca_tables(results), *arms, *contexts, *_effects_table(results), *lore_tables(results)]


def write_report(results: Sequence[Result], out: Path) -> list[Path]:
    """Write `results.jsonl`, `summary.md` and the figures into a folder; `lore.csv` too where worlds of LORE were played."""
    rows = "".join(json.dumps(asdict(row)) + "\n" for row in results)
    (out / "results.jsonl").write_text(rows, encoding="utf-8")
    (out / "summary.md").write_text("\n\n".join(map(to_markdown, tables(results))) + "\n", encoding="utf-8")
    figures = {"horizons.png": plot_horizons, "arms.png": plot_arms, "interventions.png": plot_interventions}
    if _managed(results):
        figures["contexts.png"] = plot_contexts
    files = ["results.jsonl", "summary.md"]
    if any(map(is_lore, results)):
        figures["lore.png"] = plot_lore
        write_curves(results, out / "lore.csv")
        files.append("lore.csv")
    for name, plot in figures.items():
        plot(results, out / name)
    return [out / name for name in (*files, *figures)]


def _arms_table(world: str, results: Sequence[Result]) -> Table:
    rows = [row for row in results if row.world == world]
    arms = sorted({row.arm for row in rows}, key=ARMS.index)
    compared = "" in arms and len(arms) > 1
    header = ["arm"]
    columns: list[list[str]] = [[arm or "none" for arm in arms]]
    for metric in METRICS:
        values = summarize(rows, ("arm",), metric)
        header.append(_NAMES[metric])
        columns.append([percent(values[arm,]) for arm in arms])
        if compared and metric != "alive_step_accuracy":
            gains = differences(rows, (), metric)
            header.append("vs none")
            columns.append([percent(gains[arm,], signed=True) if (arm,) in gains else "" for arm in arms])
    title = f"{world}: {len(rows)} episodes, % with 95 % intervals"
    return title, header, [list(line) for line in zip(*columns, strict=True)]


def _managed(results: Sequence[Result]) -> bool:
    """Whether the episodes were played in a bounded context."""
    return any(row.usage for row in results)


def _contexts_table(world: str, results: Sequence[Result]) -> Table:
    rows = [row for row in results if row.world == world]
    contexts = ordered_contexts(rows)
    success = summarize(rows, ("context",), "success")
    columns = {"context": contexts, "success rate": [percent(success[name,]) for name in contexts]}
    if "none" in contexts and len(contexts) > 1:
        gains = differences(rows, (), "success", "none", "context")
        columns["vs none"] = [percent(gains[name,], signed=True) if (name,) in gains else "" for name in contexts]
    for metric, title in _TOKENS.items():
        means = summarize(rows, ("context",), metric)
        columns[title] = [f"{means[name,].value:,.0f}" for name in contexts]
    counter = next((row.usage.counter for row in rows if row.usage), "")
    title = f"{world}, context strategies: {len(rows)} episodes, % with 95 % intervals, mean tokens ({counter}) an episode"
    return title, list(columns), [list(line) for line in zip(*columns.values(), strict=True)]


def _effects_table(results: Sequence[Result]) -> list[Table]:
    found = {metric: effects(results, ("world",), metric) for metric in METRICS[:2]}
    rows = [
        [str(world), _INTERVENTIONS[str(letter)], *(percent(found[metric][world, letter], signed=True) for metric in METRICS[:2])]
        for world, letter in found["success"]
    ]
    header = ["world", "intervention", *(_NAMES[metric] for metric in METRICS[:2])]
    return [("Effect of each intervention, percentage points with 95 % intervals", header, rows)] if rows else []
