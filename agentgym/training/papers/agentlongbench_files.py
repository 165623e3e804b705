"""AgentLongBench as files: write its rows, answer them, and score answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from agentgym.envs.agentlongbench import FULL, SETTINGS, TASKS
from agentgym.envs.agentlongbench.published import load_rows, row_files
from agentgym.envs.agentlongbench.rows import ANSWERS, LENGTHS, TARGETS, count, make_rows, prompt
from agentgym.envs.agentlongbench.scoring import form, last_tag, score_published
from agentgym.play.policy import Policy, PolicyError
from agentgym.text.messages import Chat
from agentgym.text.tokens import TokenCounter
from agentgym.text.validation import check_shape
from agentgym.training.rollout import DamagedFileError, RunLock, Trajectory
from agentgym.training.rollout.storage import append_text, cut_torn_line, replacing, write_text
from agentgym.world.config import Choice, Config

Row: TypeAlias = Mapping[str, Any]

MAX_SILENT = 3
"""Consecutive unanswered rows; more have a common cause."""
_OTHER_LENGTH = 25  # number of rows per task at lengths outside the benchmark
# Fields of a row that scoring does not need.
_HEAVY = ("messages", "evidence", "base_stats_info")
_PUBLISHED_MEASURES = ("setting", "task", "length", "chance")
# Fields shared by a row and an episode's report.
_MEASURES = (*_PUBLISHED_MEASURES, "acl_scan", "acl_min")


@with_config(ConfigDict(strict=True, extra="allow"))
class _ScoredRow(TypedDict):
    id: str | int
    setting: Annotated[str, Choice(tuple(FULL))]
    task: Annotated[str, Choice(tuple(TASKS))]
    length: int
    chance: float
    acl_scan: int | None
    acl_min: int | None
    answer: str | int | bool | list[str]


_SCORED: TypeAdapter[Any] = TypeAdapter(_ScoredRow)


@dataclass(frozen=True, slots=True)
class LongBenchResult:
    """The score of one answer.

    Attributes:
        score: The score in [0, 1] by the task's metric; 0 without an answer.
        chance: The expected score of the best constant answer.
        acl_scan: The number of tokens in the evidence. The fields `acl_scan` and `acl_min` are None
            for rows in the published format.
        acl_min: The number of tokens in a minimal part of the log that proves the answer.
    """

    setting: str
    task: str
    length: int
    score: float
    chance: float
    acl_scan: int | None
    acl_min: int | None
    answered: bool


@dataclass(frozen=True)
class Plan(Config):
    """The rows to write.

    Attributes:
        lengths: The benchmark's length names, or numbers of tokens.
        samples: Maximum samples per setting, length and task; None for the paper's numbers (25 at
            other lengths).
        published: Whether to use the tool name and the codes of the published prompts.
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
        lengths = []
        for given in self.lengths:
            length = names.get(given.lower(), given)
            if length not in LENGTHS and not length.isdigit():
                raise ValueError(
                    f"lengths must be among {', '.join(LENGTHS)}, or numbers of tokens, got "
                    f"{length!r}"
                )
            lengths.append(length)
        object.__setattr__(self, "lengths", tuple(lengths))

    def cells(self) -> list[tuple[str, str]]:
        """Return the (setting, length) pairs, ordered by length."""
        return [(setting, length) for length in self.lengths for setting in self.settings]

    def counts(self, setting: str, length: str) -> dict[str, int]:
        """Return the number of samples for each task."""
        counts = {}
        for task in self.tasks:
            most = _OTHER_LENGTH
            if length in LENGTHS:
                most = count(setting, length, task)
            counts[task] = min(self.samples or most, most)
        return counts


def write(plan: Plan, out: Path, counter: TokenCounter) -> Iterator[tuple[str, str, int]]:
    """Write the rows into one folder per setting and length, keeping existing cells.

    Yields: For each new log, the setting, the length and the number of its rows; for an existing
        cell, the number is 0.
    """
    for setting, length in plan.cells():
        folder, counts = out / setting / length, plan.counts(setting, length)
        files = {task: folder / TARGETS[task] / f"{task}.jsonl" for task in counts}
        if all(path.exists() for path in files.values()):
            yield setting, length, 0
            continue
        lines_so_far: list[str] = []
        with ExitStack() as stack:
            open_files = {}
            for task, path in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                open_files[task] = stack.enter_context(replacing(path))
            tokens = LENGTHS.get(length) or int(length)
            for sample in range(max(counts.values())):
                rows = make_rows(
                    *(setting, tokens, sample, counts, plan.seed, counter), published=plan.published
                )
                lines = _write_log(rows, open_files)
                lines_so_far += lines
                yield setting, length, len(lines)
            _write_answers(folder / ANSWERS, lines_so_far, set(counts))


def _write_answers(path: Path, lines: Sequence[str], tasks: set[str]) -> None:
    others = []
    if path.exists():
        before = path.read_text(encoding="utf-8").splitlines(keepends=True)
        others = [line for line in before if json.loads(line)["task"] not in tasks]
    write_text(path, "".join([*others, *lines]))


def _write_log(rows: Iterable[Mapping[str, Any]], files: Mapping[str, IO[bytes]]) -> list[str]:
    lines = []
    for row in rows:
        files[row["task"]].write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        light = {key: value for key, value in row.items() if key not in _HEAVY}
        lines.append(json.dumps(light, ensure_ascii=False) + "\n")
    return lines


def answer(
    data: Path, out: Path, policy: Policy, shorten: Callable[[Row], Row] = lambda row: row
) -> Iterator[str]:
    """Answer all rows with a policy, and write the answers to files named like the row files.

    A rerun retries only rows without a reply. `shorten` selects the part of a row that the policy
    sees.

    Yields: An empty string after each row, or the reason for a missing answer.

    Raises:
        PolicyError: The policy failed on several consecutive rows.
        RunLockedError: Another process is writing to the folder.
    """
    silent = 0
    with RunLock(out):
        for path in row_files(data):
            for error in _answer_file(path, _answers_to(path, data, out), policy, shorten):
                silent += 1
                if not error:
                    silent = 0
                elif silent > MAX_SILENT:
                    raise error
                yield str(error or "")


def _answers_to(path: Path, data: Path, out: Path) -> Path:
    if path == data:
        return out / path.name
    return out / path.relative_to(data)


def _answer_file(
    path: Path, target: Path, policy: Policy, shorten: Callable[[Row], Row]
) -> Iterator[PolicyError | None]:
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
    """Score predictions as the published evaluator does, but rows without predictions score 0.

    Prediction files are named like the row files. Each line has an `id` and a `raw_response` (or
    a `pred_answer`). The last prediction for an `id` counts. Rows need only the published fields.
    Missing or malformed rows raise `ValueError`.
    """
    results, replies = [], dict[Path, dict[str, str]]()
    for path, row in _rows_to_score(data, predictions):
        if path not in replies:
            replies[path] = _replies(path)
        results.append(score_reply(row, replies[path].get(str(row["id"]), "")))
    return results


def _rows_to_score(data: Path, predictions: Path) -> Iterator[tuple[Path, Row]]:
    files = sorted(data.glob(f"*/*/{ANSWERS}"))
    for file in files:
        folder = predictions / file.parent.relative_to(data)
        for row in _answer_rows(file):
            yield folder / TARGETS[row["task"]] / f"{row['task']}.jsonl", row
    if not files:
        for published in load_rows(str(data)):
            measures: dict[str, Any] = dict.fromkeys(_MEASURES)
            for name in _PUBLISHED_MEASURES:
                measures[name] = getattr(published, name)
            yield _answers_to(published.path, data, predictions), {**published.fields, **measures}


def _answer_rows(file: Path) -> Iterator[Row]:
    if not file.is_file():
        raise DamagedFileError(file, "it must be a file")
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            yield check_shape(_SCORED, line)
        except ValueError as error:
            raise DamagedFileError(file, f"it is no row of answers ({error})", number) from None


def score_reply(row: Mapping[str, Any], reply: str) -> LongBenchResult:
    """Score a reply to a row."""
    kind = form(row["task"], SETTINGS[row["setting"]]["style"])
    points, value = None, last_tag(reply)
    if value is not None:
        points = score_published(kind, row["setting"], row["answer"], value)
    return _result(row, points or 0.0, points is not None)


def _result(measures: Mapping[str, Any], score: float, answered: bool) -> LongBenchResult:
    shared = {name: measures[name] for name in _MEASURES}
    return LongBenchResult(**shared, score=score, answered=answered)


def outcome(trajectory: Trajectory) -> LongBenchResult:
    """Return the result of an episode of LongContextQA; `ValueError` if it has not ended."""
    report: Mapping[str, Any] = {}
    if trajectory.steps:
        report = trajectory.steps[-1].info["detail"].get("report") or {}
    if "acl_scan" not in report:
        raise ValueError(
            f"the trajectory of seed {trajectory.seed} does not end with a report of LongContextQA"
        )
    return _result(report, float(trajectory.reward), trajectory.terminated)


def _replies(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    replies = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
            reply = row.get("raw_response")
            if not isinstance(reply, str):
                reply = f"<answer>{row.get('pred_answer', '')}</answer>"
            replies[str(row["id"])] = reply
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise DamagedFileError(path, f"it is no answer to a row ({error!r})", number) from None
    return replies
