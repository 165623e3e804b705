"""AgentLongBench as files: writing its rows, answering them, scoring the answers, and the figures of the paper."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from agentgym.envs.agentlongbench.config import FULL
from agentgym.envs.agentlongbench.rows import LENGTHS, TARGETS, count, make_rows, prompt
from agentgym.envs.agentlongbench.scoring import TASKS, form, last_tag, read, score
from agentgym.messages import Chat
from agentgym.policy import Policy
from agentgym.tokens import TokenCounter
from agentgym.training.evaluation.tables import Table, percent, to_markdown
from agentgym.training.papers.lore import wilson
from agentgym.training.rollout.trajectory import Trajectory
from agentgym.world import check_choice, check_int

ANSWERS = "answers.jsonl"
"""The rows without their messages: what scoring reads."""

RESULTS, SUMMARY, FIGURE = "results.jsonl", "summary.md", "heatmap.png"

_FORMATS = {"c": "concise", "v": "verbose"}
_PARTS = {"env_response": "environment", "tool_response": "tool", "final_guess": "final guess"}


@dataclass(frozen=True, slots=True)
class LongBenchResult:
    """The score of one answer.

    Attributes:
        setting: `ki-c`, `ki-v`, `kf-c` or `kf-v`.
        task: The task.
        length: The tokens of the bucket.
        score: In [0, 1], in the metric of the task; 0 where there is no answer.
        chance: What drawing an answer without looking scores in the mean.
        acl_scan: The tokens of the evidence.
        acl_min: Those of a smallest part that proves the answer.
        answered: Whether there was a reply with an answer in it.
    """

    setting: str
    task: str
    length: int
    score: float
    chance: float
    acl_scan: int
    acl_min: int
    answered: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rows are written.

    Attributes:
        settings: Some of the four settings.
        lengths: Some of the lengths of the benchmark, by name, or numbers of tokens.
        tasks: Some of the eight tasks.
        samples: At most so many samples of each cell; None for the numbers of the paper (25 at other lengths).
        seed: Seeds all that is drawn.
    """

    settings: Sequence[str] = tuple(FULL)
    lengths: Sequence[str] = tuple(LENGTHS)
    tasks: Sequence[str] = tuple(TASKS)
    samples: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for setting in self.settings:
            check_choice("settings", setting, list(FULL))
        for task in self.tasks:
            check_choice("tasks", task, list(TASKS))
        for length in self.lengths:
            if length not in LENGTHS and not length.isdigit():
                raise ValueError(f"lengths must be among {', '.join(LENGTHS)}, or numbers of tokens, got {length!r}")
        if self.samples is not None:
            check_int("samples", self.samples, 1, 100_000)

    def cells(self) -> list[tuple[str, str]]:
        """Settings and lengths, shortest first."""
        return [(setting, length) for length in self.lengths for setting in self.settings]

    def counts(self, setting: str, length: str) -> dict[str, int]:
        """The samples of each task in a cell."""
        most = self.samples if self.samples is not None else 10**9
        return {task: min(most, count(setting, length, task) if length in LENGTHS else 25) for task in self.tasks}


def write(plan: Plan, out: Path, counter: TokenCounter) -> Iterator[tuple[str, str, int]]:
    """Write the rows, log by log, each cell of setting and length into its folder; a cell that is there already stays as it is.

    Yields:
        Setting, length and how many rows were written, after each log, and with 0 after each cell that was there.
    """
    for setting, length in plan.cells():
        folder, counts = out / setting / length, plan.counts(setting, length)
        files = {task: folder / TARGETS[task] / f"{task}.jsonl" for task in counts}
        if all(path.exists() for path in files.values()):
            yield setting, length, 0
            continue
        for path in files.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        parts = {task: path.with_suffix(".part") for task, path in files.items()}
        told: list[str] = []
        open_files = {task: part.open("w", encoding="utf-8") for task, part in parts.items()}
        try:
            for sample in range(max(counts.values())):
                tokens = LENGTHS[length] if length in LENGTHS else int(length)
                lines = _write_log(make_rows(setting, tokens, sample, counts, plan.seed, counter), open_files)
                told += lines
                yield setting, length, len(lines)
        finally:
            for file in open_files.values():
                file.close()
        _write_answers(folder / ANSWERS, told, set(counts))
        for task, part in parts.items():
            part.replace(files[task])


def _write_answers(path: Path, lines: Sequence[str], tasks: set[str]) -> None:
    """Write what scoring reads of a cell; lines of tasks that were written before stay."""
    before = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    kept = [line for line in before if json.loads(line)["task"] not in tasks]
    part = path.with_suffix(".part")
    part.write_text("".join([*kept, *lines]), encoding="utf-8")
    part.replace(path)


def _write_log(rows: Iterable[Mapping[str, Any]], files: Mapping[str, TextIO]) -> list[str]:
    """Write the rows of a log; what scoring needs of each, as a line."""
    told = []
    for row in rows:
        files[row["task"]].write(json.dumps(row, ensure_ascii=False) + "\n")
        light = {key: value for key, value in row.items() if key not in ("messages", "evidence", "base_stats_info")}
        told.append(json.dumps(light, ensure_ascii=False) + "\n")
    return told


def answer(data: Path, out: Path, policy: Policy) -> Iterator[int]:
    """Let a policy answer all rows, into files of the same names; rows that were answered already are left out.

    Yields:
        1 after each row.
    """
    for path in sorted(data.glob("*/*/*/*.jsonl")):
        target = out / path.relative_to(data)
        target.parent.mkdir(parents=True, exist_ok=True)
        known = set(_replies(target))
        with path.open(encoding="utf-8") as rows, target.open("a", encoding="utf-8") as file:
            for row in map(json.loads, rows):
                if str(row["id"]) not in known:
                    (reply,) = policy([Chat.from_openai(prompt(row))])
                    told = {"id": row["id"], "question_type": row["question_type"], "raw_response": reply.text}
                    file.write(json.dumps(told, ensure_ascii=False) + "\n")
                    file.flush()
                yield 1


def score_folder(data: Path, predictions: Path) -> list[LongBenchResult]:
    """Score predictions. Every row counts once: one without a prediction scores 0, and of several the last counts.

    Args:
        data: A folder that `write` wrote.
        predictions: A folder with files of the same names, whose lines have an `id` and a `raw_response` (or a `pred_answer`).

    Raises:
        ValueError: There are no rows.
        OSError: A file cannot be read.
    """
    outcomes, replies = [], dict[Path, dict[str, str]]()
    names = {tokens: name for name, tokens in LENGTHS.items()}
    lines = [line for path in sorted(data.glob(f"*/*/{ANSWERS}")) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in map(json.loads, lines):
        length = names.get(row["length"], str(row["length"]))
        path = predictions / row["setting"] / length / TARGETS[row["task"]] / f"{row['task']}.jsonl"
        if path not in replies:
            replies[path] = _replies(path)
        outcomes.append(label_calls(row, replies[path].get(str(row["id"]), "")))
    if not outcomes:
        raise ValueError(f"{data} holds no rows; run: agentgym longbench write {data}")
    return outcomes


def label_calls(row: Mapping[str, Any], reply: str) -> LongBenchResult:
    """The score of a reply to a row."""
    kind = form(row["task"], _FORMATS[row["setting"][-1]])
    value = last_tag(reply)
    given = None if value is None else read(kind, value)
    fields = {name: row[name] for name in ("setting", "task", "length", "chance", "acl_scan", "acl_min")}
    return LongBenchResult(**fields, score=score(kind, row["answer"], given), answered=given is not None)


def outcome(trajectory: Trajectory) -> LongBenchResult:
    """The outcome of an episode of LongContextQA.

    Raises:
        ValueError: It has not ended, or was played in another world.
    """
    report = (trajectory.steps[-1].info["detail"].get("report") if trajectory.steps else None) or {}
    if "acl_scan" not in report:
        raise ValueError(f"the trajectory of seed {trajectory.seed} has no report of LongContextQA at its end")
    fields = {name: report[name] for name in ("setting", "task", "length", "chance", "acl_scan", "acl_min")}
    return LongBenchResult(**fields, score=float(trajectory.reward), answered=trajectory.terminated)


def _replies(path: Path) -> dict[str, str]:
    """The replies in a file of predictions, by the id of the row."""
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {str(row["id"]): _reply(row) for row in rows}


def _reply(row: Mapping[str, Any]) -> str:
    raw = row.get("raw_response")
    return raw if isinstance(raw, str) else f"<answer>{row.get('pred_answer', '')}</answer>"


def context_table(outcomes: Sequence[LongBenchResult]) -> Table:
    """Scores beside the adequate context lengths, by what is asked about, as in table 2, for each length."""
    groups: dict[tuple[str, str, int], list[LongBenchResult]] = {}
    for each in outcomes:
        groups.setdefault((_FORMATS[each.setting[-1]], TARGETS[each.task], each.length), []).append(each)
    header = ["format", "asked about", "length", "rows", "ACL (scan)", "ACL (least)", "score", "chance", "unanswered"]
    lines = []
    for style, part, length in sorted(groups, key=lambda key: (key[2], key[0], list(_PARTS).index(key[1]))):
        rows = groups[style, part, length]
        means = [mean(rows, name) for name in ("acl_scan", "acl_min")]
        shares = [f"{100 * mean(rows, name):.1f}" for name in ("score", "chance")]
        numbers = [f"{length:,}", str(len(rows)), *(f"{value:,.1f}" for value in means), *shares]
        lines.append([style, _PARTS[part], *numbers, str(sum(not row.answered for row in rows))])
    return "Adequate context length (tokens) and scores in %", header, lines


def score_table(outcomes: Sequence[LongBenchResult]) -> Table:
    """The mean score of each setting, task and length, beside that of chance."""
    header = ["setting", "task", "length", "rows", "score", "chance"]
    lines = []
    for (setting, task, length), rows in _by_cell(outcomes).items():
        lines.append([setting, task, f"{length:,}", str(len(rows)), _share(rows), f"{100 * mean(rows, 'chance'):.1f}"])
    return "Scores in %, of right and wrong answers with Wilson's 95 % interval", header, lines


def _share(rows: Sequence[LongBenchResult]) -> str:
    """The mean score in %, with its interval where every answer is right or wrong."""
    if all(row.score in (0.0, 1.0) for row in rows):
        return percent(wilson(round(sum(row.score for row in rows)), len(rows)))
    return f"{100 * mean(rows, 'score'):.1f}"


def mean(rows: Sequence[LongBenchResult], name: str) -> float:
    """The mean of an attribute."""
    return float(sum(getattr(row, name) for row in rows) / len(rows))


def cells(outcomes: Sequence[LongBenchResult]) -> dict[tuple[str, str, int], float]:
    """The mean score by setting, task and length, in the order of the paper."""
    return {key: mean(rows, "score") for key, rows in _by_cell(outcomes).items()}


def _by_cell(outcomes: Sequence[LongBenchResult]) -> dict[tuple[str, str, int], list[LongBenchResult]]:
    groups: dict[tuple[str, str, int], list[LongBenchResult]] = {}
    for each in sorted(outcomes, key=lambda each: (list(FULL).index(each.setting), list(TASKS).index(each.task), each.length)):
        groups.setdefault((each.setting, TASKS[each.task], each.length), []).append(each)
    return groups


def write_report(
    outcomes: Sequence[LongBenchResult], out: Path, plot: Callable[[Mapping[tuple[str, str, int], float], Path], None]
) -> list[Table]:
    """Write the outcomes, one in a line, the tables as Markdown, and the heat map.

    Returns:
        The tables.
    """
    out.mkdir(parents=True, exist_ok=True)
    tables = [score_table(outcomes), context_table(outcomes)]
    (out / RESULTS).write_text("".join(json.dumps(asdict(each)) + "\n" for each in outcomes), encoding="utf-8")
    (out / SUMMARY).write_text("\n\n".join(map(to_markdown, tables)) + "\n", encoding="utf-8")
    plot(cells(outcomes), out / FIGURE)
    return tables
