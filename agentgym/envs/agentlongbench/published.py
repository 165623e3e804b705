"""Load published rows and check that their answers follow from their logs.

A row has an oracle only if this package derives the same answer from the log.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from agentgym.envs.agentlongbench import SETTINGS, TASKS
from agentgym.envs.agentlongbench.config import WEIGHTS
from agentgym.envs.agentlongbench.engine import read_verdicts
from agentgym.envs.agentlongbench.logs import LARGEST, LogMessages, RoundMessages
from agentgym.envs.agentlongbench.questions import Evidence, QuestionSpec
from agentgym.envs.agentlongbench.rows import ANSWERS, LENGTHS
from agentgym.envs.agentlongbench.scoring import Answer, form
from agentgym.envs.agentlongbench.tasks import LogQuestion, Span, as_json
from agentgym.envs.reading import describe_faults
from agentgym.text.messages import Chat, Message
from agentgym.text.search import Dense, Lexical, load_embed
from agentgym.text.tokens import TokenCounter, counter
from agentgym.world.config import Choice

_TASKS = {label: task for task, label in TASKS.items()}
_NAMES = ("target_name", "pokemon_name", "guess_name", "property_value")
_LARGEST_IN = ("Base Stats", "attr_2")
_ROUND = re.compile(r"Round ([0-9]+):")


class _Function(TypedDict):
    name: str
    arguments: str | dict[str, Any]


class _Call(TypedDict):
    function: _Function


@with_config(ConfigDict(strict=True, extra="allow"))
class _Message(TypedDict):
    role: Literal["system", "user", "assistant", "tool"]
    content: NotRequired[str | None]
    tool_calls: NotRequired[list[_Call] | None]


@with_config(ConfigDict(strict=True, extra="allow"))
class _Fields(TypedDict):
    id: str | int
    question_type: Annotated[str, Choice(tuple(TASKS.values()))]
    messages: Annotated[list[_Message], Field(min_length=1)]
    question: str
    answer: Any
    round: NotRequired[int]
    i_round: NotRequired[int]
    j_round: NotRequired[int]


_FIELDS: TypeAdapter[Any] = TypeAdapter(_Fields)
_ANSWERS: Mapping[str, TypeAdapter[Any]] = {
    "int": TypeAdapter(int),
    "bool": TypeAdapter(bool),
    "pair": TypeAdapter(Annotated[list[str], Field(min_length=2, max_length=2)]),
    "list": TypeAdapter(Annotated[list[str], Field(min_length=1)]),
    "name": TypeAdapter(Annotated[str, Field(min_length=1)]),
}


@dataclass(frozen=True)
class PublishedRow:
    """A row whose messages are read from the file on demand.

    Attributes:
        offset: The byte offset of the row in the file.
        setting: `ki-c`, `ki-v`, `kf-c` or `kf-v`.
        length: The nominal length in tokens, taken from the folder name if possible.
        chance: The share of the most frequent answer among the file's rows for this task.
    """

    path: Path
    line: int
    offset: int
    setting: str
    length: int
    fields: Mapping[str, Any]
    chance: float = 0.0

    @property
    def task(self) -> str:
        return _TASKS[self.fields["question_type"]]

    @property
    def style(self) -> str:
        return SETTINGS[self.setting]["style"]

    @property
    def kind(self) -> str:
        return form(self.task, self.style)

    @cached_property
    def proved(self) -> bool:
        """Return whether the answer follows from the log; raise the same errors as `open`."""
        return self.open(counter("heuristic")).proved  # the fastest counter

    def read(self) -> dict[str, Any]:
        """Read the whole row."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            row: dict[str, Any] = json.loads(file.readline())
        return row

    def open(self, tokens: TokenCounter) -> OpenRow:
        """Read the log and try to derive the answer from the log.

        Raise ValueError if this package can parse the question and the row's answer is wrong.
        """
        system, turns = split_turns(Chat.from_openai(self.read()["messages"]).messages)
        log = LogMessages(self.style, system, tuple(turns), tokens=0)
        log = replace(log, tokens=sum(map(tokens.count, log.messages)))
        wording, answer = self.fields["question"], self.fields["answer"]
        right = sorted(answer) if self.kind == "list" else answer
        own = None
        with suppress(ValueError):  # the question's wording may be unknown
            own = QuestionSpec.read(wording)
        specs = [own] if own else _specs(self, log)
        proof = next((spec for spec in specs if _compute(spec, log) == right), None)
        if own and not proof:
            raise ValueError(
                f"{self.path}, line {self.line}, field answer: must be "
                f"{_compute(own, log)!r} according to the log, got {answer!r}"
            )
        if proof and not own:
            wording = f"{wording}\n\nIn full: {proof.text()}"
        spec, spans = QuestionSpec(self.task, style=self.style), tuple[Span, ...]()
        if proof:
            spec, spans = proof, tuple(_spans(proof, log))
        question = LogQuestion(spec, answer, spans, (), self.chance, {})
        return OpenRow(self.setting, self.length, log, question, wording, proof is not None)


@dataclass(frozen=True, eq=False)
class OpenRow:
    """A loaded row with its log and question."""

    setting: str
    length: int
    log: LogMessages
    question: LogQuestion
    wording: str
    proved: bool


def row_files(data: Path) -> list[Path]:
    """Return `[data]` for a file, or all row files in a folder."""
    if data.is_file():
        return [data]
    return sorted(path for path in data.rglob("*.jsonl") if path.name != ANSWERS)


@lru_cache(maxsize=8)
def load_rows(data: str) -> tuple[PublishedRow, ...]:
    """Load the rows of a file or folder.

    Raise ValueError if there are no rows, or if a row is malformed.
    """
    rows = tuple(chain.from_iterable(map(_load_file, row_files(Path(data)))))
    if not rows:
        raise ValueError(
            f"data {data!r} has no rows; give an AgentLongBench JSONL file or a folder of such files"
        )
    return rows


def split_turns(messages: Sequence[Message]) -> tuple[Message, list[RoundMessages]]:
    """Split a log into its system message, which may be empty, and its rounds.

    Each round ends with feedback; messages after the last feedback are dropped.
    """
    system = Message("system", "", id="0:0")
    if messages and messages[0].role == "system":
        system, messages = messages[0], messages[1:]
    turns: list[RoundMessages] = []
    start = 0
    for place, message in enumerate(messages, 1):
        if message.role == "user" and (feedback := _ROUND.match(message.text)):
            # Add one for the system message.
            turns.append(RoundMessages(int(feedback[1]), tuple(messages[start:place]), start + 1))
            start = place
    return system, turns


def retriever(count: int, embed: str = "") -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that keeps only the `count` rounds most similar to a row's question.

    The paper's RAG baseline keeps the five best chunks (appendix E). `embed` names an embedding
    function, as in SearchWorld; if empty, BM25 ranks the rounds.
    """
    vectors = load_embed(embed) if embed else None

    def shorten(row: Mapping[str, Any]) -> dict[str, Any]:
        messages = row["messages"]
        _, turns = split_turns(Chat.from_openai(messages).messages)
        texts = [Chat(turn.messages).to_text() for turn in turns]
        index = Dense.of(texts, vectors) if vectors else Lexical.of(texts)
        best = index.best(row["question"], count) or range(len(turns))[-count:]
        first = int(messages[0]["role"] == "system")
        kept = list(messages[:first])
        for place in sorted(best):
            start = turns[place].start - 1 + first
            kept += messages[start : start + len(turns[place].messages)]
        return {**row, "messages": kept}

    return shorten


def _load_file(path: Path) -> list[PublishedRow]:
    rows: list[PublishedRow] = []
    lines: dict[str, int] = {}
    offset = 0
    if not path.is_file():
        raise ValueError(f"{path} must be an existing file")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    rows.append(_load(path, number, offset, line))
                    first = lines.setdefault(str(rows[-1].fields["id"]), number)
                    if first != number:
                        raise ValueError(f"field id: must differ from line {first}")
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}, {error}") from None
            offset += len(line)
    answers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        answers[row.task][as_json(row.fields["answer"])] += 1
    shares = {task: max(counts.values()) / counts.total() for task, counts in answers.items()}
    return [replace(row, chance=shares[row.task]) for row in rows]


def _load(path: Path, number: int, offset: int, line: bytes) -> PublishedRow:
    try:
        fields = _FIELDS.validate_json(line)
    except ValidationError as error:
        raise ValueError(next(describe_faults(error))) from None
    messages = fields.pop("messages")
    try:
        _, turns = split_turns(Chat.from_openai(messages).messages)
    except ValueError as error:
        raise ValueError(f"field messages: {error}") from None
    if not turns:
        raise ValueError("field messages: must contain feedback that begins with 'Round 1:'")
    setting, length = _place(path)
    setting = setting or str(fields.get("setting"))
    if setting not in SETTINGS:
        known = ", ".join(SETTINGS)
        raise ValueError(f"field setting: must be a folder of the path, or a field: {known}")
    length = length or counter("heuristic").length(line.decode())
    row = PublishedRow(path, number, offset, setting, length, fields)
    try:
        _ANSWERS[row.kind].validate_python(fields["answer"], strict=True)
    except ValidationError as error:
        raise ValueError(next(describe_faults(error, "answer"))) from None
    return row


def _place(path: Path) -> tuple[str, int]:
    for setting, length in pairwise(path.resolve().parts):
        if setting in SETTINGS:
            if length.isdecimal():
                return setting, int(length)
            return setting, LENGTHS.get(length, 0)
    return "", 0


def _specs(row: PublishedRow, log: LogMessages) -> list[QuestionSpec]:
    """Return the possible interpretations of a row's question, one per section."""
    task, fields = row.task, row.fields
    name = next((str(fields[key]) for key in _NAMES if key in fields), "")
    if not name and (task.endswith("_tool") or task == "count_frequency_env"):
        return []
    values, weights = [], {}
    for turn in log.rounds:
        for section, _, value in read_verdicts(turn.messages[-1].text):
            values.append((section, str(value)))
            weights[section] = WEIGHTS.get(section, 1)
    spec = QuestionSpec(
        task,
        i=fields.get("i_round", fields.get("round", 0)),
        j=fields.get("j_round", 0),
        name=name,
        weights=weights,
        style=row.style if task == "intersection" else "concise",
    )
    if task in (LARGEST, "count_frequency_env") or row.kind == "name":
        spec = replace(spec, i=0, j=0, last=len(log.rounds))
    sections = dict.fromkeys([""])
    if task == LARGEST:
        sections = dict.fromkeys(section for section, _ in values if section in _LARGEST_IN)
    elif task == "count_frequency_env":
        sections = dict.fromkeys(section for section, value in values if value == name)
    return [replace(spec, section=section) for section in sections]


def _compute(spec: QuestionSpec, log: LogMessages) -> Answer | None:
    if [turn.number for turn in log.rounds] != list(range(1, len(log.rounds) + 1)):
        return None
    evidence = Evidence(spec)
    evidence.take(Chat(tuple(log.messages)).to_text())
    with suppress(LookupError, StopIteration, TypeError, ValueError):
        if evidence.complete:
            return evidence.answer()
    return None


def _spans(spec: QuestionSpec, log: LogMessages) -> Iterator[Span]:
    for turn in log.rounds:
        for place, message in enumerate(turn.messages, turn.start):
            text = message.text
            if message.role == "tool" and turn.number in spec.results:
                yield Span(place, 0, len(text))
            elif message.role == "user" and turn.number in spec.feedback:
                end = len(text.partition("\nResult: ")[0])
                yield Span(place, text.index("Sections:"), end)
