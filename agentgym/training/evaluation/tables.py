"""Tables for the command line and the summary of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Any

from agentgym.assemble.wrapper_stack import PLACEBO
from agentgym.training.evaluation.missing import describe_missing
from agentgym.training.evaluation.scoring import CELL, Result, group_by, played
from agentgym.training.evaluation.statistics import Interval

# title, header and rows
Table = tuple[str, list[str], list[list[str]]]

# Tables warn about cells with fewer episodes than this; with 20 episodes, the half-width of
# Wilson's interval is at most 20 points.
MIN_EPISODES = 20
INTERVENTIONS = {"P": "plan", "S": "state", "H": "history"}
_HINTS = {**INTERVENTIONS, "C": "communication"}
METRIC_NAMES = {
    "success": "success rate",
    "step_accuracy": "step accuracy",
    "alive_step_accuracy": "step accuracy while alive",
}


def arm_label(arm: str) -> str:
    """Name an arm in words: `SP` is "plan and state", `P0.5` is "plan (50% right)"."""
    suffixes = dict(re.findall(r"([A-Z])([^A-Z]*)", arm))
    names = []
    for letter in sorted(suffixes, key=[*_HINTS, *suffixes].index):
        name, suffix = _HINTS.get(letter, letter), suffixes[letter]
        if suffix == PLACEBO:
            name = f"placebo {name}"
        elif suffix == "0":
            name = f"wrong {name}"
        elif suffix:
            name = f"{name} ({100 * float(suffix):g}% right)"
        names.append(name)
    *first, last = names or ["no hints"]
    return f"{', '.join(first)} and {last}" if first else last


def context_label(context: str) -> str:
    """Name the context strategies in words."""
    if context == "none":
        return "no strategy"
    return context.replace("_", " ").replace("+", " + ").replace(":", ", ")


def policy_names(policies: Iterable[str]) -> dict[str, str]:
    """Shorten policy names by omitting options that similar policies share."""
    splits = {policy: policy.split(":") for policy in policies}
    options: dict[str, list[list[str]]] = {}
    for policy, words in splits.items():
        options.setdefault(_head(policy), []).append(words)
    names = {}
    for policy, words in splits.items():
        head = _head(policy)
        shared = set(words).intersection(*options[head])
        own = [word for word in words if "=" in word and word not in shared]
        names[policy] = " ".join([head, *own])
    counts = Counter(names.values())
    return {policy: name if counts[name] == 1 else policy for policy, name in names.items()}


def _head(policy: str) -> str:
    if " " in policy:  # a user-given name
        return policy
    words = [word for word in policy.split(":") if "=" not in word]
    place = r"[./]" if len(words) > 1 else "/"
    return ":".join(re.split(place, word.rstrip("/"))[-1] for word in words) or policy


def percent(interval: Interval, signed: bool = False) -> str:
    """Format a share in percent, such as `57.5 [50.0, 65.0]`, with bounds for missing episodes."""
    form = "{:+.1f} [{:+.1f}, {:+.1f}]" if signed else "{:.1f} [{:.1f}, {:.1f}]"
    text = form.format(100 * interval.value, 100 * interval.low, 100 * interval.high)
    if isnan(interval.value):
        text = "no data"
    if interval.fragile:
        ends = f"{100 * interval.worst:.1f} to {100 * interval.best:.1f}"
        text += f"; {ends} with the {interval.missing} missing"
    return text


def cell(intervals: Mapping[Any, Interval], key: object, signed: bool = False) -> str:
    """Format `intervals[key]` as percentages, or return "" if the key is missing."""
    return percent(intervals[key], signed) if key in intervals else ""


def p_value(value: float | None) -> str:
    """Format a p-value as papers do: `p = 0.012`, or `p < 0.001`."""
    if value is None:
        return "p = ?"
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def to_markdown(table: Table) -> str:
    """Format a table in Markdown; lone surrogates are escaped."""
    title, header, rows = table
    lines = [f"### {title}", ""]
    for row in (header, ["---"] * len(header), *rows):
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines).encode("utf-8", "backslashreplace").decode("utf-8")


def few_instances(results: Sequence[Result]) -> str:
    """Return a title suffix that warns of cells with few instances."""
    fewest = MIN_EPISODES
    for rows in group_by(results, *CELL).values():
        fewest = min(fewest, len({row.seed for row in played(rows)}))
    if fewest >= MIN_EPISODES:
        return ""
    return f" (WARNING: {fewest} instances a cell; fewer than {MIN_EPISODES} show little)"


def count_played(rows: Iterable[Result]) -> int:
    """Return the number of episodes that are not missing."""
    return len(played(rows))


# The last columns of all results tables.
QUALITY = ["missing", "over window", "unreadable"]


def quality(rows: Iterable[Result]) -> list[str]:
    """Return a table row's values for the columns in `QUALITY`."""
    rows = list(rows)
    over = sum(row.over_window for row in rows)
    replies = sum(row.replies for row in rows)
    unreadable = sum(row.unreadable for row in rows)
    share = f"{100 * unreadable / replies:.1f}" if replies else "no data"
    return [describe_missing(rows), str(over), share]
