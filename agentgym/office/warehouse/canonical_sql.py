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
        statements = [normalize_identifiers(each, dialect) for each in _parse(query, dialect)]
        for comment in (each for each in statements if isinstance(each, exp.Comment)):
            comment.set("kind", str(comment.args["kind"]).upper())  # SQLGlot keeps `kind` as typed
        return ";".join(each.sql(dialect) for each in statements) or query
    except (SqlglotError, RecursionError):  # nested too deeply, or not expressible in the dialect
        return query


def _parse(query: str, dialect: str) -> list[exp.Expr]:
    if len(query) > _LONGEST:
        return []
    try:
        return [each for each in parse_sql(query, dialect) if each is not None]
    except (SqlglotError, RecursionError, ValueError):
        return []
