"""Parser of GoogleSQL scripts: statements with control flow around them.

SQL inside statements stays text; only the words that delimit it are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from agentgym.office.warehouse.dialects.trees import check_length
from agentgym.text.tools import ToolError, echo

MAX_NESTING = 30
"""Maximum block levels, because the parser and the interpreter recurse."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A statement that the dialect runs unchanged."""

    text: str


@dataclass(frozen=True, slots=True)
class Declare:
    """DECLARE; without a type, the default's type is used."""

    names: tuple[str, ...]
    type: str
    default: str


@dataclass(frozen=True, slots=True)
class Assign:
    """SET of one variable, or of several from a struct."""

    names: tuple[str, ...]
    expression: str


@dataclass(frozen=True, slots=True)
class Execute:
    """EXECUTE IMMEDIATE, with (name, expression) per parameter; positional ones have no name."""

    sql: str
    into: tuple[str, ...]
    using: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """IF or CASE: conditions with their statements; ELSE has an empty condition."""

    cases: tuple[tuple[str, Body], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """LOOP, WHILE, REPEAT or FOR.

    Attributes:
        body: The statements.
        condition: Checked before each round, or after it with `until`; empty for none.
        until: Whether the loop ends when the condition is true.
        row: The variable of FOR.
        query: The query of FOR.
        label: Its label.
    """

    body: Body
    condition: str = ""
    until: bool = False
    row: str = ""
    query: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """BEGIN … END, optionally with statements that handle an error."""

    body: Body
    handler: Body | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Jump:
    """BREAK, CONTINUE or RETURN."""

    kind: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Raise:
    """RAISE with its message expression; empty to re-raise the current error."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class Assert:
    """ASSERT with its message text."""

    condition: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Transaction:
    """BEGIN, COMMIT or ROLLBACK of a transaction."""

    kind: str


Statement: TypeAlias = (
    Sql | Declare | Assign | Execute | Branch | Loop | Block | Jump | Raise | Assert | Transaction
)
Body: TypeAlias = tuple[Statement, ...]


def parse_script(sql: str) -> Body:
    """Parse the statements of a script.

    Raises:
        ToolError: It is malformed or empty.
    """
    parser = _Parser(check_length(sql))
    body = parser.body(())
    if not body:
        raise ToolError("invalid argument: the statement is empty")
    return body


def statements_of(body: Body) -> Iterator[Sql]:
    """Yield the SQL statements of a script, including nested ones."""
    for each in body:
        if isinstance(each, Sql):
            yield each
        elif isinstance(each, (Loop, Block)):
            yield from statements_of(each.body)
            yield from statements_of(each.handler or () if isinstance(each, Block) else ())
        elif isinstance(each, Branch):
            for _, inner in each.cases:
                yield from statements_of(inner)


# Unclosed parts extend to the end; otherwise each start would be tried again.
_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|\#[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<text>(?:\b(?:r|b|rb|br))?(?:
        "{3}(?:[^\\]|\\.)*?(?:"{3}|\Z) | [']{3}(?:[^\\]|\\.)*?(?:[']{3}|\Z)
        | "(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'?))
    |(?P<name>`[^`\n]*`)|(?P<word>@{0,2}[A-Za-z_]\w*)|(?P<other>\d[\w.]*|.)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


@dataclass(slots=True)
class _Parser:
    """The words of a script, and the current position."""

    _text: str
    # upper-case; strings and names are placeholders
    _words: list[str] = field(default_factory=list)
    _spans: list[tuple[int, int]] = field(default_factory=list)
    _place: int = 0
    _depth: int = 0

    def __post_init__(self) -> None:
        for match in _TOKEN.finditer(self._text):
            if match.lastgroup != "skip":
                is_word = match.lastgroup in ("word", "other")
                self._words.append(match[0].upper() if is_word else f"<{match.lastgroup}>")
                self._spans.append(match.span())

    def body(self, ends: tuple[str, ...]) -> Body:
        """Parse statements up to one of the words, or up to the end without words."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ToolError(f"invalid argument: blocks are nested at most {MAX_NESTING} deep")
        statements: list[Statement] = []
        while True:
            while self._skip(";"):
                pass
            word = self._word()
            if word in ends or not word:
                break
            statements.append(self._statement(word))
            if self._word() not in (";", "", *ends):
                self._refuse("; between two statements")
        if ends and not word:
            self._refuse(" or ".join(ends))
        self._depth -= 1
        return tuple(statements)

    def _statement(self, word: str) -> Statement:
        label = ""
        if self._word(1) == ":" and self._word(2) in ("BEGIN", "LOOP", "WHILE", "REPEAT", "FOR"):
            label = self._name()
            self._place += 1
            word = self._word()
        if word in ("LOOP", "WHILE", "REPEAT", "FOR"):
            return self._loop(label)
        if word == "BEGIN" and self._word(1) not in ("TRANSACTION", ";", ""):
            return self._block(label)
        if word in ("BEGIN", "COMMIT", "ROLLBACK"):
            self._place += 1
            self._skip("TRANSACTION")
            return Transaction(word)
        if word in _PARSERS:
            self._place += 1
            return _PARSERS[word](self)
        if word == "CALL" or (
            word == "CREATE" and "PROCEDURE" in self._words[self._place : self._place + 5]
        ):
            raise ToolError(
                "invalid argument: procedures are not supported; put their statements into the script"
            )
        return Sql(self._until(";"))

    def _block(self, label: str) -> Block:
        self._place += 1
        body, handler = self.body(("END", "EXCEPTION")), None
        if self._skip("EXCEPTION"):
            for each in ("WHEN", "ERROR", "THEN"):
                self._expect(each)
            handler = self.body(("END",))
        self._expect("END")
        self._skip(label.upper()) if label else None
        return Block(body, handler, label)

    def _loop(self, label: str) -> Loop:
        kind = self._words[self._place]
        self._place += 1
        condition = row = query = ""
        if kind == "WHILE":
            condition = self._until("DO")
            self._place += 1
        elif kind == "FOR":
            row = self._name()
            self._expect("IN")
            query = self._until("DO")
            self._place += 1
        body = self.body(("UNTIL" if kind == "REPEAT" else "END",))
        if kind == "REPEAT":
            self._place += 1
            condition = self._until("END")
        self._expect("END")
        self._expect(kind)
        self._skip(label.upper()) if label else None
        return Loop(body, condition, kind == "REPEAT", row, query, label)

    def _branch(self) -> Branch:
        kind = self._words[self._place - 1]
        operand = self._until("WHEN") if kind == "CASE" and self._word() != "WHEN" else ""
        again = "WHEN" if kind == "CASE" else "ELSEIF"
        cases: list[tuple[str, Body]] = []
        # The first condition of an IF has no preceding word.
        while (kind == "IF" and not cases) or self._skip(again):
            condition = self._until("THEN")
            self._place += 1
            test = f"({operand}) = ({condition})" if operand else condition
            cases.append((test, self.body((again, "ELSE", "END"))))
        if self._skip("ELSE"):
            cases.append(("", self.body(("END",))))
        self._expect("END")
        self._expect(kind)
        return Branch(tuple(cases))

    def _declare(self) -> Declare:
        names = self._names()
        kind = "" if self._word() == "DEFAULT" else self._until("DEFAULT", ";")
        default = self._until(";") if self._skip("DEFAULT") else ""
        return Declare(names, kind, default)

    def _set(self) -> Assign:
        if self._word().startswith("@@"):
            raise ToolError(
                "invalid argument: system variables cannot be set; write names in full and values "
                "where they are used"
            )
        if self._skip("("):
            names = self._names()
            self._expect(")")
        else:
            names = (self._name(),)
        self._expect("=")
        return Assign(names, self._until(";"))

    def _execute(self) -> Execute:
        self._expect("IMMEDIATE")
        sql = self._until("INTO", "USING", ";")
        into = self._names() if self._skip("INTO") else ()
        using: list[tuple[str, str]] = []
        while self._skip(",") if using else self._skip("USING"):
            value = self._until("AS", ",", ";")
            using.append((self._name() if self._skip("AS") else "", value))
        return Execute(sql, into, tuple(using))

    def _raise(self) -> Raise:
        if not self._skip("USING"):
            return Raise()
        self._expect("MESSAGE")
        self._expect("=")
        return Raise(self._until(";"))

    def _assert(self) -> Assert:
        condition = self._until("AS", ";")
        return Assert(condition, self._until(";") if self._skip("AS") else "")

    def _jump(self) -> Jump:
        kind = self._words[self._place - 1]
        label = "" if self._word() in (";", "", "END", "ELSE", "ELSEIF", "WHEN") else self._name()
        return Jump({"LEAVE": "BREAK", "ITERATE": "CONTINUE"}.get(kind, kind), label.lower())

    def _until(self, *stops: str) -> str:
        """Return the text up to one of the words, outside parentheses and CASE."""
        start, depth, cases = self._place, 0, 0
        while (word := self._word()) and not (depth == cases == 0 and word in (";", *stops)):
            depth += (word in ("(", "[")) - (word in (")", "]"))
            cases += (word == "CASE") - (word == "END" and cases > 0)
            self._place += 1
        if ";" not in stops and word in ("", ";"):
            self._refuse(" or ".join(stops))
        if self._place == start:
            self._refuse("an expression")
        return self._text[self._spans[start][0] : self._spans[self._place - 1][1]]

    def _names(self) -> tuple[str, ...]:
        names = [self._name()]
        while self._skip(","):
            names.append(self._name())
        return tuple(names)

    def _name(self) -> str:
        if not re.fullmatch(r"[A-Z_]\w*|<name>", self._word()):
            self._refuse("a name")
        start, end = self._spans[self._place]
        self._place += 1
        return self._text[start:end].strip("`")

    def _word(self, ahead: int = 0) -> str:
        place = self._place + ahead
        return self._words[place] if place < len(self._words) else ""

    def _skip(self, word: str) -> bool:
        is_there = self._word() == word
        self._place += is_there
        return is_there

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            self._refuse(word)

    def _refuse(self, expected: str) -> NoReturn:
        if self._place >= len(self._words):
            raise ToolError(f"invalid argument: syntax error: expected {expected} at the end")
        start, end = self._spans[self._place]
        line = self._text.count("\n", 0, start) + 1
        raise ToolError(
            f"invalid argument: syntax error: expected {expected} in line {line}, got "
            f"{echo(self._text[start:end])}"
        )


# The parser of each script statement, after its first word.
_PARSERS: dict[str, Callable[[_Parser], Statement]] = {
    "IF": _Parser._branch,
    "CASE": _Parser._branch,
    "DECLARE": _Parser._declare,
    "SET": _Parser._set,
    "EXECUTE": _Parser._execute,
    "RAISE": _Parser._raise,
    "ASSERT": _Parser._assert,
    **dict.fromkeys(("BREAK", "LEAVE", "CONTINUE", "ITERATE", "RETURN"), _Parser._jump),
}
