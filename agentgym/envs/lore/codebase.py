"""An agent's knowledge from the modules read so far."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from agentgym.envs.lore.knowledge import ReadDocuments, split_list
from agentgym.envs.lore.programs import (
    REDIRECTS,
    ROOT,
    Program,
    module,
    read_expression,
    read_source,
    write_expression,
)
from agentgym.envs.reading import expect

_STATE = re.compile(
    r"What main\.py returns (?:is not known yet|follows from the values below)\.\n"
    r"(?P<programs>(?:\w+ = .*\n)*)Known values: (?P<values>.*)\nUnread documents: (?P<unread>.*)"
    r"(?:\nBehind redirects, and perhaps imported again: (?P<shared>.*))?"
    r"(?:\nRead before their imports: (?P<ahead>.*))?\nRead last: (?P<recent>.*)"
)
_STEP = re.compile(
    r"Read document '([^']+)'\.|Work out which branch '([^']+)' takes, then read the document of "
    r"that branch\."
)


def _by_name(files: Iterable[str]) -> list[str]:
    return sorted(files, key=lambda file: (len(file), file))


@dataclass
class Codebase(ReadDocuments):
    """The programs and values of the modules read so far, by file name.

    Attributes:
        imported: The files that are imported but have not been read.
        shared: The files imported by redirect modules; redirect modules may share a file.
        ahead: The files that were read before any file that imports them.
    """

    programs: dict[str, Program] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    imported: dict[str, None] = field(default_factory=dict)
    shared: dict[str, None] = field(default_factory=dict)
    ahead: dict[str, None] = field(default_factory=dict)
    _waiting: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def begin(cls) -> Self:
        return cls(order={ROOT: None}, imported={ROOT: None})

    def learn(self, file: str, text: str) -> list[str]:
        program = read_source(text)
        if file in self.read:
            return []
        if file in self.imported:
            del self.imported[file]
        else:
            self.ahead[file] = None
        self.record(file, read=True)
        leads = []
        for operand in program.operands:
            self.ahead.pop(operand, None)
            if operand not in self.read and operand not in self.imported:
                self.imported[operand] = None
                self.record(operand)
                leads.append(operand)
        if program.operator in REDIRECTS:
            self.shared[program.operands[0]] = None
        self._add(file, program)
        return leads

    def _add(self, file: str, program: Program) -> None:
        self.programs[file] = program
        computable = [file]
        while computable:
            name = computable.pop()
            if missing := self._missing(name):
                # Wait for one missing value at a time, so that the total work is linear.
                self._waiting.setdefault(missing[0], []).append(name)
            else:
                self.values[name] = self.programs[name].evaluate(self.values)
                computable += self._waiting.pop(name, ())
        if ROOT in self.values:
            self.answer = str(self.values[ROOT])

    def _missing(self, file: str) -> list[str]:
        required = self.programs[file].required_operands(self.values)
        return [operand for operand in required if operand not in self.values]

    def unread(self) -> Sequence[str]:
        return _by_name(self.imported)

    def follows(self, file: str) -> bool:
        return file in self.imported

    def useful(self) -> Sequence[str]:
        useful, stack, seen = [], [ROOT], {ROOT}
        while stack:
            file = stack.pop()
            if file in self.imported:
                useful.append(file)
            elif file in self.programs and file not in self.values:
                fresh = [operand for operand in self._missing(file) if operand not in seen]
                seen.update(fresh)
                stack += fresh
        return _by_name(useful)

    def _branch(self, file: str) -> str | None:
        if self.programs[file].operator != "conditional":
            return None
        _, _, *branch = self.programs[file].required_operands(self.values)
        return branch[0] if branch else None

    def _in_use(self) -> tuple[list[str], list[str]]:
        # Unread files may import shared files and the files in `ahead`.
        programs, values, seen = [], [], set()
        stack = [ROOT, *self.shared, *self.ahead]
        while stack:
            file = stack.pop()
            if file in seen or file in self.imported:
                continue
            seen.add(file)
            if file in self.values and file != ROOT:
                values.append(file)
            else:
                programs.append(file)
                program = self.programs[file]
                if self._branch(file) is None:
                    stack += program.operands
                else:
                    stack += program.required_operands(self.values)
        return _by_name(programs), _by_name(values)

    def lines(self) -> list[str]:
        programs, values = self._in_use()
        lines = ["What main.py returns is not known yet."]
        if self.answer:
            lines = ["What main.py returns follows from the values below."]
        for file in programs:
            lines.append(f"{module(file)} = {write_expression(self.programs[file])}")
        rows = {
            "Known values": [f"{module(file)} = {self.values[file]}" for file in values],
            "Unread documents": self.unread(),
        }
        if self.shared:
            rows["Behind redirects, and perhaps imported again"] = _by_name(self.shared)
        if self.ahead:
            rows["Read before their imports"] = _by_name(self.ahead)
        rows["Read last"] = self.recent()
        return lines + [f"{title}: {', '.join(row) or 'none'}" for title, row in rows.items()]

    @classmethod
    def from_lines(cls, start: Self, text: str) -> Self:
        match = expect(_STATE.fullmatch(text), "what was found out", text)
        known = cls()
        programs = [line.split(" = ", 1) for line in match["programs"].splitlines()]
        values = [entry.split(" = ") for entry in split_list(match["values"])]
        known.values = {f"{name}.py": int(value) for name, value in values}
        recent = split_list(match["recent"])
        files = [f"{name}.py" for name, _ in (*programs, *values)]
        # Record the most recently read files last, to restore the original order.
        earlier = [file for file in files if file not in recent]
        for file in earlier + recent:
            known.record(file, read=True)
        for file in split_list(match["unread"]):
            known.imported[file] = None
            known.record(file)
        known.shared = dict.fromkeys(split_list(match["shared"]))
        known.ahead = dict.fromkeys(split_list(match["ahead"]))
        for name, expression in programs:
            known._add(f"{name}.py", read_expression(expression))
        return known

    def describe(self, file: str) -> str:
        for asker in self._in_use()[0]:
            if self._branch(asker) == file:
                return (
                    f"Work out which branch '{asker}' takes, then read the document of that branch."
                )
        return f"Read document '{file}'."

    def resolve(self, step: str) -> str | None:
        match = _STEP.fullmatch(step)
        if match is None or match[1]:
            return match and match[1]
        return self._branch(match[2]) if match[2] in self.programs else None
