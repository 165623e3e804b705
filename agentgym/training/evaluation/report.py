"""The report of an ablation: tables, files and figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from math import inf
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from agentgym.training.evaluation.comparison import (
    comparison_tables,
    level_horizons,
    pass_table,
    success_table,
)
from agentgym.training.evaluation.intervals import PAIRS, Key, differences, effects, summarize
from agentgym.training.evaluation.missing import Results, as_results, idle_cells
from agentgym.training.evaluation.registry import Paper, papers
from agentgym.training.evaluation.scoring import (
    Result,
    distinct,
    group_by,
    ordered_arms,
    ordered_contexts,
)
from agentgym.training.evaluation.statistics import Interval, around_zero, holm_by_key, wilson
from agentgym.training.evaluation.tables import (
    INTERVENTIONS,
    METRIC_NAMES,
    QUALITY,
    Table,
    arm_label,
    cell,
    count_played,
    few_instances,
    p_value,
    percent,
    policy_names,
    quality,
    to_markdown,
)
from agentgym.training.extras import needs_extra
from agentgym.training.rollout.storage import write_text
from agentgym.training.rollout.trajectory import OUTCOMES, seat_outcomes

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
    """Return all tables: notes and policy comparisons, then each policy's arms, contexts and
    effects.
    """
    results = as_results(results)
    tables = []
    if notes := results.notes():
        numbered = [[str(number), note] for number, note in enumerate(notes, 1)]
        tables.append(("Notes", ["", "note"], numbered))
    policies = results.by("policy")
    if len(policies) < 2:
        return [*tables, *pass_table(results), *_tables_of_one(results)]
    tables += [*comparison_tables(results, paper_levels()), *pass_table(results)]
    for policy, rows in policies.items():
        for title, header, lines in _tables_of_one(rows):
            tables.append((f"{policy}: {title}", header, lines))
    return tables


def paper_levels() -> dict[str, float]:
    """Return the success rates without oracles at which papers compare policies, by world."""
    levels: dict[str, float] = {}
    for paper in papers():
        levels.update(paper.levels)
    return levels


def _tables_of_one(results: Results) -> list[Table]:
    headlines: list[Table] = []
    of_papers: list[Table] = []
    arms, contexts, cells, seats = [], [], [], []
    for paper, rows in _by_paper(results):
        (headlines if paper.headline else of_papers).extend(paper.tables(rows))
    managed, arms_differ = _managed(results), len(distinct(results.everything, "arm")) > 1
    for world, each in results.by("world").items():
        if arms_differ or not managed:
            arms.append(_arms_table(world, each.everything))
        if managed:
            contexts.append(_contexts_table(world, each.everything))
        if managed and arms_differ and len(distinct(each.everything, "context")) > 1:
            title = f"{world}, arms x contexts: success rate, % with 95% intervals"
            found = each.everything
            axes = {"arm": ordered_arms(found), "context": ordered_contexts(found)}
            cells.append(success_table(title, found, axes))
        seats += _seats_table(world, each)
    return [
        *(*headlines, *arms, *seats, *contexts, *cells),
        *_effects_table(results, "Effect of each intervention", PAIRS),
        *_effects_table(results, "Right hints against others", _against(results)),
        *of_papers,
    ]


def _seats_table(world: str, results: Results) -> list[Table]:
    duels = [row for row in results if "winners" in _team(row)]
    lines = []
    for arm, rows in group_by(duels, "arm").items():
        teams = list(map(_team, rows))
        for seat in teams[0]["rewards"]:
            outcomes = Counter(seat_outcomes(team)[seat] for team in teams)
            shares = [percent(wilson(outcomes[each], len(teams))) for each in OUTCOMES]
            reward = percent(_mean_reward(rows, seat))
            lines.append([arm or "none", seat, reward, *shares, str(len(teams))])
    if not lines:
        return []
    header = ["arm", "seat", "mean reward", *OUTCOMES, "games"]
    return [(f"{world}: outcomes by seat, % with 95% intervals", header, lines)]


def _team(row: Result) -> dict[str, Any]:
    return dict((row.report or {}).get("team", {}))


def _mean_reward(rows: Sequence[Result], seat: str) -> Interval:
    parts, graded = [], False
    for games in group_by(rows, "seed").values():
        rewards = [_team(row)["rewards"][seat] for row in games]
        parts.append(fmean(rewards))
        graded = graded or not {0.0, 0.5, 1.0}.issuperset(rewards)
    mean = fmean(parts)
    # In a small sample of wins, draws and losses, equal rewards can hide the variance.
    change = 0.1 if graded else 1.0
    around = around_zero(0.0, np.array(parts) - mean, len(parts) - 1, change, bound=inf)
    return Interval(mean, mean + around.low, mean + around.high)


def write_report(results: Sequence[Result], out: Path) -> list[Path]:
    """Write results, a summary and all figures, including those of papers; return the files."""
    with needs_extra("a report with figures", "cli"):
        from agentgym.training.evaluation import drawing  # noqa: PLC0415 - matplotlib is slow to import, and an extra
    results = as_results(results)
    write_text(out / "results.jsonl", "".join(json.dumps(asdict(row)) + "\n" for row in results))
    names = [[arm or "none", arm_label(arm)] for arm in ordered_arms(results.everything)]
    tables = [*ablation_tables(results), ("Names of the arms in figures", ["arm", "name"], names)]
    write_text(out / "summary.md", "\n\n".join(map(to_markdown, tables)) + "\n")
    drawn = _with_short_names(results)
    figures = _figures(drawn)
    for ending, own in _by_policy(drawn).items():
        for paper, rows in _by_paper(own):
            for name, draw in paper.figures.items():
                file = Path(name)
                figures[f"{file.stem}{ending}{file.suffix}"] = draw(rows)
    paths = [out / "results.jsonl", out / "summary.md"]
    for name, figure in figures.items():
        paths += drawing.save(figure, out / name)
    return paths


def _figures(results: Results) -> dict[str, Figure]:
    from agentgym.training.evaluation import plots  # noqa: PLC0415 - slow to import, and an extra

    figures = {"arms.png": plots.arms_figure(results)}
    policies = _by_policy(results)
    for ending, rows in policies.items():
        if len(distinct(rows.everything, "horizon")) > 1:
            figures[f"horizons{ending}.png"] = plots.horizons_figure(rows)
        if _managed(rows):
            figures[f"contexts{ending}.png"] = plots.contexts_figure(rows)
    if len(policies) > 1 and (levelled := levelled_results(results)):
        figures["levelled.png"] = plots.levelled_figure(levelled, _LEVELLED)
        figures["interventions.png"] = plots.interventions_figure(levelled, _LEVELLED)
    else:
        figures["interventions.png"] = plots.interventions_figure(results)
    return figures


def _with_short_names(results: Results) -> Results:
    names = policy_names(distinct(results.everything, "policy"))

    def rename(row: Result) -> Result:
        model = policy_names([row.model])[row.model]
        policy = names[row.policy]
        return replace(row, policy=policy, model="" if model == policy else model)

    return Results(map(rename, results), map(rename, results.missing))


def _by_policy(results: Results) -> dict[str, Results]:
    policies = list(results.by("policy").values())
    if len(policies) == 1:
        return {"": policies[0]}
    return {f"-{place}": rows for place, rows in enumerate(policies, 1)}


def levelled_results(results: Sequence[Result]) -> Results:
    """Return the episodes at the sizes at which papers compare policies."""
    rows = as_results(results).with_bare_arm()
    if rows:
        levelled = level_horizons(rows, by_world=paper_levels())
        if levelled and effects(levelled, ("policy",), "success"):
            return levelled
    return Results()


def _by_paper(results: Results) -> list[tuple[Paper, Results]]:
    parts = []
    for paper in papers():
        worlds = distinct(filter(paper.applies, results), "world")

        def belongs(row: Result, paper: Paper = paper, worlds: list[str] = worlds) -> bool:
            if row.missing or row.over_window:
                return row.world in worlds
            return paper.applies(row)

        if rows := results.where(belongs):
            parts.append((paper, rows))
    return parts


def _arms_table(world: str, rows: Sequence[Result]) -> Table:
    groups = group_by(rows, "arm")
    compared = "" in groups and len(groups) > 1
    header = ["arm", "episodes"]
    lines: dict[str, list[str]] = {}
    for arm in ordered_arms(rows):
        lines[arm] = [arm or "none", str(count_played(groups[arm]))]
    for metric in METRICS:
        header.append(METRIC_NAMES[metric])
        rates = summarize(rows, ("arm",), metric)
        for arm, line in lines.items():
            line.append(percent(rates[arm,]))
        if compared and metric != "alive_step_accuracy":
            header.append("vs none")
            gains = differences(rows, (), metric)
            for arm, line in lines.items():
                line.append(cell(gains, (arm,), signed=True))
    for arm, line in lines.items():
        line.extend(quality(groups[arm]))
    title = f"{world}: {count_played(rows)} episodes, % with 95% intervals{few_instances(rows)}"
    return title, [*header, *QUALITY], list(lines.values())


def _managed(results: Sequence[Result]) -> bool:
    return any(row.usage for row in results)


def _contexts_table(world: str, rows: Sequence[Result]) -> Table:
    groups = group_by(rows, "context")
    means = {name: summarize(rows, ("context",), name) for name in ("success", "edits", *_TOKENS)}
    header = ["context", "success rate"]
    gains = {}
    if compared := "none" in groups and len(groups) > 1:
        header.append("vs none")
        gains = differences(rows, (), "success", "none", "context")
    lines = []
    for name in ordered_contexts(rows):
        idle = sorted(idle_cells(groups[name]))
        label = f"{name} ({', '.join(idle)} never acted)" if idle else name
        line = [label, percent(means["success"][name,])]
        if compared:
            line.append(cell(gains, (name,), signed=True))
        for metric in _TOKENS:
            line += [f"{means[metric][name,].value:,.0f}"]
        line += [f"{means['edits'][name,].value:.1f}", str(count_played(groups[name]))]
        lines.append([*line, *quality(groups[name])])
    header += [*_TOKENS.values(), "rewrites", "episodes", *QUALITY]
    counter = next((row.usage.counter for row in rows if row.usage), "")
    title = (
        f"{world}, context strategies: {count_played(rows)} episodes, % with 95% intervals, mean "
        f"tokens ({counter}) an episode{few_instances(rows)}"
    )
    return title, header, lines


def _against(results: Results) -> dict[str, list[tuple[str, str]]]:
    """Return pairs of an arm with unreliable hints and the same arm with correct hints."""
    arms = ordered_arms(results.everything)
    right = {frozenset(arm): arm for arm in arms if arm.isalpha()}
    pairs = {}
    for arm in arms:
        best = right.get(frozenset(filter(str.isalpha, arm)), arm)
        if best != arm:
            pairs[f"{best} vs {arm}"] = [(arm, best)]
    return pairs


def _effects_table(
    results: Results, about: str, pairs_of: Mapping[str, Sequence[tuple[str, str]]]
) -> list[Table]:
    metrics = METRICS[:2]  # success rate and step accuracy
    changes: dict[Key, Interval] = {}
    for metric in metrics:
        for key, change in effects(results, ("world",), metric, pairs_of).items():
            changes[metric, *key] = change
    if not changes:
        return []
    corrected = holm_by_key(changes)
    header = ["world", "intervention", "pairs"]
    for metric in metrics:
        header += [METRIC_NAMES[metric], "p (Holm)"]
    lines = []
    for world, name in dict.fromkeys(key[1:] for key in changes):
        pairs = changes["success", world, name].count
        line = [str(world), INTERVENTIONS.get(str(name), str(name)), str(pairs)]
        for metric in metrics:
            key = metric, world, name
            line += [percent(changes[key], signed=True), p_value(corrected[key])]
        arms = set(chain.from_iterable(pairs_of[str(name)]))
        rows = [row for row in results.everything if row.world == world and row.arm in arms]
        lines.append([*line, *quality(rows)])
    title = (
        f"{about}, percentage points with 95% intervals, and p corrected for the {len(changes)} "
        f"effects of this table{few_instances(results)}"
    )
    return [(title, [*header, *QUALITY], lines)]
