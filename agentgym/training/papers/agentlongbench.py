"""AgentLongBench as files: write its rows, answer them, score answers, and report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from agentgym.envs.agentlongbench import FULL, TASKS
from agentgym.envs.agentlongbench.published import load_rows, retriever, row_files
from agentgym.envs.agentlongbench.rows import ANSWERS, LENGTHS, TARGETS, count, make_rows, prompt
from agentgym.envs.agentlongbench.scoring import form, last_tag, score_published
from agentgym.play.policy import Policy, PolicyError
from agentgym.text.messages import Chat
from agentgym.text.tokens import TokenCounter, counter
from agentgym.text.validation import check_int, check_shape
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
from agentgym.training.rollout import (
    DamagedFileError,
    PolicyConfig,
    RunLock,
    Trajectory,
    TrajectoryLog,
)
from agentgym.training.rollout.storage import append_text, cut_torn_line, replacing, write_text
from agentgym.world.config import Choice, Config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS, SUMMARY, FIGURE = "results.jsonl", "summary.md", "heatmap.png"

Row: TypeAlias = Mapping[str, Any]

# The benchmark's smallest number per task, for lengths outside it.
_OTHER_LENGTH = 25
_FORMATS = {"c": "concise", "v": "verbose"}
_PARTS = {"env_response": "environment", "tool_response": "tool", "final_guess": "final guess"}


# Fields of a row that scoring does not need.
_HEAVY = ("messages", "evidence", "base_stats_info")
# Fields shared by a row and an episode's report.
_MEASURES = ("setting", "task", "length", "chance", "last_page", "acl_scan", "acl_min")


@with_config(ConfigDict(strict=True, extra="allow"))
class _ScoredRow(TypedDict):
    id: str | int
    setting: Annotated[str, Choice(tuple(FULL))]
    task: Annotated[str, Choice(tuple(TASKS))]
    length: int
    chance: float
    last_page: float | None
    acl_scan: int | None
    acl_min: int | None
    answer: str | int | bool | list[str]


_SCORED: TypeAdapter[Any] = TypeAdapter(_ScoredRow)


@dataclass(frozen=True, slots=True)
class LongBenchResult:
    """The score of one answer.

    Attributes:
        setting: `ki-c`, `ki-v`, `kf-c` or `kf-v`.
        length: The tokens of the bucket.
        score: The score in [0, 1] in the task's metric; 0 without an answer.
        chance: The expected score of the best constant answer.
        last_page: The expected score of an answer from the log's last page alone; None, like the
            next two, if the row has only published fields.
        acl_scan: The tokens of the evidence.
        acl_min: The tokens of a minimal part that proves the answer.
    """

    setting: str
    task: str
    length: int
    score: float
    chance: float
    last_page: float | None
    acl_scan: int | None
    acl_min: int | None
    answered: bool


@dataclass(frozen=True)
class Plan(Config):
    """The rows to write.

    Attributes:
        settings: Some of the four settings.
        lengths: Lengths of the benchmark, by name, or numbers of tokens.
        tasks: Some of the eight tasks.
        samples: Maximum samples per cell; None for the paper's numbers (25 at other lengths).
        seed: The random seed.
        published: Whether the tool and the codes have the names that the published prompts use.
    """

    settings: Sequence[Annotated[str, Choice(FULL)]] = tuple(FULL)
    lengths: Sequence[str] = tuple(LENGTHS)
    tasks: Sequence[Annotated[str, Choice(TASKS)]] = tuple(TASKS)
    samples: Annotated[int, Field(ge=1, le=100_000)] | None = None
    seed: int = 0
    published: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        names = {name.lower(): name for name in LENGTHS}
        lengths = tuple(names.get(length.lower(), length) for length in self.lengths)
        object.__setattr__(self, "lengths", lengths)
        for length in lengths:
            if length not in LENGTHS and not length.isdigit():
                raise ValueError(
                    f"lengths must be among {', '.join(LENGTHS)}, or numbers of tokens, got "
                    f"{length!r}"
                )

    def cells(self) -> list[tuple[str, str]]:
        """Return settings and lengths, ordered by length."""
        return [(setting, length) for length in self.lengths for setting in self.settings]

    def counts(self, setting: str, length: str) -> dict[str, int]:
        """Return the samples of each task in a cell."""
        counts = {}
        for task in self.tasks:
            most = _OTHER_LENGTH
            if length in LENGTHS:
                most = count(setting, length, task)
            counts[task] = min(self.samples or most, most)
        return counts


def write(plan: Plan, out: Path, counter: TokenCounter) -> Iterator[tuple[str, str, int]]:
    """Write the rows log by log into one folder per setting and length, keeping existing cells.

    Yields:
        Setting, length and the number of rows after each log, with 0 after each existing cell.
    """
    for setting, length in plan.cells():
        folder, counts = out / setting / length, plan.counts(setting, length)
        files = {task: folder / TARGETS[task] / f"{task}.jsonl" for task in counts}
        if all(path.exists() for path in files.values()):
            yield setting, length, 0
            continue
        for path in files.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        lines_so_far: list[str] = []
        with ExitStack() as stack:
            open_files = {
                task: stack.enter_context(replacing(path)) for task, path in files.items()
            }
            tokens = LENGTHS[length] if length in LENGTHS else int(length)
            for sample in range(max(counts.values())):
                rows = make_rows(
                    *(setting, tokens, sample, counts, plan.seed, counter), published=plan.published
                )
                lines = _write_log(rows, open_files)
                lines_so_far += lines
                yield setting, length, len(lines)
            _write_answers(folder / ANSWERS, lines_so_far, set(counts))


def _write_answers(path: Path, lines: Sequence[str], tasks: set[str]) -> None:
    before = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    others = [line for line in before if json.loads(line)["task"] not in tasks]
    write_text(path, "".join([*others, *lines]))


def _write_log(rows: Iterable[Mapping[str, Any]], files: Mapping[str, IO[bytes]]) -> list[str]:
    lines = []
    for row in rows:
        files[row["task"]].write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        light = {key: value for key, value in row.items() if key not in _HEAVY}
        lines.append(json.dumps(light, ensure_ascii=False) + "\n")
    return lines


# consecutive unanswered rows; more are not a single row's fault
MAX_SILENT = 3


def answer(
    data: Path, out: Path, policy: Policy, shorten: Callable[[Row], Row] = lambda row: row
) -> Iterator[str]:
    """Answer all rows with a policy, in files of the same names.

    Answered rows are skipped, so a rerun retries rows without a reply. `shorten` selects the part of
    a row that the policy sees.

    Yields:
        After each row, an empty text, or the reason for a missing answer.

    Raises:
        PolicyError: The policy failed on several consecutive rows.
        RunLockedError: Another process writes to the folder.
    """
    silent = 0
    with RunLock(out):
        for path in row_files(data):
            for error in _answer_file(path, _answers_to(path, data, out), policy, shorten):
                silent = silent + 1 if error else 0
                if error and silent > MAX_SILENT:
                    raise error
                yield str(error or "")


def _answers_to(path: Path, data: Path, out: Path) -> Path:
    """Return the file of the answers to a file of rows."""
    return out / (path.name if path == data else path.relative_to(data))


def _answer_file(
    path: Path, target: Path, policy: Policy, shorten: Callable[[Row], Row]
) -> Iterator[PolicyError | None]:
    """Answer a file's open rows; yield the error of each row without an answer."""
    target.parent.mkdir(parents=True, exist_ok=True)
    cut_torn_line(target)
    answered = set(_replies(target))
    with path.open(encoding="utf-8") as rows:
        for row in map(json.loads, rows):
            if str(row["id"]) not in answered:
                try:
                    (reply,) = policy([Chat.from_openai(prompt(shorten(row)))])
                except PolicyError as failure:
                    yield failure
                    continue
                line = {
                    "id": row["id"],
                    "question_type": row["question_type"],
                    "raw_response": reply.text,
                }
                append_text(target, json.dumps(line, ensure_ascii=False) + "\n")
            yield None


def score_folder(data: Path, predictions: Path) -> list[LongBenchResult]:
    """Score predictions as the published evaluator does, except that rows without one score 0.

    Prediction files have the names of the row files; their lines have an `id` and a `raw_response`
    (or a `pred_answer`). The last of several predictions counts. A folder may have only the
    published fields.

    Raises:
        ValueError: There are no rows, or one is malformed.
    """
    results, replies = [], dict[Path, dict[str, str]]()
    names = {tokens: name for name, tokens in LENGTHS.items()}
    for row in _answer_rows(data):
        length = names.get(row["length"], str(row["length"]))
        path = predictions / row["setting"] / length / TARGETS[row["task"]] / f"{row['task']}.jsonl"
        if path not in replies:
            replies[path] = _replies(path)
        results.append(score_reply(row, replies[path].get(str(row["id"]), "")))
    return results or _score_published(data, predictions)


def _answer_rows(data: Path) -> Iterator[Row]:
    """Yield the rows of a folder without their messages."""
    for path in sorted(data.glob(f"*/*/{ANSWERS}")):
        if not path.is_file():
            raise DamagedFileError(path, "it must be a file")
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                yield check_shape(_SCORED, line)
            except ValueError as error:
                raise DamagedFileError(path, f"it is no row of answers ({error})", number) from None


def _score_published(data: Path, predictions: Path) -> list[LongBenchResult]:
    """Score predictions for rows with only the published fields."""
    results, replies = [], dict[Path, dict[str, str]]()
    for row in load_rows(str(data)):
        path = _answers_to(row.path, data, predictions)
        if path not in replies:
            replies[path] = _replies(path)
        measures: dict[str, Any] = {
            **dict.fromkeys(_MEASURES),
            **{name: getattr(row, name) for name in ("setting", "task", "length", "chance")},
            "answer": row.fields["answer"],
        }
        results.append(score_reply(measures, replies[path].get(str(row.fields["id"]), "")))
    return results


def score_reply(row: Mapping[str, Any], reply: str) -> LongBenchResult:
    """Score a reply to a row."""
    kind = form(row["task"], _FORMATS[row["setting"][-1]])
    value = last_tag(reply)
    points = None if value is None else score_published(kind, row["setting"], row["answer"], value)
    return LongBenchResult(
        **{name: row[name] for name in _MEASURES},
        score=points or 0.0,
        answered=points is not None,
    )


def outcome(trajectory: Trajectory) -> LongBenchResult:
    """Return the result of an episode of LongContextQA.

    Raises:
        ValueError: It has not ended, or belongs to another world.
    """
    report = (trajectory.steps[-1].info["detail"].get("report") if trajectory.steps else None) or {}
    if "acl_scan" not in report:
        raise ValueError(
            f"the trajectory of seed {trajectory.seed} has no report of LongContextQA at its end"
        )
    return LongBenchResult(
        **{name: report[name] for name in _MEASURES},
        score=float(trajectory.reward),
        answered=trajectory.terminated,
    )


def _replies(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    replies = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
            raw = row.get("raw_response")
            replies[str(row["id"])] = (
                raw if isinstance(raw, str) else f"<answer>{row.get('pred_answer', '')}</answer>"
            )
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise DamagedFileError(path, f"it is no answer to a row ({error!r})", number) from None
    return replies


def context_table(results: Sequence[LongBenchResult]) -> Table:
    """Return scores and adequate context lengths by question subject and length (table 2)."""
    groups: dict[tuple[int, str, int], list[LongBenchResult]] = {}
    parts = list(_PARTS)
    for each in results:
        key = each.length, _FORMATS[each.setting[-1]], parts.index(TARGETS[each.task])
        groups.setdefault(key, []).append(each)
    lines = []
    for (length, style, part), rows in sorted(groups.items()):
        line = [style, _PARTS[parts[part]], f"{length:,}", str(len(rows))]
        for name in ("acl_scan", "acl_min"):
            line += [_mean_text(rows, name, 1)]
        lines.append([*line, f"{100 * mean(rows, 'score'):.1f}", *_baselines(rows)])
    header = ["format", "asked about", "length", "rows", "ACL (scan)", "ACL (least)", "score"]
    return "Adequate context length (tokens) and scores in %", [*header, *_BASELINES], lines


def score_table(results: Sequence[LongBenchResult]) -> Table:
    """Return mean scores by setting, task and length, with both baselines."""
    lines = []
    for (setting, task, length), rows in _by_cell(results).items():
        share = f"{100 * mean(rows, 'score'):.1f}"
        if {row.score for row in rows} <= {0.0, 1.0}:
            share = percent(wilson(sum(row.score for row in rows), len(rows)))
        lines.append([setting, task, f"{length:,}", str(len(rows)), share, *_baselines(rows)])
    header = ["setting", "task", "length", "rows", "score", *_BASELINES]
    return "Scores in %, of right and wrong answers with Wilson's 95 % interval", header, lines


# the last columns of both tables
_BASELINES = ("chance", "last page", "unanswered")


def _baselines(rows: Sequence[LongBenchResult]) -> list[str]:
    shares = [_mean_text(rows, name, 100) for name in ("chance", "last_page")]
    return [*shares, str(sum(not row.answered for row in rows))]


def _mean_text(rows: Sequence[LongBenchResult], name: str, factor: int) -> str:
    known = [row for row in rows if getattr(row, name) is not None]
    return f"{factor * mean(known, name):,.1f}" if known else "-"


def mean(rows: Sequence[LongBenchResult], name: str) -> float:
    """Return the mean of an attribute."""
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
    """Write results, tables and heat map into a folder, and return the tables."""
    if not results:
        raise ValueError("there are no episodes to report on")
    from agentgym.training.evaluation import plots  # noqa: PLC0415 - matplotlib is slow to import, and an extra

    out.mkdir(parents=True, exist_ok=True)
    lacking = f"; {missing} episodes are missing" if missing else ""
    tables = []
    for title, header, lines in (score_table(results), context_table(results)):
        tables.append((title + lacking, header, lines))
    write_text(out / RESULTS, "".join(json.dumps(asdict(each)) + "\n" for each in results))
    write_text(out / SUMMARY, "\n\n".join(map(to_markdown, tables)) + "\n")
    figure = heatmap_figure(cells(results))
    silent = sum(not each.answered for each in results)
    figure.supxlabel(f"{silent} of {len(results)} without an answer{lacking}", fontsize="small")
    plots.save(figure, out / FIGURE)
    return tables


def heatmap_figure(cells: Mapping[tuple[str, str, int], float]) -> Figure:
    """Draw mean scores in [0, 1] by task and length, one panel per setting (figures 3 to 6)."""
    from agentgym.training.evaluation import plots  # noqa: PLC0415 - matplotlib is slow to import, and an extra

    settings = list(dict.fromkeys(key[0] for key in cells))
    tasks = list(dict.fromkeys(key[1] for key in cells))
    lengths = sorted({key[2] for key in cells})
    width = 3.2 + (0.6 * len(lengths) + 0.4) * len(settings)
    figure = plots.new_figure(width, 1.4 + 0.4 * len(tasks))
    axes = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for panel, setting in zip(axes, settings, strict=True):
        values = 100 * np.array(
            [[cells.get((setting, task, length), np.nan) for length in lengths] for task in tasks]
        )
        image = panel.imshow(values, vmin=0, vmax=100, cmap="RdYlGn", aspect="auto", alpha=0.75)
        for row, column in np.argwhere(~np.isnan(values)):
            panel.text(
                column, row, f"{values[row, column]:.1f}", ha="center", va="center", fontsize=8
            )
        panel.set_xticks(range(len(lengths)), [_format_length(length) for length in lengths])
        panel.set_yticks(range(len(tasks)), tasks)
        panel.set(title=setting, xlabel="tokens")
    figure.colorbar(image, ax=axes.tolist(), label="score (%)")
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
        int | None, "At most so many of each cell; all of the paper's if not given."
    ] = None,
    seed: Annotated[int, "Seeds all that is drawn."] = 0,
    tokens: Annotated[str, "cl100k_base, heuristic or package.module:factory."] = "cl100k_base",
    published: Annotated[bool, "Name tool and codes as the published prompts do."] = False,
) -> Iterator[str]:
    """Write the rows of the benchmark as JSONL. Cells that are there already are kept."""
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
        int | None, "Show only so many rounds, those most similar to the question (5 in the paper)."
    ] = None,
    embed: Annotated[str, "wordllama or package.module:function, instead of BM25."] = "",
) -> Iterator[str]:
    """Let a policy answer the rows. The same command goes on where it was stopped."""
    asked = PolicyConfig(policy).make("LongContextQA")
    if retrieve_rounds is None:
        causes = list(answer(folder, out, asked))
    else:
        check_int("retrieve-rounds", retrieve_rounds, 1, 10**6)
        causes = list(answer(folder, out, asked, retriever(retrieve_rounds, embed)))
    lost = [cause for cause in causes if cause]
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
    """Score answers: results, tables of scores and context lengths, and the heat map."""
    yield from _show(score_folder(folder, answers), out)


def _report(
    logs: Annotated[list[Path], "JSONL files of `agentgym rollout LongContextQA --out`."],
    out: Annotated[Path, "Folder for results, tables and the heat map."] = Path("runs/longbench"),
) -> Iterator[str | Table]:
    """The same tables and heat map of episodes of LongContextQA."""
    episodes = [each for path in logs for each in TrajectoryLog(path)]
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
