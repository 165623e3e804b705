"""AgentLongBench's tables, heat map and commands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from agentgym.envs.agentlongbench import FULL, SETTINGS, TASKS
from agentgym.envs.agentlongbench.published import retriever
from agentgym.envs.agentlongbench.rows import LENGTHS, TARGETS
from agentgym.text.tokens import counter
from agentgym.text.validation import check_int
from agentgym.training.evaluation import (
    Command,
    Paper,
    Table,
    describe_failures,
    percent,
    register_paper,
    to_markdown,
    wilson,
)
from agentgym.training.evaluation.registry import figure_style
from agentgym.training.papers.agentlongbench_files import (
    LongBenchResult,
    Plan,
    answer,
    outcome,
    score_folder,
    write,
)
from agentgym.training.rollout import PolicyConfig, RunLock, TrajectoryLog
from agentgym.training.rollout.storage import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS, SUMMARY, FIGURE = "results.jsonl", "summary.md", "heatmap.png"

_PARTS = {"env_response": "environment", "tool_response": "tool", "final_guess": "final guess"}
_BASELINES = ("chance", "unanswered")


def context_table(results: Sequence[LongBenchResult]) -> Table:
    """Return scores and adequate context lengths by question subject and length (table 2)."""
    parts = list(_PARTS)

    def place(each: LongBenchResult) -> tuple[int, str, int]:
        return each.length, SETTINGS[each.setting]["style"], parts.index(TARGETS[each.task])

    lines = []
    for (length, style, part), group in groupby(sorted(results, key=place), place):
        rows = list(group)
        line = [style, _PARTS[parts[part]], f"{length:,}", str(len(rows))]
        line += [_mean_text(rows, "acl_scan", 1), _mean_text(rows, "acl_min", 1)]
        lines.append([*line, _mean_text(rows, "score", 100), *_baselines(rows)])
    header = ["format", "asked about", "length", "rows", "ACL (scan)", "ACL (least)", "score"]
    return "Adequate context length (tokens) and scores in %", [*header, *_BASELINES], lines


def score_table(results: Sequence[LongBenchResult]) -> Table:
    """Return mean scores by setting, task and length, with the chance baseline."""
    lines = []
    for (setting, task, length), rows in _by_cell(results).items():
        share = _mean_text(rows, "score", 100)
        scores = [row.score for row in rows]
        if set(scores) <= {0.0, 1.0}:
            share = percent(wilson(sum(scores), len(scores)))
        lines.append([setting, task, f"{length:,}", str(len(rows)), share, *_baselines(rows)])
    header = ["setting", "task", "length", "rows", "score", *_BASELINES]
    return "Scores in %, of right and wrong answers with Wilson's 95% interval", header, lines


def _baselines(rows: Sequence[LongBenchResult]) -> list[str]:
    unanswered = sum(not row.answered for row in rows)
    return [_mean_text(rows, "chance", 100), str(unanswered)]


def _mean_text(rows: Sequence[LongBenchResult], name: str, factor: int) -> str:
    known = [row for row in rows if getattr(row, name) is not None]
    if not known:
        return "-"
    return f"{factor * mean(known, name):,.1f}"


def mean(rows: Sequence[LongBenchResult], name: str) -> float:
    """Return the mean of the attribute `name` over rows."""
    return float(sum(getattr(row, name) for row in rows) / len(rows))


def cells(results: Sequence[LongBenchResult]) -> dict[tuple[str, str, int], float]:
    """Return the mean score by setting, task and length, in the paper's order."""
    return {key: mean(rows, "score") for key, rows in _by_cell(results).items()}


def _by_cell(
    results: Sequence[LongBenchResult],
) -> dict[tuple[str, str, int], list[LongBenchResult]]:
    settings, tasks = list(FULL), list(TASKS)

    def place(each: LongBenchResult) -> tuple[int, int, int]:
        return settings.index(each.setting), tasks.index(each.task), each.length

    groups: dict[tuple[str, str, int], list[LongBenchResult]] = {}
    for each in sorted(results, key=place):
        groups.setdefault((each.setting, TASKS[each.task], each.length), []).append(each)
    return groups


def write_report(results: Sequence[LongBenchResult], out: Path, missing: int = 0) -> list[Table]:
    """Write results, tables and heat map; return the tables."""
    if not results:
        raise ValueError("there are no episodes to report")
    from agentgym.training.evaluation import drawing  # noqa: PLC0415 - matplotlib is slow to import, and an extra

    out.mkdir(parents=True, exist_ok=True)
    lacking = ""
    if missing:
        lacking = f"; {missing} episodes are missing"
    tables = []
    for title, header, lines in (score_table(results), context_table(results)):
        tables.append((title + lacking, header, lines))
    write_text(out / RESULTS, "".join(json.dumps(asdict(each)) + "\n" for each in results))
    write_text(out / SUMMARY, "\n\n".join(map(to_markdown, tables)) + "\n")
    silent = sum(not each.answered for each in results)
    figure = heatmap_figure(cells(results))
    drawing.add_note(figure, f"{silent} of {len(results)} without an answer{lacking}")
    drawing.save(figure, out / FIGURE)
    return tables


@figure_style()
def heatmap_figure(cells: Mapping[tuple[str, str, int], float]) -> Figure:
    """Draw mean scores in [0, 1] by task and length, one panel per setting (figures 3 to 6)."""
    from agentgym.training.evaluation import drawing  # noqa: PLC0415 - matplotlib is slow to import, and an extra

    settings = list(dict.fromkeys(setting for setting, _, _ in cells))
    tasks = list(dict.fromkeys(task for _, task, _ in cells))
    lengths = sorted({length for _, _, length in cells})
    figure, columns = drawing.new_grid(len(settings), 1, drawing.rows_height(tasks), most=2)
    for (panel,), setting in zip(columns, settings, strict=True):
        values = np.full((len(tasks), len(lengths)), np.nan)
        for (row, task), (column, length) in product(enumerate(tasks), enumerate(lengths)):
            values[row, column] = 100 * cells.get((setting, task, length), np.nan)
        image = panel.imshow(values, vmin=0, vmax=100, cmap="Blues", aspect="auto")
        for row, column in np.argwhere(~np.isnan(values)):
            value = values[row, column]
            colour = "#fafafa" if value > 60 else "#111111"
            panel.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour, size=7)
        drawing.name_rows(panel, tasks)
        panel.set_xticks(range(len(lengths)), list(map(_format_length, lengths)))
        panel.set(title=setting, xlabel="tokens")
    figure.colorbar(image, ax=figure.axes, label="score (%)")
    return figure


def _format_length(tokens: int) -> str:
    for unit, size in (("M", 2**20), ("k", 2**10)):
        if tokens % size == 0:
            return f"{tokens // size}{unit}"
    return f"{tokens:,}"


def _write(
    folder: Annotated[Path, "Folder for the rows."],
    settings: Annotated[str, "By commas."] = ",".join(FULL),
    lengths: Annotated[str, "By commas; also any number of tokens."] = ",".join(LENGTHS),
    tasks: Annotated[str, "By commas."] = ",".join(TASKS),
    samples: Annotated[
        int | None, "Maximum rows of each task and length; the paper's numbers if not given."
    ] = None,
    seed: Annotated[int, "The random seed."] = 0,
    tokens: Annotated[str, "cl100k_base, heuristic or package.module:factory."] = "cl100k_base",
    published: Annotated[bool, "Name tool and codes as the published prompts do."] = False,
) -> Iterator[str]:
    """Write the rows of the benchmark as JSONL. Existing cells are kept."""
    total = 0
    plan = Plan(_split(settings), _split(lengths), _split(tasks), samples, seed, published)
    with RunLock(folder):
        for setting, length, rows in write(plan, folder, counter(tokens)):
            total += rows
            yield f"{setting} {length}: {total:,} rows"
    yield f"wrote {total} rows to {folder}"


def _answer(
    folder: Annotated[Path, "A folder that `write` wrote, or published rows."],
    *,
    policy: Annotated[str, "package.module:factory, or the folder of a trained model."],
    out: Annotated[Path, "Folder for the answers."] = Path("runs/longbench"),
    retrieve_rounds: Annotated[
        int | None,
        "The number of rounds to show, those most similar to the question (5 in the paper).",
    ] = None,
    embed: Annotated[str, "wordllama or package.module:function, instead of BM25."] = "",
) -> Iterator[str]:
    """Let a policy answer the benchmark's rows. Rerunning the command resumes a run."""
    asked = PolicyConfig(policy).make("LongContextQA")
    if retrieve_rounds is None:
        causes = list(answer(folder, out, asked))
    else:
        check_int("retrieve-rounds", retrieve_rounds, 1, 10**6)
        causes = list(answer(folder, out, asked, retriever(retrieve_rounds, embed)))
    lost = list(filter(None, causes))
    yield (
        f"answered {len(causes) - len(lost)} rows in {out}; score them: agentgym longbench score "
        f"{folder} {out}"
    )
    if lost:
        yield f"{len(lost)} have no answer; the same command asks again; the last one: {lost[-1]}"


def _score(
    folder: Annotated[Path, "A folder that `write` wrote, or published rows."],
    answers: Annotated[Path, "A folder of answers, with files of the same names."],
    out: Annotated[Path, "Folder for results, tables and the heat map."] = Path("runs/longbench"),
) -> Iterator[str | Table]:
    """Score answers, and write results, tables of scores and context lengths, and a heat map."""
    yield from _show(score_folder(folder, answers), out)


def _report(
    logs: Annotated[list[Path], "JSONL files of `agentgym rollout LongContextQA --out`."],
    out: Annotated[Path, "Folder for results, tables and the heat map."] = Path("runs/longbench"),
) -> Iterator[str | Table]:
    """Write tables and a heat map for episodes of LongContextQA."""
    episodes = list(chain.from_iterable(map(TrajectoryLog, logs)))
    results = [outcome(each) for each in episodes if not each.failure]
    yield from _show(results, out, len(episodes) - len(results))
    yield from describe_failures(episodes)


def _show(results: Sequence[LongBenchResult], out: Path, missing: int = 0) -> Iterator[str | Table]:
    with RunLock(out):
        yield from write_report(results, out, missing)
    yield f"wrote {out / RESULTS}, {out / SUMMARY}, {out / FIGURE}"


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


_HELP = "AgentLongBench: write its rows, answer them, score the answers."

_COMMANDS = (
    Command(_write, "write", "longbench", _HELP, resumable=True),
    Command(_answer, "answer", "longbench", _HELP, resumable=True),
    Command(_score, "score", "longbench", _HELP),
    Command(_report, "report", "longbench", _HELP),
)

register_paper(Paper("AgentLongBench", commands=_COMMANDS))
