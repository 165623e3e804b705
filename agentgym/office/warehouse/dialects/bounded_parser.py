"""SQLGlot's parser with bounded work and a reproducible order of errors.

If an expression such as `DATE(DATE(…))` may be a type or a function, SQLGlot tries both, so the
work doubles with each nesting level.
"""

from __future__ import annotations

import functools
from typing import Any

from sqlglot import Dialect, Parser, TokenType

MAX_TOKENS = 50_000  # parsing takes about 20 microseconds per token
MAX_BRACKETS = 40  # maximum nesting of brackets and CASE, because the parser is recursive

# How often backtracking may reread a token on average; ordinary statements need less than once.
_REREADS = 16
# Tokens that any statement may reread in addition, which takes about 0.04 seconds.
_FEW_TOKENS = 2_000


def parse_sql(sql: str, dialect: str) -> list[Any]:
    """Parse SQL into a list of syntax trees, with None for empty statements.

    Raises SqlglotError for invalid SQL, and RecursionError if a statement is nested too deeply or
    too long.
    """
    language = Dialect.get_or_raise(dialect)
    tokens = language.tokenize(sql)
    if len(tokens) > MAX_TOKENS:
        raise RecursionError
    _check_brackets(tokens)
    trees: list[Any] = _parser_class(language.parser_class)(dialect=language).parse(tokens, sql)
    return trees


_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}


def _check_brackets(tokens: list[Any]) -> None:
    depth = 0
    for token in tokens:
        if token.token_type in _OPENING:
            depth += 1
            if depth > MAX_BRACKETS:
                raise RecursionError
        elif token.token_type in _CLOSING:
            depth -= 1


@functools.cache
def _parser_class(kind: type[Parser]) -> type[Parser]:
    class BoundedParser(kind):  # type: ignore[misc, valid-type]
        def parse(self, raw_tokens: list[Any], sql: str) -> Any:
            self._rereads = _FEW_TOKENS + _REREADS * len(raw_tokens)
            return super().parse(raw_tokens, sql)

        def _retreat(self, index: int) -> None:
            self._rereads -= self._index - index
            if self._rereads < 0:  # SQLGlot would catch a ParseError and continue
                raise RecursionError
            super()._retreat(index)

        def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
            # SQLGlot reports errors in set order, which differs between processes.
            for problem in sorted(expression.error_messages(args)):
                self.raise_error(problem)
            return expression

    return BoundedParser
