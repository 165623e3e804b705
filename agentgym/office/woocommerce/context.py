"""Records, settings and dates that all parts of the shop share."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from agentgym.office.server import page_of
from agentgym.office.server_state import ServerState
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo

_SLUG_CHARS = 180  # leaves room for a numeric suffix; WordPress allows 200 characters
MAX_WORDS = 50  # limited, because each word is compared with every record
_MAX_OFFSET = 2**62  # SQLite integers have 64 bits
_YEARS = range(1900, 9001)  # in these years, time zone conversion cannot overflow


class ShopPart(ServerState):
    """Base class for parts of the shop: records, settings and dates."""

    def setting(self, id: str) -> str:
        """Return the value of a setting."""
        return str(self.store.value("SELECT value FROM settings WHERE id = ?", id))

    def tick(self) -> str:
        """Advance the clock by one second and return the time."""
        return stamp(self.context.clock.tick())

    def now(self) -> str:
        """Return the time without advancing the clock."""
        return stamp(self.context.clock.now())

    def date_of(self, record: Mapping[str, Any], name: str = "date_created") -> str:
        """Return a date field of a record or, if the field is empty, the current time."""
        return stamp(record.get(name) or self.context.clock.now())

    def offset(self) -> timedelta:
        """Return the offset of site time from GMT."""
        return timedelta(hours=float(self.session.get("gmt_offset", 0)))

    def site_time(self, gmt: str | None) -> str | None:
        """Convert a stored date to site time, as used in tool results."""
        offset = self.offset()
        if not gmt or not offset:
            return gmt
        return (datetime.fromisoformat(gmt) + offset).isoformat()

    def parse_date(self, text: str | None, name: str) -> str | None:
        """Convert a date (by default in site time) to GMT, using `name` in error messages."""
        if not text:
            return None
        try:
            moment = datetime.fromisoformat(text.strip())
            if moment.year not in _YEARS:
                raise ValueError
        except ValueError:
            raise ToolError(
                f"invalid argument: {name} must be a date such as 2025-01-15T09:00:00, got "
                f"{echo(text)}"
            ) from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC) - self.offset()
        return stamp(moment)

    def select_ids(
        self,
        table: str,
        where: Mapping[str, Any],
        order: str,
        page: int | None = None,
        size: int = 100,
    ) -> list[int]:
        """Return the ids of matching records, sorted by `order`; `page` (from 1) selects one page.

        `where` maps SQL conditions to values; None disables a condition. `order` is SQL.
        """
        conditions = {sql: value for sql, value in where.items() if value is not None}
        sql = f'SELECT id FROM "{table}" WHERE {" AND ".join(conditions) or 1} ORDER BY {order}'
        if page is not None:
            page_of((), page, size)  # checks both numbers
            sql += f" LIMIT {size} OFFSET {min((page - 1) * size, _MAX_OFFSET)}"
        return [row["id"] for row in self.store.rows(sql, *conditions.values())]

    def rows_by_id(self, table: str, ids: Iterable[int]) -> list[Row]:
        """Return existing records in the order of `ids`."""
        keys = list(ids)
        sql = f'SELECT * FROM "{table}" WHERE id IN (SELECT value FROM json_each(?))'
        rows = {row["id"]: row for row in self.store.rows(sql, keys)}
        return [rows[key] for key in keys if key in rows]

    def rows_by_owner(
        self, owner: str, sql: str, ids: Sequence[int]
    ) -> defaultdict[int, list[Row]]:
        """Run a SELECT whose `?` is a list of ids, and group the rows by the column `owner`."""
        rows: defaultdict[int, list[Row]] = defaultdict(list)
        for row in self.store.rows(sql, ids):
            rows[row.pop(owner)].append(row)
        return rows

    def next_id(self, table: str) -> int:
        """Return the next automatic id of a table."""
        last = self.store.value("SELECT seq FROM sqlite_sequence WHERE name = ?", table)
        return int(last or 0) + 1

    def column_values(self, table: str, column: str) -> set[Any]:
        """Return the distinct values of a column."""
        return {value for (value,) in self.store.tuples(f'SELECT "{column}" FROM "{table}"')}


def stamp(moment: datetime) -> str:
    """Convert a datetime to GMT in the stored format; raise `ValueError` if it has no time zone."""
    if moment.tzinfo is None:
        raise ValueError(
            f"a date must have a time zone, got {moment!r}; write datetime(..., tzinfo=UTC)"
        )
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


_ADDRESS = (
    "first_name", "last_name", "company", "address_1", "address_2", "city", "state", "postcode",
    "country", "email", "phone",
)  # fmt: skip


def in_address_order(address: Mapping[str, str]) -> Row:
    """Return an address in the API's field order; raise `ValueError` for unknown fields."""
    check_fields(address, _ADDRESS)
    return pick_fields(address, _ADDRESS)


def pick_fields(record: Mapping[str, Any], names: Iterable[str]) -> Row:
    """Return the given fields of a record, if it has them, in the order of `names`."""
    return {name: record[name] for name in names if name in record}


def check_fields(record: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise `ValueError` if a record has a field that is not in `names`."""
    unknown = sorted(record.keys() - set(names))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}; the fields are {', '.join(names)}")


def given_fields(record: Row) -> Row:
    """Return the non-blank fields of an address or order line."""
    return {name: value for name, value in record.items() if value not in ("", None)}


def show_meta(fields: Sequence[Row]) -> list[Row]:
    """Return custom fields as shown in tool results, without ids."""
    return [{"key": field["key"], "value": field["value"]} for field in fields]


def merge_meta(record: Row, data: Row) -> list[Row]:
    """Merge custom fields by id or, without a known id, by key; a null value removes a field."""
    merged = [dict(field) for field in record["meta_data"]]
    for change in data.get("meta_data", ()):
        by_id = _find(merged, "id", change.get("id"))
        match = by_id or _find(merged, "key", change.get("key"))
        if match is None and not change.get("key"):
            raise ToolError("invalid argument: a new item of meta_data needs a key")
        if change.get("value") is None:
            merged = [field for field in merged if field is not match]
        elif match is not None:
            match.update({"key": change.get("key", match["key"]), "value": change["value"]})
        else:
            number = max((field["id"] for field in merged), default=0) + 1
            merged.append({"id": number, "key": change["key"], "value": change["value"]})
    return merged


def _find(fields: Sequence[Row], name: str, value: object) -> Row | None:
    return next((field for field in fields if field[name] == value), None)


def slug_of(name: str, taken: set[str]) -> str:
    """Return an unused slug, and add the slug to `taken`."""
    base = re.sub(r"[\W_]+", "-", name.lower()).strip("-")[:_SLUG_CHARS] or "item"
    slug = free_name(base, taken, "-")
    taken.add(slug)
    return slug


def free_name(name: str, taken: Collection[str], separator: str = "") -> str:
    """Return an unused name, with a number appended if necessary."""
    if name not in taken:
        return name
    numbered = (f"{name}{separator}{number}" for number in itertools.count(2))
    return next(each for each in numbered if each not in taken)


def words_in(*columns: str) -> str:
    """Return an SQL condition that requires every word of a list to occur in the columns."""
    text = " || ' ' || ".join(f"coalesce({column}, '')" for column in columns)
    missing = f"SELECT 1 FROM json_each(?) AS word WHERE instr(lower({text}), word.value) = 0"
    return f"NOT EXISTS ({missing})"


def words(search: str | None) -> list[str] | None:
    """Split a search string into words for `words_in`."""
    if not search:
        return None
    # Like SQLite's lower(), bytes.lower() affects only ASCII letters.
    parts = search.encode().lower().decode().split()
    if len(parts) > MAX_WORDS:
        raise ToolError(
            f"limit exceeded: a search may have at most {MAX_WORDS} words, got {len(parts)}"
        )
    return parts
