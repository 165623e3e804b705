"""Load state folders that LOCA-bench's generators wrote.

A state folder contains `agent_workspace`, `groundtruth_workspace`, and `local_db` with one folder
per server. Twelve tasks can be loaded; docs/loca_states.md explains why the others cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, TypeAdapter

from agentgym.envs.loca.published.files import read_json
from agentgym.envs.loca.records import Record, Rows
from agentgym.envs.loca.task import OfficeConfig
from agentgym.office.email.messages import Mail
from agentgym.office.email.server import Email
from agentgym.office.files.workspace import Workspace
from agentgym.text.tools import ToolError

Table: TypeAlias = list[list[Any]]
_ANYTHING = TypeAdapter(Record)


@dataclass(frozen=True, kw_only=True)
class PublishedConfig(OfficeConfig):
    """Options of a task that can load LOCA-bench's own states.

    Attributes:
        data: A LOCA-bench state folder, or the parent of folders `state0`, `state1`, … to draw
            from. If empty, agentgym generates a state.
    """

    data: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data and not Path(self.data).is_dir():
            raise ValueError(f"data must be a LOCA-bench state folder, got {self.data!r}")

    def for_seed(self, seed: int) -> Self:
        if not self.data:
            return self
        states = sorted(Path(self.data).glob("state*")) or [Path(self.data)]
        # With a fixed size, the state is loaded once instead of being adjusted to `length`.
        return replace(self, data=str(states[seed % len(states)]), size=1)


@dataclass(frozen=True)
class _Properties:
    title: str


@dataclass(frozen=True)
class _Spreadsheet:
    properties: _Properties


@dataclass(frozen=True)
class _Cell:
    value: str | int | float | bool | None


@dataclass(frozen=True)
class ShopProduct:
    """A product."""

    sku: str
    name: str
    description: str
    regular_price: str
    stock_quantity: int


@dataclass(frozen=True)
class MailUser:
    """A user of the mail server."""

    email: str
    password: str
    name: str


@dataclass(frozen=True)
class _Message:
    folder: str
    sender: Annotated[str, Field(alias="from")]
    to: str
    subject: str
    body: str
    html_body: str
    date: datetime

    def as_mail(self) -> Mail:
        date = self.date
        if not date.tzinfo:
            date = date.replace(tzinfo=UTC)
        return Mail(self.sender, self.to, self.subject, self.body, date, html=self.html_body)


@dataclass(frozen=True)
class _Field:
    key: str
    value: str


@dataclass(frozen=True)
class _StockedProduct:
    name: str
    regular_price: str
    stock_quantity: int
    date_created: datetime
    meta_data: list[_Field]
    sale_price: str = ""


@dataclass(frozen=True)
class _Line:
    product_id: ShopProduct
    quantity: Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class ShopOrder:
    """A paid order."""

    status: Literal["processing"]
    line_items: list[_Line]


def load_workspace(state: Path, files: Workspace, needed: Sequence[str], *outputs: str) -> None:
    """Copy the agent's files. Raise ValueError if the state is incomplete or already used."""
    folder = state / "agent_workspace"
    for name in needed:
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} must be a file, because the task needs it")
    for name in outputs:
        if (folder / name).exists():
            raise ValueError(f"{folder / name} must not exist in an unused state")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files.write(path.relative_to(folder).as_posix(), path.read_bytes())
    for name in ("storage_buckets", "storage_objects", "log_entries"):
        path = state / "local_db" / "google_cloud" / f"{name}.json"
        if path.exists() and path.stat().st_size and read_json(path, _ANYTHING):
            raise ValueError(f"{path} must be empty in an unused state")


def read_spreadsheet(state: Path, title: str, *sheets: str) -> Mapping[str, Table]:
    """Return the rows of each sheet in the state's only spreadsheet."""
    folder = state / "local_db" / "google_sheets"
    books = read_json(folder / "spreadsheets.json", TypeAdapter(dict[str, _Spreadsheet]))
    titles = [book.properties.title for book in books.values()]
    if titles != [title]:
        raise ValueError(
            f"{folder / 'spreadsheets.json'} must contain only {title!r}, got {titles}"
        )
    [book] = books
    path = folder / "cells.json"
    names = "|".join(map(re.escape, sheets))
    # The numbers of digits limit the memory that a malformed key can use.
    pattern = re.compile(rf"{re.escape(book)}_({names})_(0|[1-9][0-9]{{0,4}})_(0|[1-9][0-9]?)")
    values: dict[str, dict[tuple[int, int], Any]] = {sheet: {} for sheet in sheets}
    for key, cell in read_json(path, TypeAdapter(dict[str, _Cell])).items():
        match = pattern.fullmatch(key)
        if not match:
            raise ValueError(f"{path}: {key} must have the form {book}_({names})_ROW_COLUMN")
        values[match[1]][int(match[2]), int(match[3])] = cell.value
    return {sheet: _table(cells) for sheet, cells in values.items()}


def load_mail(
    state: Path,
    email: Email,
    owner: str,
    needed: Iterable[str] = (),
    latest: datetime | None = None,
) -> Sequence[Mail]:
    """Load the mail server's users and the owner's INBOX, and return the owner's emails by date.

    Only `owner` may have emails, and the state must contain the users `needed`. If `latest` is
    given, shift all dates so that the last email has this date. Raise ValueError if a file is
    missing or malformed, or if an agent has used the state.
    """
    folder = state / "local_db" / "emails"
    path = folder / "users.json"
    users = read_json(path, TypeAdapter(dict[str, MailUser])).values()
    unknown = {owner, *needed} - {user.email for user in users}
    if unknown:
        raise ValueError(f"{path} must contain the users {sorted(unknown)}")
    path = folder / "users_data" / owner / "emails.json"
    stored = read_json(path, TypeAdapter(dict[str, _Message]))
    drafts = read_json(path.with_name("drafts.json"), _ANYTHING)
    if drafts or any(message.folder != "INBOX" for message in stored.values()):
        raise ValueError(
            f"in an unused state, {path} must contain only INBOX emails, and drafts.json must be empty"
        )
    mails = sorted(map(_Message.as_mail, stored.values()), key=lambda mail: mail.date)
    if latest and mails:
        delay = latest - mails[-1].date
        mails = [replace(mail, date=mail.date + delay) for mail in mails]
    try:
        email.add_users((user.email, user.password, user.name) for user in users)
        email.deliver(mails, user=owner)
    except ToolError as error:
        raise ValueError(f"{folder}: {error}") from None
    return mails


def _table(values: Mapping[tuple[int, int], Any]) -> Table:
    height = 1 + max((row for row, _ in values), default=0)
    width = 1 + max((column for _, column in values), default=0)
    table: Table = [[""] * width for _ in range(height)]
    for (row, column), value in values.items():
        table[row][column] = value
    return table


def read_products(state: Path, delay: timedelta) -> Rows:
    """Return a shop's products as arguments for `products.add_all`, with dates moved by `delay`."""
    path = state / "local_db" / "woocommerce" / "products.json"
    records = []
    for product in read_json(path, TypeAdapter(dict[str, _StockedProduct])).values():
        record = {
            "name": product.name,
            "regular_price": product.regular_price,
            "sale_price": product.sale_price,
            "stock_quantity": product.stock_quantity,
            "date_created": product.date_created.replace(tzinfo=UTC) + delay,
            "meta_data": {each.key: each.value for each in product.meta_data},
        }
        records.append(record)
    return records


def read_shop_records(state: Path) -> tuple[Sequence[ShopProduct], Sequence[ShopOrder]]:
    """Return the products and orders of a WooCommerce shop."""
    folder = state / "local_db" / "woocommerce"
    path = folder / "products.json"
    products = list(read_json(path, TypeAdapter(dict[str, ShopProduct])).values())
    skus = [product.sku for product in products]
    if len(set(skus)) < len(skus):
        raise ValueError(f"{path}: each sku must occur once, got {sorted(skus)}")
    path = folder / "orders.json"
    orders = read_json(path, TypeAdapter(dict[str, ShopOrder]))
    for key, order in orders.items():
        if any(line.product_id not in products for line in order.line_items):
            raise ValueError(f"{path}: {key}.line_items: product_id must be a product of the shop")
    return products, list(orders.values())
