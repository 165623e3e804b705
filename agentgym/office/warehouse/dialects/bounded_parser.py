"""SQLGlot's parser with bounded work, and errors in a fixed order.

Where a text may be a type or a function, such as `DATE(DATE(…))`, SQLGlot parses the brackets once
for each, which doubles the work per nesting level.
"""

from __future__ import annotations

import functools
from typing import Any

from sqlglot import Dialect, Parser, TokenType, exp

MAX_TOKENS = 50_000  # half the maximum characters; each token takes some 20 microseconds
# Nodes from root to leaf, as in DuckDB. A chain of operators is as deep as long, and some work
# grows with depth.
MAX_DEPTH = 1_000
MAX_BRACKETS = 40  # nested brackets and CASE expressions, over which the parser recurses
MAX_QUERIES = 1_000  # per statement, as in a UNION; DuckDB's time is quadratic
MAX_JOINS = 100  # joined sources and nested queries, for the same reason

# Maximum average re-reads per token; ordinary statements need less than one.
_REREADS = 16
# Re-reads allowed for any statement, which take some hundredths of a second.
_FEW_TOKENS = 2_000


class TooLargeError(RecursionError):
    """A statement has too many parts."""


def parse_sql(sql: str, dialect: str) -> list[Any]:
    """Return a text's statement trees, None for an empty statement.

    Raises:
        SqlglotError: The text is invalid in the dialect.
        RecursionError: It is nested too deeply or has too many parts.
    """
    language = Dialect.get_or_raise(dialect)
    tokens = language.tokenize(sql)
    _check_tokens(tokens)
    parser = _parser_class(language.parser_class)(dialect=language)
    trees = parser.parse(tokens, sql)
    for tree in trees:
        if tree is not None:
            _check_tree(tree)
    return trees


_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}


def _check_tokens(tokens: list[Any]) -> None:
    if len(tokens) > MAX_TOKENS:
        raise TooLargeError(f"the statement has more than {MAX_TOKENS} words and signs")
    depth = 0
    for token in tokens:
        if token.token_type in _OPENING:
            depth += 1
            if depth > MAX_BRACKETS:
                raise TooLargeError("the statement is nested too deeply")
        elif token.token_type in _CLOSING:
            depth -= 1


def _check_tree(tree: Any) -> None:
    level, depth, queries, joins = [tree], 0, 0, 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise TooLargeError("the statement is nested too deeply")
        below: list[Any] = []
        for node in level:
            queries += isinstance(node, exp.Select)
            joins += isinstance(node, _JOINED)
            below += node.iter_expressions()
        level = below
    if queries > MAX_QUERIES or joins > MAX_JOINS:
        raise TooLargeError(
            f"the statement has more than {MAX_QUERIES} queries or {MAX_JOINS} joins and nested queries"
        )


# DuckDB plans these as joins.
_JOINED = (exp.Join, exp.Subquery, exp.Exists)


@functools.cache
def _parser_class(kind: type[Parser]) -> type[Parser]:
    """Return a dialect's parser that counts its re-reads."""

    class BoundedParser(kind):  # type: ignore[misc, valid-type]
        def parse(self, raw_tokens: list[Any], sql: str) -> Any:
            self._rereads = _FEW_TOKENS + _REREADS * len(raw_tokens)
            return super().parse(raw_tokens, sql)

        def _retreat(self, index: int) -> None:
            self._rereads -= self._index - index
            if self._rereads < 0:  # the parser's own errors would make it try alternatives
                raise TooLargeError("the statement is nested too deeply")
            super()._retreat(index)

        def validate_expression(self, expression: Any, args: list[Any] | None = None) -> Any:
            # Required parts are a set, whose order differs between processes.
            for problem in sorted(expression.error_messages(args)):
                self.raise_error(problem)
            return expression

    return BoundedParser
