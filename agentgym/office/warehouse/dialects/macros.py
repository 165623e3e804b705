"""DuckDB macros, in schema `lib`, for warehouse functions that DuckDB lacks.

They are plain text, so the engine can create them without loading SQLGlot.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from itertools import zip_longest

RECURSIONS = 4  # sequences that count rounds; a statement's fifth and later recursions share one

# Maximum work of a statement: rows visited or created (20 ns each), rows of windows that visit all
# rows for each, texts and arrays over a thousand characters or items created (or letter pairs
# compared), the same beyond 65,536, compared pairs of short texts (a microsecond each), and
# pattern matching in units of 256 steps (for short texts and patterns) or 65,536 steps. A step, one
# instruction of the pattern at one character, takes up to 15 ns.
_COUNTED = {
    "rows": 50_000_000,
    "framed": 20_000,
    "long": 20_000,
    "huge": 1_000,
    "compared": 4_000_000,
    "matched": 2_000_000,
    "searched": 5_000,
}

# Sequences end at these counts; the recursion rounds are the published limits.
COUNTERS: Mapping[str, Mapping[str, int]] = {
    dialect: {**_COUNTED, **{f"steps{k}": rounds for k in range(RECURSIONS)}}
    for dialect, rounds in {"bigquery": 500, "snowflake": 100}.items()
}

# Texts and arrays of bounded length, arguments that bound a function's work (no other limit reaches
# inside a call), dates that stay dates.
_COMMON = (
    # Apply a function to a one-item list, because a macro expands its arguments at each
    # occurrence: two nested calls would become four. Count work before it happens, because
    # DuckDB processes about a thousand rows at once.
    (
        "few(n, size) AS list_transform([n], lambda k: CASE WHEN k > 1000000 // size THEN "
        "error('the result is too long') WHEN k IS NULL OR k * size < 1024 THEN k WHEN k * size < "
        "65536 AND nextval('lib.long') > 0 THEN k WHEN nextval('lib.huge') > 0 THEN k END)[1]"
    ),
    (
        "weighed_text(a) AS list_transform([a], lambda x: CASE WHEN x IS NULL OR strlen(x) < 1024 "
        "THEN x WHEN length(x) > 1000000 THEN error('the result is too long') WHEN strlen(x) < "
        "65536 AND nextval('lib.long') > 0 THEN x WHEN nextval('lib.huge') > 0 THEN x END)[1]"
    ),
    (
        "weighed(a VARCHAR) AS lib.weighed_text(a), (a BLOB) AS a, (a) AS list_transform([a], "
        "lambda x: CASE WHEN length(x) > 1000000 THEN error('the result is too long') ELSE x "
        "END)[1]"
    ),
    (
        "many(a, n) AS list_transform([a], lambda x: repeat(x, CAST(lib.few(n, greatest(length(x), "
        "1)) AS BIGINT)))[1]"
    ),
    "left_pad(a, n, p) AS lpad(a, CAST(lib.few(n, 1) AS INTEGER), p)",
    "right_pad(a, n, p) AS rpad(a, CAST(lib.few(n, 1) AS INTEGER), p)",
    (
        "items(k, s) AS CASE WHEN k > 1000000 * s THEN error('an array has at most 1000000 items') "
        "WHEN k IS NULL OR k < 1024 * s THEN true WHEN k < 65536 * s THEN nextval('lib.long') > 0 "
        "ELSE nextval('lib.huge') > 0 END"
    ),
    (
        "upto(a, b, s) AS CASE WHEN list_transform([abs(b - a)], lambda k: lib.items(k, abs(s)))[1] "
        "THEN b END"
    ),
    (
        "until(a, b, s) AS CASE WHEN list_transform([abs(epoch(b) - epoch(a))], "
        "lambda k: lib.items(k, abs(epoch(s))))[1] THEN b END"
    ),
    (
        "near(a, b) AS CASE WHEN list_transform([length(a) * length(b)], lambda k: CASE WHEN k IS "
        "NULL THEN true WHEN k > 1000000 THEN error('the texts are too long to compare: at most "
        "1000 characters each') WHEN k < 1024 THEN nextval('lib.compared') > 0 WHEN k < 65536 THEN "
        "nextval('lib.long') > 0 ELSE nextval('lib.huge') > 0 END)[1] THEN a END"
    ),
    (
        "room(a, old, new) AS list_transform([a], lambda x: CASE WHEN length(new) > length(old) AND "
        "length(x) // greatest(length(old), 1) * length(new) > 1000000 AND (length(x) - "
        "length(replace(x, old, ''))) // greatest(length(old), 1) * length(new) > 1000000 THEN "
        "error('the result is too long') ELSE x END)[1]"
    ),
    # Count a match's steps before it happens.
    (
        "spend(k) AS CASE WHEN k IS NULL THEN true WHEN k < 65536 THEN list_max(list_transform(range(1 + k // "
        "256), lambda i: nextval('lib.matched'))) > 0 WHEN k > 5000 * 65536 THEN error('the text or the "
        "pattern is too long to match') ELSE list_max(list_transform(range(k // 65536), lambda i: "
        "nextval('lib.searched'))) > 0 END"
    ),
    (
        r"repeats(y) AS list_transform(regexp_extract_all(y, '(\d{1,4})\s*[,}]', 1), lambda n: CAST(n AS "
        r"DOUBLE)) || [1.0]"
    ),
    # An upper estimate of a regular expression's instructions; a counted repetition
    # repeats those in its item.
    (
        r"instructions(p) AS list_transform([p], lambda y: (length(y) + 1) * CASE WHEN regexp_matches(y, "
        r"'\[pP]|\[\^|\(\?') THEN 8 ELSE 1 END + CASE WHEN NOT contains(y, '{') THEN 0 WHEN "
        r"regexp_matches(y, '\)[*+?]*\{') THEN length(y) * least(1000, list_product(lib.repeats(y))) ELSE 10 * "
        r"list_sum(lib.repeats(y)) END)[1]"
    ),
    (
        "matching(a, p) AS list_transform([a], lambda x: CASE WHEN lib.spend((length(x) + 20) * "
        "CAST(lib.instructions(p) AS BIGINT)) THEN x END)[1]"
    ),
    # Each match may search the rest of the text.
    (
        "matching_all(a, p) AS list_transform([a], lambda x: CASE WHEN lib.spend((length(x) + 20) * "
        "CAST(lib.instructions(p) AS BIGINT) + length(x) * length(x) // 8) THEN x END)[1]"
    ),
    # LIKE compares with the pattern at each place.
    (
        "like_text(a, p) AS list_transform([a], lambda x: CASE WHEN lib.spend(length(x) * length(p) // 16) "
        "THEN x END)[1]"
    ),
    (
        "replacing(a, p, new) AS list_transform([lib.matching_all(a, p)], lambda x: CASE WHEN (length(x) + 1) * "
        "length(new) > 10000000 THEN error('the result is too long') ELSE x END)[1]"
    ),
    (
        r"style(a) AS CASE WHEN regexp_matches(a, '%[-+ #0-9.'']*([0-9]{4}|\*)') THEN error('a "
        "width or precision is a number below 1000') ELSE a END"
    ),
    "bytes_in(a VARCHAR) AS strlen(a), (a BLOB) AS octet_length(a)",
    (
        "cut(part, a DATE) AS CAST(date_trunc(part, a) AS DATE), (part, a TIMESTAMP) AS "
        "date_trunc(part, a), "
        "(part, a TIMESTAMPTZ) AS date_trunc(part, a), (part, a VARCHAR) AS date_trunc(part, "
        "CAST(a AS TIMESTAMP))"
    ),
)

# GoogleSQL's division and casts, by argument type where relevant.
_BIGQUERY = (
    (
        "cut_week(days, a DATE) AS CAST(date_trunc('week', a - days) AS DATE) + days, (days, a TIMESTAMP) AS "
        "date_trunc('week', a - to_days(days)) + to_days(days), (days, a TIMESTAMPTZ) AS "
        "date_trunc('week', a - to_days(days)) + to_days(days)"
    ),
    (
        "part(a, n) AS list_transform([a], lambda x: substring(x, CASE WHEN n = 0 OR n < -length(x) THEN 1 ELSE n "
        "END))[1], (a, n, size) AS list_transform([a], lambda x: substring(x, CASE WHEN n = 0 OR n < -length(x) THEN "
        "1 ELSE n END, size))[1]"
    ),
    "ieee(a, b) AS CAST(a AS DOUBLE) / CAST(b AS DOUBLE)",
    "div(a, b) AS CASE WHEN b = 0 THEN error('division by zero') ELSE a / b END",
    "modulo(a, b) AS CASE WHEN b = 0 THEN error('division by zero: MOD') ELSE a % b END",
    (
        "quotient(a, b) AS CASE WHEN b = 0 THEN error('division by zero: DIV') ELSE CAST(trunc(a / b) "
        "AS BIGINT) END"
    ),
    (
        "text(a) AS CASE WHEN typeof(a) = 'DOUBLE' THEN regexp_replace(CAST(a AS VARCHAR), "
        "'\\.0$', '') "
        "WHEN typeof(a) LIKE 'DECIMAL%' "
        "THEN regexp_replace(regexp_replace(CAST(a AS VARCHAR), '(\\.\\d*?)0+$', '\\1'), '\\.$', "
        "'') "
        "ELSE CAST(a AS VARCHAR) END"
    ),
    (
        "whole(a) AS CASE WHEN a IS NULL THEN NULL WHEN typeof(a) = 'DOUBLE' THEN "
        "CAST(round(CAST(a AS DOUBLE)) AS BIGINT) "
        "WHEN typeof(a) = 'VARCHAR' AND NOT regexp_full_match(trim(CAST(a AS VARCHAR)), "
        "'[+-]?\\d+') "
        "THEN error('Bad int64 value: ' || CAST(a AS VARCHAR)) ELSE CAST(a AS BIGINT) END"
    ),
    (
        "try_whole(a) AS CASE WHEN typeof(a) = 'DOUBLE' THEN TRY_CAST(round(TRY_CAST(a AS DOUBLE)) "
        "AS BIGINT) "
        "WHEN typeof(a) = 'VARCHAR' AND NOT regexp_full_match(trim(CAST(a AS VARCHAR)), "
        "'[+-]?\\d+') "
        "THEN NULL ELSE TRY_CAST(a AS BIGINT) END"
    ),
)

# The decimal places of `a`; 0 for other types.
_SCALE = (
    "CAST(coalesce(nullif(regexp_extract(typeof(a), 'DECIMAL.*,(\\d+)', 1), ''), '0') AS INTEGER)"
)

# Division, casts and dates, by argument type where relevant.
_SNOWFLAKE = (
    # A NUMBER divided by a NUMBER has six more decimal places than the first, up to 12; with a
    # FLOAT it is a FLOAT.
    (
        "div(a, b) AS CASE WHEN b = 0 THEN error('Division by zero') WHEN typeof(a) = 'DOUBLE' OR "
        "typeof(b) = 'DOUBLE' THEN a / b "
        f"ELSE round(a / b, greatest({_SCALE}, least({_SCALE} + 6, 12))) END"
    ),
    "modulo(a, b) AS CASE WHEN b = 0 THEN error('Division by zero') ELSE a % b END",
    (
        "text(a) AS CASE WHEN typeof(a) = 'DOUBLE' THEN regexp_replace(CAST(a AS VARCHAR), '\\.0$', '') ELSE "
        "CAST(a AS VARCHAR) END"
    ),
    "whole(a DOUBLE) AS CAST(round(a) AS BIGINT), (a BIGINT) AS a, (a) AS CAST(a AS BIGINT)",
    (
        "later(a DATE, i) AS CAST(a + i AS DATE), (a TIMESTAMP, i) AS a + i, (a TIMESTAMPTZ, i) AS "
        "a + i, "
        "(a VARCHAR, i) AS CAST(a AS TIMESTAMP) + i"
    ),
    "moment(a BIGINT) AS CAST(to_timestamp(a) AS TIMESTAMP), (a) AS CAST(a AS TIMESTAMP)",
)

# Later macros may call earlier ones.
MACROS: Mapping[str, tuple[str, ...]] = {
    "bigquery": (*_BIGQUERY, *_COMMON),
    "snowflake": (*_SNOWFLAKE, *_COMMON),
}


# DuckDB functions that reveal its process. DuckDB calls most of them when a name is not a column,
# quoted or not, as in `SELECT user`. The episode's time is in a variable.
HIDDEN: Mapping[str, str] = {
    **{
        name: name
        for name in ("current_catalog", "current_database", "current_date", "current_role", "current_schema",
                     "current_schemas", "current_user", "now", "session_user", "today", "transaction_timestamp",
                     "user", "version")
    },
    "current_localtime": "localtime",
    "current_localtimestamp": "localtimestamp",
    "get_current_time": "current_time",
    "get_current_timestamp": "current_timestamp",
}  # fmt: skip


@functools.cache
def copies_of_arguments(name: str) -> tuple[int, ...]:
    """Return the maximum number of occurrences of each argument in a macro's expansion."""
    copies: tuple[int, ...] = ()
    for macro in (*_COMMON, *_BIGQUERY, *_SNOWFLAKE):
        if macro.startswith(f"{name}("):
            words = [
                parameter.split()[0]
                for parameter in macro[len(name) + 1 : macro.index(")")].split(",")
            ]
            bodies = [
                part.partition(" AS ")[2] for part in re.split(r", (?=\([^()]*\) AS )", macro)
            ]
            counts = (
                max(1, *(len(re.findall(rf"\b{word}\b", body)) for body in bodies))
                for word in words
            )
            copies = tuple(map(max, zip_longest(copies, counts, fillvalue=1)))
    return copies
