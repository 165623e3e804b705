"""Categories of products."""

from __future__ import annotations

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart, slug_of, words, words_in
from agentgym.office.woocommerce.shapes import (
    NewCategory,
    TermData,
    validate,
)
from agentgym.text.tools import ToolError, echo, tool

_COUNT = """(SELECT count(*) FROM product_categories AS l JOIN products AS p ON p.id = l.product_id
  WHERE l.term_id = categories.id AND p.status = 'publish')"""


_CATEGORY: Row = {"parent": 0, "description": "", "display": "default", "menu_order": 0}

# Fields that are always shown, even if empty.
_SHOWN = ("id", "name", "slug", "parent", "description", "display")


class Categories(ShopPart):
    """Categories of products."""

    def add(self, name: str, parent: int = 0) -> int:
        """Add a category and return its id."""
        return int(self._create({"name": name, "parent": parent})["id"])

    def all(self) -> list[Row]:
        """Return all categories in the API's format, sorted by id."""
        return self._show(self._shop.select_ids("categories", {}, "id"))

    def find_or_add(self, category: int | str) -> int:
        """Return a category's id, given the name or id; add a new category if necessary."""
        if isinstance(category, int):
            return category
        sql = "SELECT id FROM categories WHERE name = ? ORDER BY id DESC"
        known: int | None = self._store.value(sql, category)
        if known is not None:
            return known
        slug = slug_of(category, self._shop.column_values("categories", "slug"))
        return self._store.insert("categories", **_CATEGORY | {"name": category, "slug": slug})

    def assign(self, product_id: int, data: Row) -> None:
        """Set a product's categories if `data` contains them."""
        if "categories" not in data:
            return
        keys = list(dict.fromkeys(category["id"] for category in data["categories"]))
        for key in keys:
            self._store.get("categories", key, "category")
        self._store.delete("product_categories", product_id=product_id)
        # Products without a category belong to Uncategorized (id 1).
        links = [{"product_id": product_id, "term_id": key} for key in keys or [1]]
        self._store.insert_all("product_categories", links)

    @tool
    def woo_products_categories_list(
        self,
        perPage: int = 10,
        page: int = 1,
        search: str | None = None,
        parent: int | None = None,
        hideEmpty: bool = False,
    ) -> list[Row]:
        """List product categories.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
            search: Words in the name.
            parent: Only direct children of this category; 0 for the top level.
            hideEmpty: Leave out empty ones.
        """
        where = {
            words_in("name"): words(search),
            "parent = ?": parent,
            f"{_COUNT} >= ?": 1 if hideEmpty else None,
        }
        return self._show(self._shop.select_ids("categories", where, "id", page, perPage))

    @tool
    def woo_products_categories_create(self, categoryData: NewCategory) -> Row:
        """Create a product category.

        Args:
            categoryData: The category.
        """
        return self._create(validate(TermData, categoryData, "categoryData", ["name"]))

    def _create(self, data: Row) -> Row:
        name, parent = data["name"], data.get("parent", 0)
        if parent:
            self._store.get("categories", parent, "category")
        sql = "SELECT 1 FROM categories WHERE name = ? COLLATE NOCASE AND parent = ?"
        if self._store.value(sql, name, parent):
            raise ToolError(f"conflict: category {echo(name)} already exists under this parent")
        slug = slug_of(data.get("slug") or name, self._shop.column_values("categories", "slug"))
        if "menuOrder" in data:
            data["menu_order"] = data.pop("menuOrder")
        fields = {**_CATEGORY, **data, "parent": parent, "slug": slug}
        return self._show([self._store.insert("categories", **fields)])[0]

    def _show(self, ids: list[int]) -> list[Row]:
        counts = dict(self._store.tuples(f"SELECT id, {_COUNT} FROM categories"))  # of products
        categories = []
        for row in self._shop.rows_by_id("categories", ids):
            shown = {name: row[name] for name in _SHOWN}
            shown |= {name: row[name] for name in ("menu_order", "image") if row.get(name)}
            categories.append({**shown, "count": counts[row["id"]]})
        return categories
