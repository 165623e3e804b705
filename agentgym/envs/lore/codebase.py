"""What can be known from reading modules: their programs, the values that follow, and which modules
running them asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from agentgym.envs.lore.knowledge import Knowledge
from agentgym.envs.lore.programs import (
    REDIRECTS,
    Program,
    module,
    read_expression,
    write_expression,
)
from agentgym.envs.lore.sources import ROOT, read_source

_STATE = re.compile(
    r"What main\.py returns (?:is not known yet|follows from the values below|is -?[0-9]+)\.\n"
    r"(?P<programs>(?:\w+ = .*\n)*)Known values: (?P<values>.*)\nUnread documents: (?P<unread>.*)"
    r"(?:\nCertainly needed: .*)?(?:\nBehind redirects, and perhaps imported again: "
    r"(?P<shared>.*))?"
    r"(?:\nRead before their imports: (?P<ahead>.*))?\nRead last: (?P<recent>.*)"
)
_STEP = re.compile(
    r"Read document '([^']+)'\.|Work out which branch '([^']+)' takes, then read the document of "
    r"that branch\."
)


def _by_name(files: Iterable[str]) -> list[str]:
    return sorted(files, key=lambda file: (len(file), file))


@dataclass
class Codebase(Knowledge):
    """What has been read, as programs and the values that follow from them.

    Attributes:
        programs: The programs of modules, by file.
        values: What modules return, by file, as far as it follows.
        imported: The files that are imported and were not read.
        shared: The files that a redirect imports; others may import them too, while any other file
            has one importer.
        ahead: The files that were read before anything imported them.
    """

    programs: dict[str, Program] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    imported: dict[str, None] = field(default_factory=dict)
    shared: dict[str, None] = field(default_factory=dict)
    ahead: dict[str, None] = field(default_factory=dict)
    _waiting: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def begin(cls) -> Self:
        """What a task tells."""
        return cls(order={ROOT: None}, imported={ROOT: None})

    def learn(self, file: str, text: str) -> list[str]:
        """Take in a module, and compute the values that follow."""
        program = read_source(text)
        if file in self.read:
            return []
        if file in self.imported:
            del self.imported[file]
        else:
            self.ahead[file] = None
        self.found(file, read=True)
        leads = []
        for operand in program.operands:
            self.ahead.pop(operand, None)
            if operand not in self.read and operand not in self.imported:
                self.imported[operand] = None
                self.found(operand)
                leads.append(operand)
        if program.operator in REDIRECTS:
            self.shared[program.operands[0]] = None
        self._add(file, program)
        return leads

    def _add(self, file: str, program: Program) -> None:
        """Note a program; compute its value and those that waited for it. Each waits for one value
        at a time.
        """
        self.programs[file] = program
        ripe = [file]
        while ripe:
            name = ripe.pop()
            if missing := self._missing(name):
                self._waiting.setdefault(missing[0], []).append(name)
            else:
                self.values[name] = self.programs[name].evaluate(self.values)
                ripe += self._waiting.pop(name, ())
        if ROOT in self.values:
            self.answer = str(self.values[ROOT])

    def _missing(self, file: str) -> list[str]:
        """The files whose values running a module asks for, and which are not known."""
        return [
            operand
            for operand in self.programs[file].asked(self.values)
            if operand not in self.values
        ]

    def unread(self) -> Sequence[str]:
        """All files that are imported."""
        return _by_name(self.imported)

    def follows(self, file: str) -> bool:
        """Whether a file is imported and was not read."""
        return file in self.imported

    def useful(self) -> Sequence[str]:
        """The files that running the first one certainly asks for."""
        found, stack, seen = [], [ROOT], {ROOT}
        while stack:
            file = stack.pop()
            if file in self.imported:
                found.append(file)
            elif file in self.programs and file not in self.values:
                fresh = [operand for operand in self._missing(file) if operand not in seen]
                seen.update(fresh)
                stack += fresh
        return _by_name(found)

    def _decided(self, file: str) -> str | None:
        """The branch that a conditional takes, if that follows."""
        asked = self.programs[file].asked(self.values)
        return (
            asked[2] if self.programs[file].operator == "conditional" and len(asked) > 2 else None
        )

    def _in_use(self) -> tuple[list[str], list[str]]:
        """The files whose programs, and those whose values, may still be asked for: what hangs on
        the first one, or on one that may be imported yet. The first one is always among the
        programs.
        """
        programs, values, stack, seen = [], [], [ROOT, *self.shared, *self.ahead], set()
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
                stack += program.asked(self.values) if self._decided(file) else program.operands
        return _by_name(programs), _by_name(values)

    def lines(self, full: bool) -> list[str]:
        """The programs and values that are still of use, and the files that can be read."""
        programs, values = self._in_use()
        head = f"is {self.answer}" if full else "follows from the values below"
        lines = [f"What main.py returns {head if self.answer else 'is not known yet'}."]
        lines += [f"{module(file)} = {write_expression(self.programs[file])}" for file in programs]
        told = [f"{module(file)} = {self.values[file]}" for file in values]
        rows = [
            ("Known values", told, True),
            ("Unread documents", self.unread(), True),
            ("Certainly needed", self.useful(), full),
        ]
        rows.append(
            (
                "Behind redirects, and perhaps imported again",
                _by_name(self.shared),
                bool(self.shared),
            )
        )
        rows.append(("Read before their imports", _by_name(self.ahead), bool(self.ahead)))
        rows.append(("Read last", self.recent(), True))
        return lines + [
            f"{title}: {', '.join(files) or 'none'}" for title, files, shown in rows if shown
        ]

    @classmethod
    def from_lines(cls, start: Self, text: str) -> Self:
        """Fill a new one from the text."""
        found = _STATE.fullmatch(text)
        if found is None:
            raise ValueError(f"this is not what was found out: {text[:100]!r}")
        known = cls()
        programs = [line.split(" = ", 1) for line in found["programs"].splitlines()]
        values = [told.split(" = ") for told in _split(found["values"])]
        known.values = {f"{name}.py": int(value) for name, value in values}
        recent = _split(found["recent"])
        kept = [f"{name}.py" for name, _ in (*programs, *values)]
        for file in (*(file for file in kept if file not in recent), *recent):
            known.found(file, read=True)
        for file in _split(found["unread"]):
            known.imported[file] = None
            known.found(file)
        known.shared = dict.fromkeys(_split(found["shared"]))
        known.ahead = dict.fromkeys(_split(found["ahead"]))
        for name, expression in programs:
            known._add(f"{name}.py", read_expression(expression))
        return known

    def describe(self, file: str, full: bool) -> str:
        """Read a file, or work out first which one a conditional asks for."""
        askers = (
            [] if full else [asker for asker in self._in_use()[0] if self._decided(asker) == file]
        )
        return (
            f"Work out which branch '{askers[0]}' takes, then read the document of that branch."
            if askers
            else f"Read document '{file}'."
        )

    def resolve(self, step: str) -> str | None:
        """The file that is named, or the branch that is taken."""
        found = _STEP.fullmatch(step)
        if found is None or found[1]:
            return found and found[1]
        return self._decided(found[2]) if found[2] in self.programs else None


def _split(text: str | None) -> list[str]:
    return text.split(", ") if text and text != "none" else []
