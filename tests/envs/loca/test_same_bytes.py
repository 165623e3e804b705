"""Check that seeds reproduce the offices, prompts, hints and results in `same_bytes.tsv`.

After an intended change, run `python -m tests.envs.loca.test_same_bytes`, and mention the change in
CHANGELOG.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.envs.loca.plan import CLAIM
from agentgym.office.files.pdfs import read_pdf
from agentgym.world.digests import digest
from tests.envs.loca.observed import observe
from tests.envs.loca.office import TASKS, fresh
from tests.helpers import needs_workbench

TABLE = Path(__file__).with_name("same_bytes.tsv")
# Pairs of size and seed, from the smallest state to a state with most kinds of records.
CASES = ((1, 0), (5, 7), (25, 1))
# Fields whose bytes depend on library versions.
LIBRARY_BYTES = ("look", "data")


def drawn(world: Any) -> str:
    """Return a digest of an office, the prompt and the failures, excluding `LIBRARY_BYTES`."""
    records = [(*key, fields) for key, fields in sorted(_records(world), key=repr)]
    truth = {name: value for name, value in world.truth.items() if name != "files"}
    shown = [world.rules(), world.task(), world.tokens, world.max_turns]
    return digest([*shown, truth, records, list(world.all_failures())])


def _records(world: Any) -> Iterator[tuple[tuple[str, Any], dict[str, str]]]:
    for key, fields in observe(world.office).items():
        shown = dict(fields)
        if key[0] == "files":
            for name in LIBRARY_BYTES:
                shown.pop(name, None)
            if key[1].endswith((".md", ".txt", ".json")):
                shown["text"] = fields["data"]
            elif key[1].endswith(".pdf"):
                shown["text"] = read_pdf(fields["data"])
        yield key, {name: repr(value) for name, value in shown.items()}


def told(world: Any) -> str:
    """Play the plan and return a digest of its hints, results and final state."""
    texts = []
    while (steps := world.progress.pending()) != [CLAIM]:
        call = steps[0].call
        texts.append(world.subtask(True))
        texts.append(world.office.call(call.name, call.arguments))
        world.read_result(call, texts[-1])
    world.done = True
    return digest([*texts, world.state(), world.brief_state(), world.report()])


def digests(task: str, size: int, seed: int) -> tuple[str, str]:
    world = fresh(task, size=size, seed=seed)
    return drawn(world), told(world)


@pytest.mark.parametrize("task", TASKS)
def test_a_seed_draws_what_it_drew_before(task: str) -> None:
    if task == "ApplyPhDEmail":
        needs_workbench()
    lines = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()]
    recorded = [tuple(line[1:]) for line in lines if line[0] == task]
    assert recorded == [digests(task, *case) for case in CASES]


if __name__ == "__main__":
    rows = [[task, *digests(task, *case)] for task in TASKS for case in CASES]
    TABLE.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
