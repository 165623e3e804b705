"""Print the tables of docs/context.md: `PYTHONPATH=. python benchmarks/context_control.py`.

The task spreads the answer over two hundred results. In a window of 4,000 tokens, the agent must
fail without a context strategy and succeed with a strategy that keeps the pages. Values are means ±
standard deviations over seeds 0 to 2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import gymnasium

from agentgym import Chat, Message, Reply, ToolCall, ToolEnv, ToolError, World, render, tool
from agentgym.wrappers import (
    ClearThinking,
    ClearToolResults,
    Compaction,
    ContextAwareness,
    ContextBudget,
    MemoryTool,
    ProgrammaticTools,
    Trim,
)
from agentgym.wrappers.compaction import SUMMARY_REQUEST

PAGES = 200
PAGE = re.compile(r"Page (\d+)\. Value: (\d+)\. Next key: (\w+)\.")
NOTE = re.compile(r"pages read: (\d+); total: (\d+); next key: (\w+)")


@dataclass(frozen=True)
class Config:
    pages: int = PAGES


class Archive(World[Config]):
    """Add up the values of pages, each of which contains the key of the next page."""

    Config = Config

    def generate(self) -> None:
        self.max_turns = 4 * self.config.pages
        self.keys = [
            f"k{int(number):05d}" for number in self.rng.permutation(99_999)[: self.config.pages]
        ]
        self.values = [int(value) for value in self.rng.integers(1, 1_000, size=self.config.pages)]
        self.right = False

    def rules(self) -> str:
        return "An archive holds pages. Each has a value and the key of the next page."

    def task(self) -> str:
        return f"Start with the key {self.keys[0]}. When the next key is none, answer with the sum of all values."

    @tool
    def read_page(self, key: str) -> str:
        """Read a page.

        Args:
            key: Its key.
        """
        if key not in self.keys:
            raise ToolError("no page has this key")
        place = self.keys.index(key)
        after = self.keys[place + 1] if place + 1 < len(self.keys) else "none"
        return (
            f"Page {place + 1}. Value: {self.values[place]}. Next key: {after}.\n"
            + "The rest of the page is of no use. " * 5
        )

    @tool(final=True)
    def answer(self, total: int) -> str:
        """Give the sum of all values.

        Args:
            total: The sum.
        """
        self.right = total == sum(self.values)
        return "noted"

    def score(self) -> float:
        return float(self.right)


@dataclass(frozen=True)
class Known:
    page: int
    total: int
    key: str

    def note(self) -> str:
        return f"pages read: {self.page}; total: {self.total}; next key: {self.key}"


class HonestReader:
    """Policy that uses only the current chat and keeps no state."""

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(self.act(chat)) for chat in chats]

    def act(self, chat: Chat) -> str:
        tools = {tool.name for tool in chat.tools}
        known, unsaved = self.read(chat)
        if chat.messages[-1].text.endswith(SUMMARY_REQUEST):
            return known.note() if known else "nothing is known"
        if "run_python" in tools:
            return self.with_code(chat)
        if known is None:
            call = (
                ToolCall("memory", {"command": "view", "path": NOTES})
                if "memory" in tools
                else self.guess(chat)
            )
        elif "memory" in tools and unsaved >= 2:
            call = ToolCall(
                "memory",
                {"command": "create", "path": NOTES, "file_text": known.note()},
            )
        elif known.key == "none":
            call = ToolCall("answer", {"total": known.total})
        else:
            call = ToolCall("read_page", {"key": known.key})
        return "<think>One page after the other.</think>" + render(call)

    def read(self, chat: Chat) -> tuple[Known | None, int]:
        """Return the progress that the chat shows (None if pages are missing) and the number of
        pages that the notes lack.
        """
        start = re.search(r"key (\w+)\.", chat.messages[1].text)
        assert start is not None
        known: Known | None = Known(0, 0, start[1])
        unsaved = 0
        for message in chat.messages[2:]:
            if note := self.note(message):
                known, unsaved = Known(int(note[1]), int(note[2]), note[3]), 0
            elif message.role == "tool" and (page := PAGE.search(message.text)):
                if known is None or int(page[1]) not in (known.page, known.page + 1):
                    known = None
                elif int(page[1]) == known.page + 1:
                    known = Known(known.page + 1, known.total + int(page[2]), page[3])
                    unsaved += 1
            elif message.role == "tool" and "cleared" in message.text:
                known = None
        return known, unsaved

    @staticmethod
    def note(message: Message) -> re.Match[str] | None:
        if message.role == "assistant":
            saved = [call.arguments.get("file_text", "") for call in message.calls]
            return NOTE.search(" ".join([message.text, *saved]))
        return NOTE.search(message.text) if message.role == "tool" else None

    @staticmethod
    def guess(chat: Chat) -> ToolCall:
        pages = [page for message in chat.messages if (page := PAGE.search(message.text))]
        if not pages or pages[-1][3] == "none":
            return ToolCall("answer", {"total": sum(int(page[2]) for page in pages)})
        return ToolCall("read_page", {"key": pages[-1][3]})

    @staticmethod
    def with_code(chat: Chat) -> str:
        if chat.messages[-1].role == "tool":
            return render(ToolCall("answer", {"total": int(chat.messages[-1].text.split()[0])}))
        start = re.search(r"key (\w+)\.", chat.messages[1].text)
        assert start is not None
        code = (
            f"key, total = '{start[1]}', 0\n"
            "while key != 'none':\n"
            "    words = read_page(key).split()\n"
            "    total += int(words[3].strip('.'))\n"
            "    key = words[6].strip('.')\n"
            "print(total)"
        )
        return render(ToolCall("run_python", {"code": code}), "json")


BUDGET = ContextBudget(4_000, 200)
NOTES = "/memories/progress"
READER = HonestReader()


def archive(
    *names: str, budget: ContextBudget = BUDGET, pages: int = PAGES
) -> gymnasium.Env[Chat, str]:
    env: gymnasium.Env[Chat, str] = ToolEnv(Archive, pages=pages)
    inside: dict[str, Any] = {"memory": MemoryTool, "programmatic": ProgrammaticTools}
    for name in names:
        if name in inside:
            env = inside[name](env)
    for name, strategy in {
        "clear_thinking": ClearThinking,
        "clear_results": ClearToolResults,
        "compaction": Compaction,
        "trim": Trim,
        "awareness": ContextAwareness,
    }.items():
        if name in names or name == "trim":
            env = strategy(env, budget=budget)
    return env


def play(
    *names: str,
    budget: ContextBudget = BUDGET,
    seed: int = 0,
    policy: HonestReader = READER,
    pages: int = PAGES,
) -> tuple[float, int, list[Any]]:
    env = archive(*names, budget=budget, pages=pages)
    chat, info = env.reset(seed=seed)
    records, over = [info["context"]], False
    while not over:
        chat, reward, terminated, truncated, info = env.step(policy([chat])[0].text)
        records.append(info["context"])
        over = terminated or truncated
    return float(reward), len(records) - 1, records


def begin_or_guess(chat: Chat) -> ToolCall:
    start = re.search(r"key (\w+)\.", chat.messages[1].text)
    if len(chat.messages) == 2 and start is not None:
        return ToolCall("read_page", {"key": start[1]})
    return HonestReader.guess(chat)


class Talker(HonestReader):
    """Policy that thinks at length and uses only the visible results."""

    def act(self, chat: Chat) -> str:
        thought = "One page after the other, and then the next. " * 12
        return f"<think>{thought}</think>{render(begin_or_guess(chat))}"


class Recorder(HonestReader):
    def act(self, chat: Chat) -> str:
        values = [int(m[1]) for r in chat.messages if (m := re.match(r"Value: (\d+)", r.text))]
        last = PAGE.search(chat.messages[-1].text)
        now = f"Value: {last[2]}" if last else ""
        if last and last[3] == "none":
            return render(ToolCall("answer", {"total": sum(values) + int(last[2])}))
        return now + render(begin_or_guess(chat))


class Warned(HonestReader):
    """Policy that saves its progress only after a warning that the window is nearly full."""

    def act(self, chat: Chat) -> str:
        known, unsaved = self.read(chat)
        told = re.search(r"; (\d+) remaining</system_warning>", chat.messages[-1].text)
        if known is None:
            return render(ToolCall("memory", {"command": "view", "path": NOTES}))
        if told and int(told[1]) < 1_000 and unsaved:
            arguments = {"command": "create", "path": NOTES, "file_text": known.note()}
            return render(ToolCall("memory", arguments))
        if known.key == "none":
            return render(ToolCall("answer", {"total": known.total}))
        return render(ToolCall("read_page", {"key": known.key}))


# For each strategy: an agent that needs it, the number of pages, and additional strategies.
NEEDS = {
    "clear_thinking": (Talker(), 24, ()),
    "clear_results": (Recorder(), 48, ()),
    "awareness": (Warned(), 100, ("memory",)),
}


SEEDS = range(3)
STACKS: dict[str, tuple[str, ...]] = {
    "none (trim)": (),
    "clear_results": ("clear_results",),
    "clear_thinking": ("clear_thinking",),
    "awareness": ("awareness",),
    "clear_results + memory": ("clear_results", "memory"),
    "compaction": ("compaction",),
    "programmatic": ("programmatic",),
}


def measure(*names: str, budget: ContextBudget = BUDGET, **options: Any) -> list[str]:
    """Return means: score, number of replies, tokens of all prompts, tokens of the longest prompt,
    cache misses, rewrites.
    """
    rows = []
    for seed in SEEDS:
        score, replies, records = play(*names, budget=budget, seed=seed, **options)
        prompts = records[:-1]
        tokens = [record.tokens for record in prompts]
        misses = sum(record.tokens - record.reused for record in prompts)
        rewrites = sum(record.removed > 0 for record in records)
        rows.append((score, replies, sum(tokens), max(tokens), misses, rewrites))
    return [
        f"{fmean(column):,.0f}" + (f" ± {stdev(column):,.0f}" if stdev(column) >= 1 else "")
        for column in zip(*rows, strict=True)
    ]


def main() -> None:
    print("| context | score | replies | all prompts | longest prompt | cache misses | rewrites |")
    print("|---|---|---|---|---|---|---|")
    wide = measure(budget=ContextBudget(100_000))
    print(f"| window of 100,000 | {' | '.join(wide)} |")
    for name, stack in STACKS.items():
        print(f"| {name} | {' | '.join(measure(*stack))} |")
    for name, (policy, pages, others) in NEEDS.items():
        for label, stack in (("without", others), ("with", (name, *others))):
            cells = measure(*stack, policy=policy, pages=pages)
            print(f"| {label} {name}, {pages} pages | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
