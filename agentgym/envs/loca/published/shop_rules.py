"""The success rule of LOCA-bench's checker for slow products; see `rules`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentgym.envs.loca.published.files import as_finite
from agentgym.office.email.server import Email
from agentgym.office.files.workspace import Workspace
from agentgym.office.woocommerce.server import WooCommerce
from agentgym.text.tools import ToolError

_OUTLETS = ("Outlet/Clearance", "Outlet", "Clearance")
_FILE = "discount_products.csv"
# Amounts of money, and percentage points.
_LIMITS = {"Original Price": 0.01, "Discounted Price": 0.01, "Discount Ratio": 0.2}


def outlet_failures(
    shop: WooCommerce,
    email: Email,
    files: Workspace,
    rows: Sequence[Mapping[str, Any]],
    subscribers: Mapping[str, Any],
) -> Iterator[str]:
    """Compare the products in the outlet, and the table that a mail to each subscriber attaches.

    The checker reads the attached file from the workspace, as it is in the end.
    """
    outlets = [term["id"] for term in shop.categories.all() if term["name"] in _OUTLETS]
    slow = {row["Product Name"] for row in rows}
    moved = set()
    if outlets:
        sql = "SELECT name FROM products WHERE id IN (SELECT product_id FROM product_categories WHERE term_id = ?)"
        moved = {row["name"] for row in shop.store.rows(sql, outlets[0])}
    if moved != slow:
        yield f"the outlet lacks {sorted(slow - moved)} and has {sorted(moved - slow)} beside"
    if not slow:
        yield "the rule always fails without a slow product"
    yield from _table_failures(files, rows)
    for address in subscribers:
        if not any(_FILE in mail.attachments for mail in email.messages(address, "INBOX")):
            yield f"{address} has no mail with {_FILE}"


def _table_failures(files: Workspace, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    try:
        reader = csv.DictReader(io.StringIO(files.read_text(_FILE)))
        table = [row for row in reader if row.get("Product Name")]
    except (ToolError, csv.Error) as error:
        yield f"{_FILE}: {error}"
        return
    if [row["Product Name"].strip() for row in table] != [row["Product Name"] for row in rows]:
        yield f"{_FILE} has other products, or another order"
        return
    for row, wanted in zip(table, rows, strict=True):
        for name, limit in _LIMITS.items():
            try:
                found = _amount(row.get(name))
            except ValueError as error:
                yield f"{_FILE}: {name} of {wanted['Product Name']} {error}"
                continue
            if abs(found - _amount(wanted[name])) > limit + 1e-9:
                yield f"{_FILE}: {name} of {wanted['Product Name']} is {found}"


def _amount(cell: Any) -> float:
    return as_finite(str(cell or 0).strip().replace("$", "").replace(",", "").rstrip("%"))
