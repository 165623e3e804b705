"""SQLGlot's parser, with a bound on how much it reads again, and errors in a fixed order.

Where a text may be a type or a function, such as `DATE(DATE(…))`, it reads what is in the brackets once
for each, and so twice as often with each level of nesting.
"""

from __future__ import annotations

import functools
from typing import Any

from sqlglot import Dialect, Parser

_REREADS = 16
"""How often each token may be read again on average; ordinary statements reread less than one each."""
_FEW_TOKENS = 2_000
"""Tokens that may be read again in any statement; it takes some hundredths of a second."""


def parse_sql(sql: str, dialect: str) -> list[Any]:
    """Return the trees of the statements of a text, None for an empty one.

    Raises:
        SqlglotError: It is not of the dialect.
        RecursionError: It is nested too deeply.
    """
    language = Dialect.get_or_raise(dialect)
    parser = _parser_class(language.parser_class)(dialect=language)
    return parser.parse(language.tokenize(sql), sql)


@functools.cache
def _parser_class(kind: type[Parser]) -> type[Parser]:
    """Return the parser of a dialect that counts what it reads again."""

    class BoundedParser(kind):  # type: ignore[misc, valid-type]
        def parse(self, raw_tokens: list[Any], sql: str) -> Any:
            self._rereads = _FEW_TOKENS + _REREADS * len(raw_tokens)
            return super().parse(raw_tokens, sql)

        def _retreat(self, index: int) -> None:
            self._rereads -= self._index - index
            if self._rereads < 0:  # an error of the parser's own would make it try something else
                raise RecursionError("the statement is nested too deeply")
            super()._retreat(index)

        def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
            # The parts that are required are a set, whose order is another one in each process.
            for problem in sorted(expression.error_messages(args)):
                self.raise_error(problem)
            return expression

    return BoundedParser
