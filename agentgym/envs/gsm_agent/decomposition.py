"""Decompose GSM8K problems with a model, as in GSM-Agent (Zhu et al., section 3.2), or by hand."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agentgym.envs.gsm_agent.loaders import as_folder
from agentgym.envs.gsm_agent.user_data.records import InputRecord, raise_any, read_records
from agentgym.envs.gsm_agent.user_data.stories import RawProblem, why_unclear
from agentgym.envs.reading import load_texts

Ask = Callable[[str], str]
"""A model, from prompt to reply."""
REPLIES = "replies.jsonl"
"""The file of a folder with the model's replies so far."""

_PROMPTS: Mapping[str, str] = load_texts(__file__, "prompts")["decomposition"]
_TRIES = 3  # documents per premise


def decompose(problems: Sequence[RawProblem], folder: Path, ask: Ask) -> None:
    """Decompose problems with a model, and write the tasks and documents to a folder.

    Each reply is stored in `replies.jsonl`, so an interrupted run can continue. A problem gets no
    documents if the model fails to decompose the problem, or if the model repeatedly writes a
    document that states several premises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = _KeptReplies(folder / REPLIES, ask)
    as_folder([_decompose(problem, kept) for problem in problems], folder)


def read_parts(problems: Sequence[RawProblem], path: Path) -> list[RawProblem]:
    """Decompose problems, using questions and premises from a file.

    Each line of the file is a JSON object with `id`, `question`, `premises` and optionally
    `documents`, which default to the premises. Problems that the file does not contain are returned
    unchanged. A ValueError lists all malformed lines.
    """
    mistakes: list[str] = []
    known = {problem.id for problem in problems}
    parts: dict[str, tuple[str, Sequence[str], Sequence[str]]] = {}
    for record in read_records(path, mistakes):
        name = record.name("id")
        if name not in known:
            record.refuse("id", "the id of a problem, such as 'test-1'")
        elif name in parts:
            record.refuse("id", "a unique id")
        parts[name] = _read_part(record)
    raise_any(path, mistakes)
    return [_assemble(each, *parts[each.id]) if each.id in parts else each for each in problems]


def _read_part(record: InputRecord) -> tuple[str, Sequence[str], Sequence[str]]:
    question = record.text("question")
    premises, documents = record.texts("premises", required=True), record.texts("documents")
    if documents and len(documents) != len(premises):
        record.refuse("documents", f"one document for each of {len(premises)} premises")
    return question, premises, documents


class _KeptReplies:
    def __init__(self, path: Path, ask: Ask) -> None:
        self._path, self._ask = path, ask
        # The same prompt may have several replies.
        self._kept: dict[str, deque[str]] = defaultdict(deque)
        if not path.exists():
            return
        lines = path.read_bytes().splitlines(keepends=True)
        if lines and not lines[-1].endswith(b"\n"):
            # An interrupted run may leave an incomplete last line.
            path.write_bytes(b"".join(lines[:-1]))
        mistakes: list[str] = []
        for record in read_records(path, mistakes, may_be_empty=True):
            self._kept[record.text("prompt")].append(str(record.fields.get("reply", "")))
        raise_any(path, mistakes)

    def __call__(self, prompt: str) -> str:
        if self._kept[prompt]:
            return self._kept[prompt].popleft()
        reply = self._ask(prompt)
        with self._path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"prompt": prompt, "reply": reply}) + "\n")
        return reply


def _decompose(problem: RawProblem, ask: Ask) -> RawProblem:
    reply = ask(_PROMPTS["take_apart"].format(problem=problem.text))
    try:
        parts = json.loads(reply[reply.index("{") : reply.rindex("}") + 1])
        question, premises = str(parts["question"]), list(map(str, parts["premises"]))
    # The reply may not be in the expected format.
    except (ValueError, KeyError, TypeError, RecursionError):
        why = f"the model's reply has no question and premises: {reply[:100]!r}"
        return replace(problem, unclear=why)
    documents = []
    for premise in premises:
        document = _write_document(problem.text, premise, premises, ask)
        if document is None:
            why = f"{_TRIES} documents of the premise {premise!r} also state other premises"
            return replace(problem, unclear=why)
        documents.append(document)
    return _assemble(problem, question, premises, documents)


def _assemble(
    problem: RawProblem, question: str, premises: Sequence[str], documents: Sequence[str]
) -> RawProblem:
    why = why_unclear(question)
    if not premises and not why:
        why = "it has no premises"
    return replace(
        problem,
        question=question,
        premises=tuple(premises),
        documents=tuple(documents),
        unclear=why,
    )


def _write_document(story: str, premise: str, premises: Sequence[str], ask: Ask) -> str | None:
    others = "\n".join(f"- {other}" for other in premises if other != premise)
    for _ in range(_TRIES):
        document = ask(_PROMPTS["document"].format(premise=premise, story=story)).strip()
        prompt = _PROMPTS["leak"].format(document=document, premise=premise, others=others)
        if ask(prompt).strip().lower().startswith("no"):
            return document
    return None
