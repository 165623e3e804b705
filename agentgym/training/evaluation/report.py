"""The report of an ablation: tables, files and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.oracles import sort_arms
from agentgym.training.evaluation.comparison import (
    comparison_tables,
    level_horizons,
    pass_table,
)
from agentgym.training.evaluation.intervals import (
    PAIRS,
    Interval,
    Key,
    differences,
    effects,
    holm,
    interactions,
    summarize,
)
from agentgym.training.evaluation.registry import Paper, papers
from agentgym.training.evaluation.scoring import Result, group_by, ordered_contexts
from agentgym.training.evaluation.tables import (
    INTERVENTIONS,
    METRIC_NAMES,
    Table,
    few_instances,
    p_value,
    percent,
    to_markdown,
)
from agentgym.training.extras import needs_extra
from agentgym.training.rollout.storage import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = ("success", "step_accuracy", "alive_step_accuracy")
_LEVELLED = "each policy at the size where it solves about as much without oracles as the others"
_TOKENS = {
    "trajectory_tokens": "trajectory length",
    "prompt_tokens": "prompts",
    "missed_prompt_tokens": "cache misses",
    "tool_output_tokens": "tool output",
    "hidden_tool_tokens": "hidden",
    "summary_tokens": "summaries",
}


def ablation_tables(results: Sequence[Result]) -> list[Table]:
    """Return the tables of arms and contexts per world and of the intervention effects, together
    with the papers' tables; for several policies, first their comparison, then the tables of each.
    """
    policies = group_by(results, "policy")
    if len(policies) < 2:
        return [*pass_table(results), *_tables_of_one(results)]
    each = [
        (f"{policy}: {title}", header, lines)
        for policy, rows in policies.items()
        for title, header, lines in _tables_of_one(rows)
    ]
    return [*comparison_tables(results, paper_levels()), *pass_table(results), *each]


def paper_levels() -> dict[str, float]:
    """Return the success at which papers compare policies, by world."""
    return {world: share for paper in papers() for world, share in paper.levels.items()}


def _tables_of_one(results: Sequence[Result]) -> list[Table]:
    worlds = group_by(results, "world").items()
    of_papers = [(paper.headline, paper.tables(rows)) for paper, rows in _by_paper(results)]
    managed, arms_differ = _managed(results), len({row.arm for row in results}) > 1
    cells = [_cells_table(world, rows) for world, rows in worlds if managed and arms_differ]
    return [
        *(table for headline, tables in of_papers if headline for table in tables),
        *(_arms_table(world, rows) for world, rows in worlds if arms_differ or not managed),
        *(_contexts_table(world, rows) for world, rows in worlds if managed),
        *(table for table in cells if table[2]),
        *_effects_table(results, "Effect of each intervention", PAIRS),
        *_effects_table(results, "Right hints against others", _against(results)),
        *(table for headline, tables in of_papers if not headline for table in tables),
    ]


def write_report(results: Sequence[Result], out: Path) -> list[Path]:
    """Write `results.jsonl`, `summary.md`, the figures, and the applicable papers' files and
    figures into a folder.

    Returns:
        The files, figures last.

    Raises:
        ValueError: The extra for figures is missing.
    """
    with needs_extra("a report with figures", "cli"):
        from agentgym.training.evaluation import plots  # noqa: PLC0415 - matplotlib is slow to import, and an extra
    write_text(out / "results.jsonl", "".join(json.dumps(asdict(row)) + "\n" for row in results))
    write_text(out / "summary.md", "\n\n".join(map(to_markdown, ablation_tables(results))) + "\n")
    files = ["results.jsonl", "summary.md"]
    figures = _figures(results)
    for ending, own in _by_policy(results).items():
        for paper, rows in _by_paper(own):
            for name, write in paper.files.items():
                files.append(_with_ending(name, ending))
                write(rows, out / files[-1])
            figures |= {_with_ending(n, ending): draw(rows) for n, draw in paper.figures.items()}
    paths = [out / name for name in files]
    for name, figure in figures.items():
        paths += plots.save(figure, out / name)
    return paths


def _figures(results: Sequence[Result]) -> dict[str, Figure]:
    """Return the figures by file name; figures of one policy exist for each."""
    from agentgym.training.evaluation import plots, policy_plots  # noqa: PLC0415 - slow to import, and an extra

    figures = {"arms.png": policy_plots.arms_figure(results)}
    policies = _by_policy(results)
    for ending, rows in policies.items():
        figures[f"horizons{ending}.png"] = plots.horizons_figure(rows)
        if _managed(rows):
            figures[f"contexts{ending}.png"] = plots.contexts_figure(rows)
    levelled = levelled_results(results) if len(policies) > 1 else []
    if levelled:
        figures["levelled.png"] = policy_plots.levelled_figure(levelled, _LEVELLED)
    figures["interventions.png"] = plots.interventions_figure(
        levelled or results, _LEVELLED if levelled else ""
    )
    return figures


def _by_policy(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return each policy's episodes by file-name suffix, which is empty for a single policy."""
    policies = group_by(results, "policy").values()
    return {
        f"-{place}" if len(policies) > 1 else "": rows for place, rows in enumerate(policies, 1)
    }


def _with_ending(name: str, ending: str) -> str:
    path = Path(name)
    return f"{path.stem}{ending}{path.suffix}"


def levelled_results(results: Sequence[Result]) -> list[Result]:
    """Return the episodes of policies and worlds played with and without oracles, each at the
    papers' comparison size; empty if there is nothing to compare.
    """
    bare = {(row.policy, row.world) for row in results if not row.arm}
    rows = [row for row in results if (row.policy, row.world) in bare]
    levelled = level_horizons(rows, by_world=paper_levels()) if rows else []
    return levelled if levelled and effects(levelled, ("policy",), "success") else []


def _by_paper(results: Sequence[Result]) -> list[tuple[Paper, list[Result]]]:
    """Return the applicable papers with their results."""
    parts = [(paper, [row for row in results if paper.applies(row)]) for paper in papers()]
    return [(paper, rows) for paper, rows in parts if rows]


def _arms_table(world: str, rows: Sequence[Result]) -> Table:
    arms = sort_arms(row.arm for row in rows)
    compared = "" in arms and len(arms) > 1
    columns = [("arm", [arm or "none" for arm in arms])]
    for metric in METRICS:
        values = summarize(rows, ("arm",), metric)
        columns.append((METRIC_NAMES[metric], [percent(values[arm,]) for arm in arms]))
        if compared and metric != "alive_step_accuracy":
            gains = differences(rows, (), metric)
            columns.append(("vs none", [_gain(gains, arm) for arm in arms]))
    title = f"{world}: {len(rows)} episodes, % with 95 % intervals{few_instances(rows)}"
    lines = [list(line) for line in zip(*(cells for _, cells in columns), strict=True)]
    return title, [name for name, _ in columns], lines


def _gain(gains: Mapping[Key, Interval], name: str) -> str:
    """Format an arm's or context's gain over the baseline; empty if there is none."""
    return percent(gains[name,], signed=True) if (name,) in gains else ""


def _managed(results: Sequence[Result]) -> bool:
    """Report whether the episodes were played in a bounded context."""
    return any(row.usage for row in results)


def _contexts_table(world: str, rows: Sequence[Result]) -> Table:
    contexts = ordered_contexts(rows)
    success = summarize(rows, ("context",), "success")
    columns = {"context": contexts, "success rate": [percent(success[name,]) for name in contexts]}
    if "none" in contexts and len(contexts) > 1:
        gains = differences(rows, (), "success", "none", "context")
        columns["vs none"] = [_gain(gains, name) for name in contexts]
    for metric, title in _TOKENS.items():
        means = summarize(rows, ("context",), metric)
        columns[title] = [f"{means[name,].value:,.0f}" for name in contexts]
    rewrites = summarize(rows, ("context",), "edits")
    columns["rewrites"] = [f"{rewrites[name,].value:.1f}" for name in contexts]
    counter = next((row.usage.counter for row in rows if row.usage), "")
    title = (
        f"{world}, context strategies: {len(rows)} episodes, % with 95 % intervals, mean "
        f"tokens ({counter}) an episode{few_instances(rows)}"
    )
    return title, list(columns), [list(line) for line in zip(*columns.values(), strict=True)]


def _cells_table(world: str, rows: Sequence[Result]) -> Table:
    """Return the success rate of each arm and context, with the interaction below it."""
    arms, contexts = sort_arms(row.arm for row in rows), ordered_contexts(rows)
    rates = summarize(rows, ("arm", "context"), "success")
    changes = interactions(rows, (), "success")
    corrected = dict(
        zip(changes, holm([change.p_value for change in changes.values()]), strict=True)
    )
    lines = []
    for arm in arms if len(contexts) > 1 else []:
        line = [arm or "none"]
        for context in contexts:
            cell = percent(rates[arm, context]) if (arm, context) in rates else ""
            if (arm, context) in changes:
                more = percent(changes[arm, context], signed=True)
                cell += f"; {more}, {p_value(corrected[arm, context])}"
            line.append(cell)
        lines.append(line)
    title = (
        f"{world}, arms x contexts: success rate, %; then how much more the arm gains than without "
        f"a strategy, with p corrected for the table (Holm){few_instances(rows)}"
    )
    return title, ["arm", *contexts], lines


def _against(results: Sequence[Result]) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs of a variant arm and the arm with right hints, by name.

    The gain over a placebo is the value of the hints' content; the gain over wrong hints shows that
    hints are followed.
    """
    arms = sort_arms(row.arm for row in results)
    right = {frozenset(arm): arm for arm in arms if arm.isalpha()}
    pairs = [(arm, right.get(frozenset(filter(str.isalpha, arm)), arm)) for arm in arms]
    return {f"{best} vs {arm}": [(arm, best)] for arm, best in pairs if best != arm}


def _effects_table(
    results: Sequence[Result], about: str, pairs_of: Mapping[str, Sequence[tuple[str, str]]]
) -> list[Table]:
    """Return the table of intervention effects; none without a pair of arms."""
    metrics = METRICS[:2]  # the metrics that are shares of all episodes and steps
    changes = {
        (metric, *key): change
        for metric in metrics
        for key, change in effects(results, ("world",), metric, pairs_of).items()
    }
    corrected = dict(
        zip(changes, holm([change.p_value for change in changes.values()]), strict=True)
    )
    rows = []
    for world, name in dict.fromkeys(key[1:] for key in changes):
        cells = [str(world), INTERVENTIONS.get(str(name), str(name))]
        for metric in metrics:
            key = metric, world, name
            cells += [percent(changes[key], signed=True), p_value(corrected[key])]
        rows.append(cells)
    names = [text for metric in metrics for text in (METRIC_NAMES[metric], "p (Holm)")]
    title = (
        f"{about}, percentage points with 95 % intervals, and p corrected for the {len(changes)} "
        f"effects of this table{few_instances(results)}"
    )
    return [(title, ["world", "intervention", *names], rows)] if rows else []
