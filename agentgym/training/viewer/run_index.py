"""Index of a run's episodes, which reads logs in parts to follow a running study."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agentgym.training.evaluation import Price
from agentgym.training.rollout.lines import ENDING, read_chunk, read_chunks
from agentgym.training.rollout.storage import check_regular
from agentgym.training.viewer.log_lines import (
    Head,
    StepHead,
    arm_of,
    contains,
    context_of,
    decode,
    instance_key,
    is_trajectory,
    model_of,
    short_world,
    usage_of,
)
from agentgym.training.viewer.run_files import run_files, run_name

# Bytes per refresh, small enough for a large run's first episodes to appear immediately.
PART = 16 << 20


@dataclass(frozen=True, slots=True)
class RunRow:
    """Metrics of one episode for the page's list.

    Attributes:
        number: The episode's position in the index, which may change when the viewer restarts.
        place: The episode's position in the log, which never changes.
        outcome: `solved`, `lost`, the reason for a truncation, `broken` or `damaged`.
        optimal: The share of optimal steps among labelled steps; None without labels.
        instance: A key shared by all episodes of one instance.
        tokens: The maximum number of tokens in a chat; None if not counted.
        prompt_tokens: Prompt tokens of all replies, counted by the server or tokenizer, like
            `reply_tokens`.
        cost: The cost of prompt and reply tokens at the index's prices.
    """

    number: int
    log: str
    place: int
    run: str
    world: str = ""
    arm: str = ""
    context: str = ""
    policy: str = ""
    model: str = ""
    seed: int | None = None
    size: int | None = None
    outcome: str = "damaged"
    reward: float = 0.0
    turns: int = 0
    optimal: float | None = None
    labels: dict[str, int] = field(default_factory=dict)
    instance: str = ""
    agents: tuple[str, ...] = ()
    tokens: int | None = None
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    edits: int = 0
    problem: str = ""


@dataclass(slots=True)
class _Log:
    """A log file and its read position; `identity` changes if the file is replaced."""

    path: Path
    name: str
    run: str
    identity: tuple[int, int]
    is_log: bool
    position: int = 0
    episodes: int = 0


class RunIndex:
    """Episodes of run folders and logs, in order of discovery.

    An unreadable line becomes an episode with the outcome `damaged`. Links that leave a folder are
    ignored. `generation` increases when a replaced log restarts the index. A missing folder or file
    raises `ValueError`.
    """

    def __init__(self, *runs: Path, price: Price | None = None) -> None:
        for run in runs:
            if not run.exists():
                raise ValueError(f"there is no run at {run}; give a run folder or a log (.jsonl)")
            if not run.is_dir():
                check_regular(run)
        self.runs, self.price = runs, price or Price()
        self.generation = 0
        self.rows: list[RunRow] = []
        self._places: list[tuple[Path, int, int, int]] = []
        self._logs: dict[Path, _Log] = {}
        self._lock = threading.Lock()

    @property
    def title(self) -> str:
        """The names of the runs."""
        return ", ".join(run.resolve().name for run in self.runs)

    def files(self) -> list[dict[str, str]]:
        """Return the summaries, settings and figures in the runs' folders."""
        files: list[dict[str, str]] = []
        for run in self.runs:
            files += run_files(run, self._prefix(run))
        return files

    def refresh(self, part: int = PART) -> bool:
        """Read approximately `part` more bytes; report whether any lines remain unread."""
        with self._lock:
            if any(map(_replaced, self._logs.values())):
                self.generation += 1
                self.rows, self._places, self._logs = [], [], {}
            rest = part
            for run, path in self._paths():
                if path not in self._logs:
                    self._logs[path] = self._open(run, path)
                rest -= self._read(self._logs[path], rest)
                if rest <= 0:
                    return True
            return False

    def line(self, number: int) -> bytes:
        """Return the line of an episode, or raise `LookupError`."""
        if not 0 <= number < len(self._places):
            raise LookupError(f"there is no episode {number} among {len(self._places)} episodes")
        path, start, end, place = self._places[number]
        return read_chunk(path, start, end).lines[place]

    def search(self, needle: str, start: int = 0) -> Iterator[int]:
        """Search the episodes from `start` on for a string; yield matching episode numbers."""
        for row in self.rows[max(0, start) :]:
            # The next refresh detects a replaced log.
            with suppress(LookupError, OSError, ValueError):
                if row.outcome != "damaged" and contains(self.line(row.number), needle):
                    yield row.number

    def _paths(self) -> Iterator[tuple[Path, Path]]:
        for run in self.runs:
            if run.is_file():
                yield run, run
                continue
            root = run.resolve()
            for path in sorted(run.rglob("*.jsonl*")):
                is_log = path.name.removesuffix(ENDING).endswith(".jsonl") and path.is_file()
                if is_log and path.resolve().is_relative_to(root):
                    yield run, path

    def _open(self, run: Path, path: Path) -> _Log:
        prefix = self._prefix(run)
        name = prefix or path.name
        if path != run:
            name = "/".join(filter(None, [prefix, path.relative_to(run).as_posix()]))
        return _Log(path, name, run_name(run, path, prefix), _identity(path.stat()), path == run)

    def _prefix(self, run: Path) -> str:
        if len(self.runs) == 1:
            return ""
        names = [other.resolve().name for other in self.runs]
        name = run.resolve().name
        return name if names.count(name) == 1 else run.as_posix()

    def _read(self, log: _Log, most: int) -> int:
        read = 0
        for chunk in read_chunks(log.path, log.position):
            for place, line in enumerate(chunk.lines):
                self._take(log, line, (log.path, chunk.start, chunk.end, place))
                read += len(line)
            log.position = chunk.end
            if read >= most:
                break
        return read

    def _take(self, log: _Log, line: bytes, place: tuple[Path, int, int, int]) -> None:
        where = len(self.rows), log.name, log.episodes, log.run
        try:
            log.is_log = is_trajectory(line) or log.is_log
            row = _row(where, decode(line, Head), self.price)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if not (log.is_log and line.strip()):
                return
            row = RunRow(*where, problem=str(error))
        log.episodes += 1
        self.rows.append(row)
        self._places.append(place)


def _replaced(log: _Log) -> bool:
    try:
        status = log.path.stat()
    except OSError:
        return True
    return _identity(status) != log.identity or status.st_size < log.position


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _row(where: tuple[int, str, int, str], head: Head, price: Price) -> RunRow:
    infos = [step.info for step in head.steps]
    marks = [info["optimal"] for info in infos if info.get("optimal") is not None]
    contexts = [info["context"] for info in infos if info.get("context")]
    agents = [str(info["agent"]) for info in infos if info.get("agent")]
    size = head.labels.get("horizon")
    tokens, seconds = usage_of(head)
    prompt_tokens, reply_tokens = tokens or (None, None)
    return RunRow(
        *where,
        world=str(head.labels.get("world", short_world(head.spec))),
        arm=arm_of(head),
        context=context_of(head),
        policy=str(head.labels.get("policy", "")),
        model=model_of(head),
        seed=head.seed,
        size=size if isinstance(size, int) else None,
        outcome=_outcome(head),
        reward=sum(step.reward for step in head.steps),
        turns=len(head.steps),
        optimal=sum(map(bool, marks)) / len(marks) if marks else None,
        labels=_label_counts(head.steps),
        instance=instance_key(head.spec, head.seed),
        agents=tuple(dict.fromkeys(agents)),
        tokens=max((int(record["tokens"]) for record in contexts), default=None),
        prompt_tokens=prompt_tokens,
        reply_tokens=reply_tokens,
        seconds=seconds,
        cost=(price.of(tokens) or None) if tokens else None,
        edits=sum(len(record["edits"]) for record in contexts),
        problem=head.failure,
    )


def _outcome(head: Head) -> str:
    if head.failure:
        return "broken"
    last = head.steps[-1].info if head.steps else {}
    if last.get("success"):
        return "solved"
    if head.truncated and not head.terminated:
        return str(last.get("detail", {}).get("ended") or "truncated")
    return "lost"


def _label_counts(steps: list[StepHead]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for step in steps:
        words = set(map(str, step.info.get("labels") or ()))
        if not words and step.info.get("optimal") is not None:
            words = {"optimal" if step.info["optimal"] else "not optimal"}
        counts.update(words)
    return dict(counts)
