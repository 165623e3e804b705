"""Context that all parts of the shop share: records, settings, dates and batches."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from agentgym.office.context import Clock
from agentgym.office.server import Server, page_of
from agentgym.office.store import Row, Store
from agentgym.text.tools import ToolError, echo

MAX_BATCH = 100
"""Most items of a batch, as in the REST API of WooCommerce."""

_SLUG_CHARS = 180  # leaves room for a number within the 200 characters of a slug in WordPress
MAX_WORDS = 50
"""Words of a search, as in a search of mails: each is compared with every record."""
_MAX_OFFSET = 2**62  # an SQLite integer has 64 bits; a page beyond all records is empty anyway
_YEARS = range(1900, 9001)  # far enough from the limits of `datetime` to add a time zone

_DATES = frozenset({"date_created", "date_modified", "date_on_sale_from", "date_on_sale_to"})
"""Fields of products that are dates."""

BatchJob: TypeAlias = tuple[Sequence[Any] | None, Callable[..., Row]]
"""Items of a batch, and the tool for one of them."""


class ShopContext:
    """Records, settings, dates and events of a shop, shared by its parts.

    Store, session and clock are looked up on the server at each use: the server replaces them when
    an episode begins and when a snapshot is restored.

    Args:
        server: The server of the shop.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def store(self) -> Store:
        """Records of the shop."""
        return self._server.store

    @property
    def session(self) -> dict[str, Any]:
        """Settings that were changed, by id; a copy of those in the store that costs no query."""
        return self._server.session

    @property
    def clock(self) -> Clock:
        """Clock of the office."""
        return self._server.context.clock

    def setting(self, id: str) -> str:
        """Return the value of a setting."""
        changed = self.session.get(id)
        return str(changed or self.store.value("SELECT value FROM settings WHERE id = ?", id))

    # -- dates ---------------------------------------------------------------------------------

    def tick(self) -> str:
        """Return the time of an event that happens now; no two events have the same."""
        return stamp(self.clock.tick())

    def now(self) -> str:
        """Return the time without letting it pass."""
        return stamp(self.clock.now())

    def date_of(self, record: Mapping[str, Any], name: str = "date_created") -> str:
        """Return a date that an author's record gives, or else the time."""
        return stamp(record.get(name) or self.clock.now())

    def offset(self) -> timedelta:
        """Return the difference between site time and GMT."""
        return timedelta(hours=float(self.session.get("gmt_offset", 0)))

    def site_time(self, gmt: str | None) -> str | None:
        """Convert a date of a record to site time, in which all answers are."""
        offset = self.offset()
        return (datetime.fromisoformat(gmt) + offset).isoformat() if offset and gmt else gmt

    def show_fields(self, row: Row, new: Row, always: Collection[str]) -> Row:
        """Return the fields of a record that the server always shows, and those whose value is not
        that of a new record; dates are in site time.
        """
        defaults = {**new, **new["details"]}
        return {
            name: self.site_time(value) if name in _DATES else value
            for name, value in {**row, **row["details"]}.items()
            if name in always or (name != "details" and value != defaults[name])
        }

    def parse_date(self, text: str | None, name: str) -> str | None:
        """Convert a caller's date to GMT; one without a time zone is in site time.

        Args:
            text: The date; None or an empty text gives None.
            name: Name of the argument for the error.

        Raises:
            ToolError: The text is no date.
        """
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
        return stamp(moment if moment.tzinfo else moment.replace(tzinfo=UTC) - self.offset())

    # -- records -------------------------------------------------------------------------------

    def select_ids(
        self,
        table: str,
        where: Mapping[str, Any],
        order: str,
        page: int | None = None,
        size: int = 100,
    ) -> list[int]:
        """Return the ids of records in an order, all of them or one page.

        Args:
            table: Table of the records.
            where: Values by SQL condition; a condition whose value is None does not count.
            order: SQL expression to sort by.
            page: Number of the page, from 1 on; all records if None.
            size: Records a page.

        Raises:
            ToolError: The page or its size is out of range.
        """
        conditions = {sql: value for sql, value in where.items() if value is not None}
        sql = f'SELECT id FROM "{table}" WHERE {" AND ".join(conditions) or 1} ORDER BY {order}'
        if page is not None:
            page_of((), page, size)  # only to check both numbers
            sql += f" LIMIT {size} OFFSET {min((page - 1) * size, _MAX_OFFSET)}"
        return [row["id"] for row in self.store.rows(sql, *conditions.values())]

    def select_page(
        self, table: str, where: Mapping[str, Any], order: str, page: int, size: int
    ) -> list[Row]:
        """Return one page of the records that meet conditions (see `select_ids`)."""
        return self.rows_by_id(table, self.select_ids(table, where, order, page, size))

    def rows_by_id(self, table: str, ids: Iterable[int]) -> list[Row]:
        """Return the records with ids, in the order of the ids and without those that are gone."""
        keys = list(ids)
        sql = f'SELECT * FROM "{table}" WHERE id IN (SELECT value FROM json_each(?))'
        rows = {row["id"]: row for row in self.store.rows(sql, keys)}
        return [rows[key] for key in keys if key in rows]

    def rows_by_owner(
        self, owner: str, sql: str, ids: Sequence[int]
    ) -> defaultdict[int, list[Row]]:
        """Return the rows of a SELECT about owners with ids, by owner.

        Args:
            owner: Column with the id of the owner, which the rows lose.
            sql: The statement; its parameter is the JSON list of the ids.
            ids: Ids of the owners.
        """
        rows: defaultdict[int, list[Row]] = defaultdict(list)
        for row in self.store.rows(sql, ids):
            rows[row.pop(owner)].append(row)
        return rows

    def next_id(self, table: str) -> int:
        """Return the id that the next record of a table gets."""
        last = self.store.value("SELECT seq FROM sqlite_sequence WHERE name = ?", table)
        return int(last or 0) + 1

    def column_values(self, table: str, column: str) -> set[Any]:
        """Return the values that a column has."""
        return {row[column] for row in self.store.rows(f'SELECT "{column}" FROM "{table}"')}

    def delete_or_trash(
        self, table: str, kind: str, id: int, force: bool, show: Callable[[int], Row]
    ) -> Row:
        """Delete a record, or put it into the trash.

        Args:
            table: Table of the record.
            kind: Name of such a record in errors and events.
            id: Id of the record.
            force: Whether to delete it for good.
            show: Function that returns the record as the API shows it.

        Returns:
            The record as it is in the trash, or as it was before it was deleted.

        Raises:
            ToolError: The record is in the trash already.
        """
        record = show(id)
        if force:
            self.store.delete(table, id=id)
        elif self.store.get(table, id)["status"] == "trash":
            raise ToolError(
                f"conflict: {kind} {id} is in the trash already; force deletes it for good"
            )
        else:
            self.store.update(table, id, status="trash", date_modified=self.tick())
            record = show(id)
        return record

    # -- batches -------------------------------------------------------------------------------

    def run_batch(
        self, create: BatchJob, update: BatchJob, delete: BatchJob
    ) -> dict[str, list[Row]]:
        """Carry out the items of a batch one by one; one that fails changes nothing.

        Args:
            create: Records to create, and the tool that creates one.
            update: Records with an `id`, and the tool that updates one.
            delete: Ids to delete for good, and the tool that deletes one.

        Returns:
            The records by verb, with the error in the place of one that failed.

        Raises:
            ToolError: The batch is too large.
        """
        jobs: dict[str, BatchJob] = {
            "create": create,
            "update": (update[0], lambda data: update[1](_id_of(data), data)),
            "delete": (delete[0], lambda key: delete[1](key, force=True)),
        }
        if sum(len(items or ()) for items, _ in jobs.values()) > MAX_BATCH:
            raise ToolError(f"limit exceeded: a batch has at most {MAX_BATCH} items")
        results = {}
        for verb, (items, call) in jobs.items():
            if items is not None:
                results[verb] = [self._attempt(item, call) for item in items]
        return results

    def _attempt(self, item: Any, call: Callable[[Any], Row]) -> Row:
        try:
            with self.store.change():
                return call(item)
        except ToolError as error:
            return {"error": str(error)}


class ShopPart:
    """A part of the shop: some of its tools, and methods for the authors of tasks.

    Args:
        shop: Context that all parts share.
    """

    def __init__(self, shop: ShopContext) -> None:
        self._shop = shop

    @property
    def _store(self) -> Store:
        return self._shop.store


def _id_of(data: Row) -> int:
    key = data.get("id")
    if isinstance(key, bool) or not isinstance(key, int):
        raise ToolError("invalid argument: an item to update needs an integer id")
    return key


def stamp(moment: datetime) -> str:
    """Format a moment in GMT as in the records.

    Raises:
        ValueError: The moment has no time zone.
    """
    if moment.tzinfo is None:
        raise ValueError(
            f"a date must have a time zone, got {moment!r}; write datetime(..., tzinfo=UTC)"
        )
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def given_fields(record: Row) -> Row:
    """Return the fields of an address or a line that are not blank."""
    return {name: value for name, value in record.items() if value not in ("", None)}


def show_meta(fields: Sequence[Row]) -> list[Row]:
    """Return custom fields as the server shows them, without their ids."""
    return [{"key": field["key"], "value": field["value"]} for field in fields]


def merge_meta(record: Row, data: Row) -> list[Row]:
    """Return the custom fields of a record after the changes that a caller gave, if any.

    The field with the same id, or else with the same key, gets the new value; null removes it.

    Raises:
        ToolError: A new field has no key.
    """
    merged = [dict(field) for field in record["meta_data"]]
    for change in data.get("meta_data", ()):
        name, value = "key", change.get("key")
        if change.get("id") in {field["id"] for field in merged}:
            name, value = "id", change["id"]
        match = next((field for field in merged if field[name] == value), None)
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


def slug_of(name: str, taken: set[str]) -> str:
    """Make a short name for addresses that is not among those taken, and add it to them."""
    base = re.sub(r"[\W_]+", "-", name.lower()).strip("-")[:_SLUG_CHARS] or "item"
    slug = free_name(base, taken, "-")
    taken.add(slug)
    return slug


def free_name(name: str, taken: Collection[str], separator: str = "") -> str:
    """Return a name that is not among those taken: itself, or with a number."""
    if name not in taken:
        return name
    numbered = (f"{name}{separator}{number}" for number in itertools.count(2))
    return next(each for each in numbered if each not in taken)


def words_in(*columns: str) -> str:
    """Return an SQL condition: each word of a list (`words`) is in one of the columns."""
    text = " || ' ' || ".join(f"coalesce({column}, '')" for column in columns)
    missing = f"SELECT 1 FROM json_each(?) AS word WHERE instr(lower({text}), word.value) = 0"
    return f"NOT EXISTS ({missing})"


def words(search: str | None) -> list[str] | None:
    """Split a search into words for `words_in`.

    Raises:
        ToolError: There are too many.
    """
    if not search:
        return None
    # SQLite's lower() knows ASCII only: bytes are lowered in the same way.
    parts = search.encode().lower().decode().split()
    if len(parts) > MAX_WORDS:
        raise ToolError(f"limit exceeded: a search has at most {MAX_WORDS} words, not {len(parts)}")
    return parts
