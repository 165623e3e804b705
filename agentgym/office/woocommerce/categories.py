"""Categories of products."""

from __future__ import annotations

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart, slug_of, words, words_in
from agentgym.office.woocommerce.shapes import NewCategory, TermData, validate
from agentgym.text.tools import ToolError, echo, tool

_COUNT = """(SELECT count(*) FROM product_categories AS l JOIN products AS p ON p.id = l.product_id
  WHERE l.term_id = categories.id AND p.status = 'publish')"""


# Fields that are always shown, even if empty.
_SHOWN = ("id", "name", "slug", "parent", "description", "display")


class Categories(ShopPart):
    """Categories of products."""

    def all(self) -> list[Row]:
        """Return all categories in the API's format, sorted by id."""
        return self._show(self.select_ids("categories", {}, "id"))

    def find_or_add(self, name: str) -> int:
        """Return a category's id; add a new category if necessary."""
        sql = "SELECT id FROM categories WHERE name = ? ORDER BY id DESC"
        known: int | None = self.store.value(sql, name)
        if known is not None:
            return known
        slug = slug_of(name, self.column_values("categories", "slug"))
        return self.store.insert("categories", name=name, slug=slug)

    def assign(self, product_id: int, data: Row) -> None:
        """Set a product's categories if `data` contains them."""
        if "categories" not in data:
            return
        keys = list(dict.fromkeys(category["id"] for category in data["categories"]))
        for key in keys:
            self.store.get("categories", key, "category")
        self.store.delete("product_categories", product_id=product_id)
        # Products without a category belong to Uncategorized (id 1).
        links = [{"product_id": product_id, "term_id": key} for key in keys or [1]]
        self.store.insert_all("product_categories", links)

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
        return self._show(self.select_ids("categories", where, "id", page, perPage))

    @tool
    def woo_products_categories_create(self, categoryData: NewCategory) -> Row:
        """Create a product category.

        Args:
            categoryData: The category.
        """
        data = validate(TermData, categoryData, "categoryData")
        if "name" not in data:
            raise ToolError("invalid argument: categoryData.name is missing")
        name, parent = data["name"], data.get("parent", 0)
        if parent:
            self.store.get("categories", parent, "category")
        sql = "SELECT 1 FROM categories WHERE name = ? COLLATE NOCASE AND parent = ?"
        if self.store.value(sql, name, parent):
            raise ToolError(f"conflict: category {echo(name)} already exists under this parent")
        slug = slug_of(data.get("slug") or name, self.column_values("categories", "slug"))
        if "menuOrder" in data:
            data["menu_order"] = data.pop("menuOrder")
        fields = {**data, "parent": parent, "slug": slug}
        return self._show([self.store.insert("categories", **fields)])[0]

    def _show(self, ids: list[int]) -> list[Row]:
        counts = dict(self.store.tuples(f"SELECT id, {_COUNT} FROM categories"))  # of products
        categories = []
        for row in self.rows_by_id("categories", ids):
            shown = {name: row[name] for name in _SHOWN}
            shown |= {name: row[name] for name in ("menu_order", "image") if row.get(name)}
            categories.append({**shown, "count": counts[row["id"]]})
        return categories
