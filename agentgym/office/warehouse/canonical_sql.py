"""Canonical form of the SQL statements that agents write.

Import this module on demand, because SQLGlot is optional and takes 0.3 s to load.
"""

from __future__ import annotations

import functools

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers

from agentgym.office.warehouse.dialects.bounded_parser import parse_sql


@functools.lru_cache(maxsize=256)
def canonical_query(query: str, dialect: str) -> str:
    """Normalise the letter case and keywords of a script; return an invalid script unchanged."""
    parts = []
    try:
        for tree in parse_sql(query, dialect):
            if tree is None:
                continue
            statement = normalize_identifiers(tree, dialect)
            if isinstance(statement, exp.Comment):  # SQLGlot keeps `kind` as typed
                statement.set("kind", str(statement.args["kind"]).upper())
            parts.append(statement.sql(dialect))
    except (SqlglotError, RecursionError, ValueError):  # invalid, or nested too deeply
        return query
    return ";".join(parts) or query
