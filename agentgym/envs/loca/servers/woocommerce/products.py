"""Products of the shop, with categories, tags, variations and reviews."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.shapes import ProductData, as_amount, checked, filled, merge_meta
from agentgym.envs.loca.servers.woocommerce.shop import SITE, Shop, slug_of, stamp, words, words_in
from agentgym.tools import ToolError, echo, tool

_DETAILS: Row = {
    "catalog_visibility": "visible",
    "description": "",
    "short_description": "",
    "date_on_sale_from": None,
    "date_on_sale_to": None,
    "virtual": False,
    "downloadable": False,
    "tax_status": "taxable",
    "tax_class": "",
    "sold_individually": False,
    "weight": "",
    "dimensions": {"length": "", "width": "", "height": ""},
    "reviews_allowed": True,
    "purchase_note": "",
    "images": [],
    "attributes": [],
    "default_attributes": [],
    "menu_order": 0,
}
_NEW: Row = {
    "parent_id": None,
    "name": "",
    "slug": "",
    "type": "simple",
    "status": "publish",
    "sku": "",
    "regular_price": "",
    "sale_price": "",
    "price": "",
    "on_sale": False,
    "featured": False,
    "manage_stock": False,
    "stock_quantity": None,
    "stock_status": "instock",
    "backorders": "no",
    "low_stock_amount": None,
    "total_sales": 0,
    "average_rating": "0.00",
    "rating_count": 0,
    "date_created": "",
    "date_modified": "",
    "details": _DETAILS,
    "meta_data": [],
}
_COLUMNS = _NEW.keys() & ProductData.__annotations__.keys() - {"meta_data"}
_ORDERS = {
    "date": "date_created",
    "id": "id",
    "include": "id",
    "title": "name",
    "slug": "slug",
    "price": "CAST(price AS REAL)",
    "popularity": "total_sales",
    "rating": "CAST(average_rating AS REAL)",
}
_IN_CATEGORY = """id IN (SELECT product_id FROM product_categories WHERE term_id IN (
  WITH RECURSIVE tree(id) AS (SELECT value FROM json_each(?) UNION SELECT c.id FROM categories AS c JOIN tree ON c.parent = tree.id)
  SELECT id FROM tree))"""
_IN_TAG = "id IN (SELECT product_id FROM product_tags WHERE term_id IN (SELECT value FROM json_each(?)))"


class Products(Shop):
    """The tools for products, and the methods that fill and read them."""

    # -- for authors of tasks --------------------------------------------------------------------------------------------------

    def add_product(self, name: str, **fields: Any) -> int:
        """Add one product as `add_products` does; its id."""
        return self.add_products([{"name": name, **fields}])[0]

    def add_products(self, records: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add products; their ids, in order.

        Args:
            records: Fields of the REST API, with these freedoms: `date_created` is a datetime (now by default), `total_sales` may
                be set, `categories` and `tags` are names or ids (names that there are not are made), a `stock_quantity` makes the
                stock managed, `meta_data` may be a mapping, `parent_id` makes a variation.

        Raises:
            ValueError: A field is misspelt.
            ToolError: A value is wrong, or a SKU is taken.
        """
        more = ("date_created", "total_sales", "parent_id")
        made = []
        terms = {table: {row["name"]: row["id"] for row in self.store.find(table)} for table in ("categories", "tags")}
        with self.store.change():
            for given in records:
                record = dict(given)
                for table in terms.keys() & record.keys():
                    record[table] = [{"id": self._term(table, term, terms[table])} for term in record[table]]
                if isinstance(record.get("meta_data"), Mapping):
                    record["meta_data"] = [{"key": key, "value": value} for key, value in record["meta_data"].items()]
                record.setdefault("manage_stock", record.get("stock_quantity") is not None)
                data = filled(ProductData, record, more)
                data["date_created"] = self._date(record)
                made.append(data)
            return self._add_products(made)

    def products(self) -> list[Row]:
        """All products as the API shows them, those in the trash too, by id; variations are left out."""
        return self._shown_products(self._ids("products", {"type <> ?": "variation"}, "id"))

    # -- tools -----------------------------------------------------------------------------------------------------------------

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
        orderby: Literal["date", "id", "include", "title", "slug", "price", "popularity", "rating"] = "date",
        order: Literal["asc", "desc"] = "desc",
    ) -> list[Row]:
        """List products, at most 100 a page.

        `category` and `tag` are ids separated by commas (products of the categories below count), `sku` is SKUs separated by
        commas. Each word of `search` is in the name, the SKU or a description.
        """
        where = {
            "type <> ?": "variation",
            "status <> ?": "trash",
            "status = ?": status,
            words_in("name", "sku", "json_extract(details, '$.description', '$.short_description')"): words(search),
            _IN_CATEGORY: _id_list(category, "category"),
            _IN_TAG: _id_list(tag, "tag"),
            "sku IN (SELECT value FROM json_each(?))": [part.strip() for part in sku.split(",")] if sku else None,
            "featured = ?": featured,
            "on_sale = ?": onSale,
            "price <> '' AND CAST(price AS REAL) >= ?": _bound(minPrice, "minPrice"),
            "price <> '' AND CAST(price AS REAL) <= ?": _bound(maxPrice, "maxPrice"),
            "stock_status = ?": stockStatus,
        }
        return self._shown_products(self._ids("products", where, f"{_ORDERS[orderby]} {order}, id {order}", page, perPage))

    @tool
    def woo_products_get(self, productId: int) -> Row:
        """Get a product."""
        return self._shown_product(productId)

    @tool
    def woo_products_create(self, productData: dict[str, Any]) -> Row:
        """Create a product. `stock_quantity` counts only with `manage_stock`; `categories` and `tags` are like [{"id": 3}]."""
        data = checked(ProductData, productData, "productData")
        with self.store.change():
            [made] = self._add_products([{**data, "date_created": self._now()}])
            self._fire("product.created", made)
        return self._shown_product(made)

    @tool
    def woo_products_update(self, productId: int, productData: dict[str, Any]) -> Row:
        """Change fields of a product. `categories` and `tags` replace those it has; a null value removes an item of `meta_data`."""
        data = checked(ProductData, productData, "productData")
        with self.store.change():
            row = self.store.get("products", productId)
            sku, slug = data.get("sku"), data.get("slug")
            if sku and self.store.value("SELECT 1 FROM products WHERE sku = ? AND id <> ?", sku, productId):
                raise ToolError(f"conflict: another product has the SKU {echo(sku)}")
            data["slug"] = slug_of(slug, self._values("products", "slug") - {row["slug"]}) if slug else row["slug"]
            if "variation" in (kinds := {row["type"], data.get("type", row["type"])}) and len(kinds) > 1:
                raise ToolError("invalid argument: type: a variation stays one, and no product becomes one")
            changed = self._merged(row, data, self._now())
            self._write("products", changed)
            self._link(productId, changed["type"], data)
            self._sync_parent(changed["parent_id"] or productId)
            self._fire("product.updated", productId)
        return self._shown_product(productId)

    @tool
    def woo_products_delete(self, productId: int, force: bool = False) -> Row:
        """Delete a product: for good with `force`, otherwise it goes to the trash, where no list shows it."""
        with self.store.change():
            shown = self._discard("products", "product", productId, force, self._shown_product)
            if force:
                self._sync_parent(shown["parent_id"])
        return shown

    @tool
    def woo_products_batch_update(
        self,
        create: list[dict[str, Any]] | None = None,
        update: list[dict[str, Any]] | None = None,
        delete: list[int] | None = None,
    ) -> dict[str, list[Row]]:
        """Create, update (each with its `id`) and delete (for good) up to 100 products; an item that fails shows its error."""
        return self._batch(
            "product",
            create=(create, self.woo_products_create),
            update=(update, self.woo_products_update),
            delete=(delete, self.woo_products_delete),
        )

    @tool
    def woo_products_variations_list(self, productId: int, perPage: int = 10, page: int = 1) -> list[Row]:
        """List the variations of a variable product."""
        self.store.get("products", productId)
        return self._shown_products(self._ids("products", {"parent_id = ?": productId}, "id", page, perPage))

    # -- helpers ---------------------------------------------------------------------------------------------------------------

    def _add_products(self, records: Sequence[Row]) -> list[int]:
        """Add products whose fields are checked; they have a `date_created`."""
        first = self._next_id("products")
        slugs, skus = self._values("products", "slug"), self._values("products", "sku")
        rows: list[Row] = []
        parents: list[int] = []
        for key, data in enumerate(records, first):
            sku = data.get("sku")
            if sku and sku in skus:
                raise ToolError(f"conflict: another product has the SKU {echo(sku)}")
            skus.add(sku)
            name, parent = data.get("name") or "Product", data.get("parent_id")
            slug = slug_of(data.get("slug") or name, slugs)
            more: Row = {field: data[field] for field in ("total_sales", "parent_id", "date_created") if field in data}
            if parent:
                self.store.get("products", parent, type="variable")
                parents.append(parent)
            elif data.get("type") == "variation":
                raise ToolError("invalid argument: type: a variation is of a product; it cannot be made by itself")
            kind = "variation" if parent else data.get("type", "simple")
            given = {**data, "name": name, "slug": slug, "type": kind}
            rows.append(self._merged({**_NEW, "id": key, **more}, given, data["date_created"]))
        self.store.insert_all("products", rows)
        for row, data in zip(rows, records, strict=True):
            self._link(row["id"], row["type"], {"categories": [], **data})
        for parent in dict.fromkeys(parents):
            self._sync_parent(parent)
        return [row["id"] for row in rows]

    def _merged(self, row: Row, data: Row, now: str) -> Row:
        """A product after a change: price, sale and stock status follow from the rest."""
        new = {**row, **{name: data[name] for name in _COLUMNS & data.keys()}, "date_modified": now}
        details = {**row["details"], **{name: data[name] for name in _DETAILS.keys() & data.keys()}}
        for name in ("date_on_sale_from", "date_on_sale_to"):
            if name in data:
                details[name] = self._moment(data[name], name)
        if "dimensions" in data:
            details["dimensions"] = {**row["details"]["dimensions"], **data["dimensions"]}
        if not new["manage_stock"]:
            if data.get("stock_quantity") is not None:
                raise ToolError("invalid argument: stock_quantity is kept only by a product with manage_stock true")
            new["stock_quantity"] = None
        else:
            new["stock_quantity"] = new["stock_quantity"] or 0
            new["stock_status"] = self._stock_status(new)
        new["on_sale"] = _is_on_sale(new, details, stamp(self.context.clock.now()))
        new["price"] = new["sale_price"] if new["on_sale"] else new["regular_price"]
        return {**new, "details": details, "meta_data": merge_meta(row["meta_data"], data.get("meta_data", []))}

    def _stock_status(self, row: Row) -> str:
        if row["stock_quantity"] > 0:
            return "instock"
        return "outofstock" if row["backorders"] == "no" else "onbackorder"

    def _move_stock(self, id: int, by: int) -> bool:
        """Add to the stock of a product; whether its stock is managed."""
        row = self.store.row("SELECT manage_stock, stock_quantity, backorders FROM products WHERE id = ?", id)
        if row is None or not row["manage_stock"]:
            return False
        row["stock_quantity"] += by
        self.store.update("products", id, stock_quantity=row["stock_quantity"], stock_status=self._stock_status(row))
        return True

    def _sync_parent(self, id: int | None) -> None:
        """Give a variable product the least price of its variations."""
        if id and self.store.value("SELECT type FROM products WHERE id = ?", id) == "variable":
            sql = "SELECT price, on_sale FROM products WHERE parent_id = ? AND status = 'publish' AND price <> ''"
            rows = self.store.rows(sql, id)
            price = min((row["price"] for row in rows), key=Decimal, default="")
            self.store.update("products", id, price=price, on_sale=any(row["on_sale"] for row in rows))

    def _link(self, id: int, kind: str, data: Row) -> None:
        """Put a product into categories and tags, where they are given; without a category it is in the first one."""
        for table in ("categories", "tags"):
            if table in data and kind != "variation":
                given = dict.fromkeys(term["id"] for term in data[table])
                for term in given:
                    self.store.get(table, term, {"categories": "category", "tags": "tag"}[table])
                self.store.delete(f"product_{table}", product_id=id)
                terms = list(given) or ([1] if table == "categories" else [])
                self.store.insert_all(f"product_{table}", [{"product_id": id, "term_id": term} for term in terms])

    def _term(self, table: str, term: int | str, known: dict[str, int]) -> int:
        """The id of a category or tag that is given by name or id."""
        if isinstance(term, int):
            return term
        if term not in known:
            slug = slug_of(term, self._values(table, "slug"))
            more = {"parent": 0, "display": "default", "menu_order": 0} if table == "categories" else {}
            known[term] = self.store.insert(table, name=term, slug=slug, description="", **more)
        return known[term]

    def _shown_product(self, id: int) -> Row:
        self.store.get("products", id)
        return self._shown_products([id])[0]

    def _shown_products(self, ids: list[int]) -> list[Row]:
        """Products as the API shows them."""
        terms: dict[str, dict[int, list[Row]]] = {"categories": {}, "tags": {}}
        for table, held in terms.items():
            sql = f"""SELECT l.product_id AS product, t.id, t.name, t.slug
                FROM product_{table} AS l JOIN {table} AS t ON t.id = l.term_id
                WHERE l.product_id IN (SELECT value FROM json_each(?)) ORDER BY t.name, t.id"""
            for row in self.store.rows(sql, ids):
                held.setdefault(row.pop("product"), []).append(row)
        below: dict[int, list[int]] = {}
        sql = "SELECT id, parent_id FROM products WHERE parent_id IN (SELECT value FROM json_each(?)) ORDER BY id"
        for row in self.store.rows(sql, ids):
            below.setdefault(row["parent_id"], []).append(row["id"])
        return [
            self._shown(row, terms["categories"].get(row["id"], []), terms["tags"].get(row["id"], []), below.get(row["id"], []))
            for row in self._by_ids("products", ids)
        ]

    def _shown(self, row: Row, categories: list[Row], tags: list[Row], variations: list[int]) -> Row:
        details = row.pop("details")
        meta = row.pop("meta_data")
        return {
            "id": row["id"],
            "name": row["name"],
            "slug": row["slug"],
            "permalink": f"{SITE}/product/{row['slug']}/",
            **self._dates(row, "date_created", "date_modified"),
            **{k: v for k, v in row.items() if not k.startswith("date_")},
            **details,
            **self._dates(details, "date_on_sale_from", "date_on_sale_to"),
            "purchasable": row["price"] != "",
            "backorders_allowed": row["backorders"] != "no",
            "backordered": row["stock_status"] == "onbackorder",
            "parent_id": row["parent_id"] or 0,
            "categories": categories,
            "tags": tags,
            "variations": variations,
            "meta_data": meta,
        }


def _is_on_sale(row: Row, details: Row, now: str) -> bool:
    if not row["sale_price"] or not row["regular_price"] or Decimal(row["sale_price"]) >= Decimal(row["regular_price"]):
        return False
    return (details["date_on_sale_from"] or now) <= now <= (details["date_on_sale_to"] or now)


def _bound(text: str | None, name: str) -> float | None:
    price = as_amount(text or "", name)
    return float(price) if price else None


def _id_list(text: str | None, name: str) -> list[int] | None:
    """Ids that a caller gives with commas between them."""
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise ToolError(f"invalid argument: {name} must be ids separated by commas, got {echo(text)}")
    return [int(part) for part in parts]
