"""Products."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from agentgym.office.server import Server
from agentgym.office.store import Row
from agentgym.office.woocommerce.categories import Categories
from agentgym.office.woocommerce.context import (
    ShopPart,
    check_fields,
    merge_meta,
    pick_fields,
    show_meta,
    slug_of,
    words,
    words_in,
)
from agentgym.office.woocommerce.shapes import (
    ChangedRecord,
    NewProduct,
    ProductData,
    parse_amount,
    validate,
)
from agentgym.text.tools import ToolError, echo, tool

# A new product's columns; `details` contains the fields that no query uses.
PRODUCT: Row = json.loads(Path(__file__).with_name("new_product.json").read_text(encoding="utf-8"))
PRODUCT_DETAILS: Row = PRODUCT["details"]

# Other fields are shown only if they are set.
_ALWAYS = (
    "id", "name", "type", "status", "featured", "catalog_visibility", "price", "on_sale",
    "stock_status", "date_created", "date_modified",
)  # fmt: skip
_DATES = ("date_created", "date_modified", "date_on_sale_from", "date_on_sale_to")

_CATEGORIES = """SELECT l.product_id, t.id, t.name
    FROM product_categories AS l JOIN categories AS t ON t.id = l.term_id
    WHERE l.product_id IN (SELECT value FROM json_each(?)) AND t.slug <> 'uncategorized'
    ORDER BY t.name, t.id"""

# Columns that callers may set.
_COLUMNS = PRODUCT.keys() & ProductData.__annotations__.keys() - {"meta_data"}

# Only task authors may set these fields.
_AUTHOR_FIELDS = ("date_created", "total_sales")

MAX_BATCH = 100  # as in WooCommerce's REST API

ProductOrder = Literal["date", "id", "include", "title", "slug", "price", "popularity", "rating"]
# Prices and ratings are stored as strings but sorted as numbers.
_ORDERS: dict[ProductOrder, str] = {
    "date": "date_created",
    "id": "id",
    "include": "id",
    "title": "name",
    "slug": "slug",
    "price": "CAST(price AS REAL)",
    "popularity": "total_sales",
    "rating": "CAST(average_rating AS REAL)",
}

_IN_TEXTS = words_in("name", "sku", "json_extract(details, '$.description', '$.short_description')")
_IN_CATEGORY = """id IN (SELECT product_id FROM product_categories WHERE term_id IN (
  WITH RECURSIVE tree(id) AS (SELECT value FROM json_each(?)
    UNION SELECT c.id FROM categories AS c JOIN tree ON c.parent = tree.id)
  SELECT id FROM tree))"""

_NO_TAGS = "permission denied: product tags are not enabled for this account; use categories"
_STOCKED = "(manage_stock AND status <> 'trash')"  # SQL condition for managed stock


class Products(ShopPart):
    """Products."""

    def __init__(self, server: Server, categories: Categories) -> None:
        super().__init__(server)
        self._categories = categories

    def add(self, name: str, **fields: Any) -> int:
        """Add a product and return its id; see `add_all`."""
        return self.add_all([{"name": name, **fields}])[0]

    def add_all(self, records: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add products and return the new ids, in order.

        Records have the REST API's fields, and may set `total_sales`. `date_created` is a datetime
        (default: now), and `categories` are names (new names are added). `stock_quantity`
        enables stock management, and `meta_data` may be a mapping. Raises ValueError for an unknown
        field, and ToolError for an invalid value or a taken SKU.
        """
        products = []
        with self.store.change():
            for each in records:
                record = dict(each)
                if "categories" in record:
                    keys = map(self._categories.find_or_add, record["categories"])
                    record["categories"] = [{"id": key} for key in keys]
                if isinstance(record.get("meta_data"), Mapping):
                    meta = record["meta_data"].items()
                    record["meta_data"] = [{"key": key, "value": value} for key, value in meta]
                record.setdefault("manage_stock", record.get("stock_quantity") is not None)
                check_fields(record, (*ProductData.__annotations__, *_AUTHOR_FIELDS))
                product = validate(ProductData, record, "record")
                product |= pick_fields(record, _AUTHOR_FIELDS)
                products.append({**product, "date_created": self.date_of(record)})
            return self._insert(products)

    def all(self) -> list[Row]:
        """Return all products in the API's format, including those in the trash."""
        return self._select({}, "id")

    @tool
    def woo_products_list(
        self,
        perPage: int = 10,
        page: int = 1,
        search: str | None = None,
        status: Literal["publish", "draft", "private", "pending"] | None = None,
        category: str | None = None,
        tag: str | None = None,
        sku: str | None = None,
        featured: bool | None = None,
        onSale: bool | None = None,
        minPrice: str | None = None,
        maxPrice: str | None = None,
        stockStatus: Literal["instock", "outofstock", "onbackorder"] | None = None,
        orderby: ProductOrder = "date",
        order: Literal["asc", "desc"] = "desc",
    ) -> list[Row]:
        """List products, newest first.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
            search: Words that must all occur in name, SKU or a description.
            status: Status.
            category: Category ids, separated by commas; subcategories count too.
            tag: Tag ids, separated by commas.
            sku: SKUs, separated by commas.
            featured: Featured or not.
            onSale: On sale or not.
            minPrice: Lowest price.
            maxPrice: Highest price.
            stockStatus: Stock status.
            orderby: Sort key.
            order: Direction.
        """
        if tag:
            raise ToolError(_NO_TAGS)
        where = {
            "status <> ?": "trash",
            "status = ?": status,
            _IN_TEXTS: words(search),
            _IN_CATEGORY: _id_list(category),
            "sku IN (SELECT value FROM json_each(?))": _split(sku),
            "featured = ?": featured,
            "on_sale = ?": onSale,
            "price <> '' AND CAST(price AS REAL) >= ?": _price_bound(minPrice, "minPrice"),
            "price <> '' AND CAST(price AS REAL) <= ?": _price_bound(maxPrice, "maxPrice"),
            "stock_status = ?": stockStatus,
        }
        # Products with the same date are sorted by id.
        by = f"{_ORDERS[orderby]} {order}, id {'asc' if orderby == 'date' else order}"
        return self._select(where, by, page, perPage)

    @tool
    def woo_products_get(self, productId: int) -> Row:
        """Get a product.

        Args:
            productId: Product.
        """
        self.store.get("products", productId)
        return self._show([productId])[0]

    @tool
    def woo_products_create(self, productData: NewProduct) -> Row:
        """Create a product; other fields of the REST API (tags, weight, meta_data …) are accepted too.

        Args:
            productData: The product.
        """
        data = validate(ProductData, productData, "productData")
        with self.store.change():
            [new_id] = self._insert([{**data, "date_created": self.tick()}])
        return self.woo_products_get(new_id)

    @tool
    def woo_products_update(self, productId: int, productData: dict[str, Any]) -> Row:
        """Change fields of a product.

        Args:
            productId: Product.
            productData: Fields to change, as for creating; lists replace the old ones, a null value removes an item of meta_data.
        """
        data = validate(ProductData, productData, "productData")
        with self.store.change():
            row = self.store.get("products", productId)
            sku, slug = data.get("sku"), data.get("slug")
            sql = "SELECT 1 FROM products WHERE sku = ? AND id <> ?"
            if sku and self.store.value(sql, sku, productId):
                raise ToolError(f"conflict: another product has the SKU {echo(sku)}")
            data["slug"] = row["slug"]
            if slug:
                others = self.column_values("products", "slug") - {row["slug"]}
                data["slug"] = slug_of(slug, others)
            self.store.update("products", **self._merge(row, data, self.tick()))
            self._categories.assign(productId, data)
        return self.woo_products_get(productId)

    @tool
    def woo_products_delete(self, productId: int, force: bool = False) -> Row:
        """Delete a product.

        Args:
            productId: Product.
            force: Delete permanently; otherwise move to the trash, which lists leave out.
        """
        shown = self.woo_products_get(productId)
        if force:
            self.store.delete("products", id=productId)
            return shown
        if shown["status"] == "trash":
            raise ToolError(
                f"conflict: product {productId} is already in the trash; use force to delete it "
                "permanently"
            )
        self.store.update("products", productId, status="trash", date_modified=self.tick())
        return self.woo_products_get(productId)

    @tool
    def woo_products_batch_update(
        self,
        create: list[dict[str, Any]] | None = None,
        update: list[ChangedRecord] | None = None,
        delete: list[int] | None = None,
    ) -> dict[str, list[Row]]:
        """Create, update and delete up to 100 products; failed items return their error.

        Args:
            create: Records to create.
            update: Records to change, each with its id.
            delete: Ids to delete permanently.
        """
        if sum(len(items or ()) for items in (create, update, delete)) > MAX_BATCH:
            raise ToolError(f"limit exceeded: a batch may have at most {MAX_BATCH} items")
        jobs: dict[str, tuple[Sequence[Any] | None, Callable[[Any], Row]]] = {
            "create": (create, self.woo_products_create),
            "update": (update, lambda data: self.woo_products_update(_id_of(data), data)),
            "delete": (delete, lambda key: self.woo_products_delete(key, force=True)),
        }
        results = {}
        for verb, (items, call) in jobs.items():
            if items is not None:
                results[verb] = [self._attempt(item, call) for item in items]
        return results

    @tool
    def woo_reports_stock(self, perPage: int = 10, page: int = 1) -> list[Row]:
        """List products whose stock is managed.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
        """
        return self._select({f"{_STOCKED} = ?": 1}, "id", page, perPage)

    @tool
    def woo_reports_low_stock(self, perPage: int = 10, page: int = 1) -> list[Row]:
        """List products in stock at or below their (or the shop's) low-stock amount, lowest first.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
        """
        low = f"""{_STOCKED} AND stock_quantity > 0
            AND stock_quantity <= coalesce(low_stock_amount, ?)"""
        threshold = int(self.setting("woocommerce_notify_low_stock_amount"))
        return self._select({low: threshold}, "stock_quantity, id", page, perPage)

    def _select(
        self, where: Mapping[str, Any], order: str, page: int | None = None, size: int = 100
    ) -> list[Row]:
        return self._show(self.select_ids("products", where, order, page, size))

    def _show(self, ids: list[int]) -> list[Row]:
        categories = self.rows_by_owner("product_id", _CATEGORIES, ids)
        return [
            self._show_one(row, categories[row["id"]]) for row in self.rows_by_id("products", ids)
        ]

    def _show_one(self, row: Row, categories: list[Row]) -> Row:
        new = {**PRODUCT, **PRODUCT_DETAILS}
        shown: Row = {}
        for name, value in {**row, **row["details"]}.items():
            if name in _ALWAYS or (name != "details" and value != new[name]):
                shown[name] = self.site_time(value) if name in _DATES else value
        if row["slug"] == slug_of(row["name"], set()):  # the default
            del shown["slug"]
        if categories:
            shown["categories"] = categories
        if "meta_data" in shown:
            shown["meta_data"] = show_meta(shown["meta_data"])
        return shown

    def _attempt(self, item: Any, call: Callable[[Any], Row]) -> Row:
        try:
            with self.store.change():
                return call(item)
        except ToolError as error:
            return {"error": str(error)}

    def _insert(self, records: Sequence[Row]) -> list[int]:
        slugs = self.column_values("products", "slug")
        skus = self.column_values("products", "sku")
        rows: list[Row] = []
        for key, data in enumerate(records, self.next_id("products")):
            sku = data.get("sku")
            if sku and sku in skus:
                raise ToolError(f"conflict: another product has the SKU {echo(sku)}")
            skus.add(sku)
            name = data.get("name") or "Product"
            slug = slug_of(data.get("slug") or name, slugs)
            new = {**PRODUCT, "id": key, **pick_fields(data, _AUTHOR_FIELDS)}
            named = {**data, "name": name, "slug": slug}
            rows.append(self._merge(new, named, data["date_created"]))
        self.store.insert_all("products", rows)
        for row, data in zip(rows, records, strict=True):
            self._categories.assign(row["id"], {"categories": [], **data})
        return [row["id"] for row in rows]

    def _merge(self, row: Row, data: Row, now: str) -> Row:
        if data.get("tags"):
            raise ToolError(_NO_TAGS)
        new = {**row, **pick_fields(data, _COLUMNS), "date_modified": now}
        details = {**row["details"], **pick_fields(data, PRODUCT_DETAILS)}
        for name in ("date_on_sale_from", "date_on_sale_to"):
            if name in data:
                details[name] = self.parse_date(data[name], name)
        if "dimensions" in data:
            details["dimensions"] = {**row["details"]["dimensions"], **data["dimensions"]}
        if not new["manage_stock"]:
            if data.get("stock_quantity") is not None:
                raise ToolError("invalid argument: stock_quantity requires manage_stock to be true")
            new["stock_quantity"] = None
        else:
            new["stock_quantity"] = new["stock_quantity"] or 0
            new["stock_status"] = stock_status(new["stock_quantity"], new["backorders"])
        new["on_sale"] = _is_on_sale(new, details, self.now())
        new["price"] = new["sale_price"] if new["on_sale"] else new["regular_price"]
        return {**new, "details": details, "meta_data": merge_meta(row, data)}


def _id_of(data: Row) -> int:
    key = data.get("id")
    if isinstance(key, bool) or not isinstance(key, int):
        raise ToolError("invalid argument: an item to update needs an integer id")
    return key


def _is_on_sale(row: Row, details: Row, now: str) -> bool:
    sale, regular = row["sale_price"], row["regular_price"]
    if not sale or not regular or Decimal(sale) >= Decimal(regular):
        return False
    start = details["date_on_sale_from"] or now
    end = details["date_on_sale_to"] or now
    return bool(start <= now <= end)


def _price_bound(text: str | None, name: str) -> float | None:
    price = parse_amount(text or "", name)
    return float(price) if price else None


def _split(text: str | None) -> list[str] | None:
    if not text:
        return None
    return [part.strip() for part in text.split(",")]


def _id_list(text: str | None) -> list[int] | None:
    parts = _split(text)
    if parts is None:
        return None
    # Numbers with 19 or more digits may exceed SQLite's integers.
    if not all(re.fullmatch("[0-9]{1,18}", part) for part in parts):
        raise ToolError(
            f"invalid argument: category must be ids separated by commas, got {echo(text)}"
        )
    return list(map(int, parts))


def stock_status(quantity: int, backorders: str) -> str:
    """Return the stock status of a product with managed stock."""
    if quantity > 0:
        return "instock"
    return "outofstock" if backorders == "no" else "onbackorder"
