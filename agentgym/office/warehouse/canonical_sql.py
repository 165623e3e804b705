"""Canonical form of the SQL statements that agents write.

Import this module on demand, because SQLGlot is optional and takes 0.3 s to load.
"""

from __future__ import annotations

import functools

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

from agentgym.office.warehouse.dialects.bounded_parser import parse_sql

# Maximum query length; parsing takes up to a second.
_LONGEST = 100_000


@functools.lru_cache(maxsize=256)
def canonical_query(query: str, dialect: str) -> str:
    """Normalise the letter case and keywords of a script; return an invalid script unchanged."""
    try:
        parts = []
        for tree in _parse(query, dialect):
            statement = normalize_identifiers(tree, dialect)
            if isinstance(statement, exp.Comment):  # SQLGlot keeps `kind` as typed
                statement.set("kind", str(statement.args["kind"]).upper())
            parts.append(statement.sql(dialect))
        return ";".join(parts) or query
    except (SqlglotError, RecursionError):  # nested too deeply, or not expressible in the dialect
        return query


def _parse(query: str, dialect: str) -> list[exp.Expr]:
    if len(query) > _LONGEST:
        return []
    try:
        return [each for each in parse_sql(query, dialect) if each is not None]
    except (SqlglotError, RecursionError, ValueError):
        return []
