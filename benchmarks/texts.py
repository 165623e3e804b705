"""Analyse the texts of the office tasks: `python benchmarks/texts.py [TASK …]` (needs
`agentgym-suite[office]`).

The first table covers each kind of document in each task at 128K tokens. The table counts distinct
sentences (with names, dates, numbers and places masked), occurrences per sentence, and distinct
words. The second table shows the share of tokens that the reference plan must read (mean of four
states), and the share of the answer that regular expressions find at 64K tokens.
"""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

import agentgym
from agentgym import worlds
from agentgym.envs.loca.plan import PlanStep
from agentgym.envs.loca.progress import steps_of
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.canvas.server import Canvas
from agentgym.office.email.server import Email
from agentgym.office.woocommerce.server import WooCommerce
from agentgym.text.tokens import counter
from benchmarks.text_policies import REGEX

TASKS = [entry.world.__name__ for entry in worlds() if issubclass(entry.world, OfficeTask)]
LENGTH, REGEX_LENGTH, REGEX_SEEDS = 128_000, 64_000, 5
SHARE_SEEDS = 4  # averaged, because single states vary by two percentage points
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n+")
_NUMBERS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|half|quarter|an hour|hours?|"
    "minutes|days?|weeks?|am|pm"
)
_NAME = re.compile(r"[A-Z]\S*( #)+")
_DRAWN = re.compile(rf"\S*[0-9@]\S*|\b(?:{_NUMBERS})\b|(?<=\S )[\"(]?[A-Z][\w'-]*")


def main(arguments: Sequence[str]) -> None:
    names = [name for name in arguments if name in TASKS] or TASKS
    print("| task | documents | number | distinct sentences | occurrences of each | words |")
    print("|---|---|---|---|---|---|")
    for name in names:
        world = start(name, LENGTH, 0)
        for kind, texts in documents(world).items():
            print(f"| {name} | {kind} | {' | '.join(variety(texts))} |", flush=True)
    print("\n| task | share of tokens that is read | rows right | episodes solved |")
    print("|---|---|---|---|")
    for name in names:
        share = f"{100 * mean_share_read(name, LENGTH):.0f}%"
        regex = "| |"
        if name in REGEX:
            scores = [REGEX[name](start(name, REGEX_LENGTH, seed)) for seed in range(REGEX_SEEDS)]
            rows = sum(scores) / len(scores)
            regex = f"{100 * rows:.0f}% | {sum(score == 1 for score in scores)} of {len(scores)} |"
        print(f"| {name} | {share} | {regex}", flush=True)


def start(name: str, length: int, seed: int) -> Any:
    env = agentgym.tool_env(agentgym.make(name, length=length))
    env.reset(seed=seed)
    return env.world


def documents(world: Any) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    if "canvas" in world.servers:
        store = world.office.get(Canvas).store
        texts["announcements"] = [post["message"] for post in store.find("topics")]
        texts["assignments"] = [item.get("description") or "" for item in store.find("assignments")]
        texts["quizzes"] = [item.get("description") or "" for item in store.find("quizzes")]
        texts["submissions"] = [item.get("body") or "" for item in store.find("submissions")]
        texts["questions"] = [item["question_text"] for item in store.find("quiz_questions")]
    if "email" in world.servers:
        email = world.office.get(Email)
        for user in email.users():
            mails = email.messages(user["email"])
            texts.setdefault("mails", []).extend(_without_structure(mail.body) for mail in mails)
    if "woocommerce" in world.servers:
        products = world.office.get(WooCommerce).products.all()
        texts["descriptions"] = [item.get("description") or "" for item in products]
        orders = world.office.get(WooCommerce).orders.all()
        texts["notes"] = [note for item in orders if (note := item.get("customer_note"))]
    return {kind: found for kind, found in texts.items() if any(found)}


def _without_structure(text: str) -> str:
    return "\n\n".join(part for part in text.split("\n\n") if "<Student_ID>" not in part)


def variety(texts: Sequence[str]) -> tuple[str, ...]:
    masked = (
        " ".join(_DRAWN.sub("#", sentence).split())
        for text in texts
        for sentence in _SENTENCE.split(text)
    )
    sentences = [sentence for sentence in masked if sentence and not _NAME.fullmatch(sentence)]
    words = {word for text in texts for word in re.findall(r"(?<!\S)[a-z]+(?=[\s.,;:!?]|$)", text)}
    count = Counter(sentences)
    return (
        f"{len(texts):,}",
        f"{len(count):,}",
        f"{len(sentences) / len(count):.1f}",
        f"{len(words):,}",
    )


class _Read(dict[str, Any]):
    """Dictionary that records which keys are read."""

    def __init__(self, pairs: Any) -> None:
        super().__init__(pairs)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)


def mean_share_read(name: str, length: int) -> float:
    return fmean(share_read(start(name, length, seed)) for seed in range(SHARE_SEEDS))


def share_read(world: Any) -> float:
    office, length = pickle.loads(pickle.dumps(world.office)), counter("cl100k_base").length
    total, read = 0, 0

    def play(step: PlanStep) -> str:
        nonlocal total, read
        if step.learn is None:
            return ""
        text = str(office.call(step.call.name, step.call.arguments))
        if not step.changes:
            total += length(text)
            read += sum(map(length, values_read(step.learn, text)))
        return text

    for _ in steps_of(world.plan, play):
        pass
    return read / total


def values_read(learn: Callable[[str], Any], text: str) -> list[str]:
    """Return the values that the reference plan reads from a result."""
    if text[:1] not in ("[", "{"):
        return [text]
    values: list[Any] = []
    loads = json.loads

    def noting(source: str, **options: Any) -> Any:
        values.append(loads(source, object_pairs_hook=_Read, **options))
        return values[-1]

    # Servers parse JSON too, so the hook is active for only one result.
    json.loads = noting
    try:
        learn(text)
    finally:
        json.loads = loads
    return [str(leaf) for value in values for leaf in _leaves(value)]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, _Read):
        for key in value.read & value.keys():
            yield from _leaves(dict.__getitem__(value, key))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


if __name__ == "__main__":
    main(sys.argv[1:])
