"""Categories and tags of products."""

from __future__ import annotations

from agentgym.office.store import Row
from agentgym.office.woocommerce.context import ShopPart, slug_of, words, words_in
from agentgym.office.woocommerce.shapes import (
    NewCategory,
    TermData,
    validate,
)
from agentgym.text.tools import ToolError, echo, tool

TERMS = {"categories": "category", "tags": "tag"}  # tables and singulars for errors

# SQL: a term's published products.
_COUNT = """(SELECT count(*) FROM product_{0} AS l JOIN products AS p ON p.id = l.product_id
  WHERE l.term_id = {0}.id AND p.status = 'publish')"""


# A new category's defaults.
_CATEGORY: Row = {"parent": 0, "description": "", "display": "default", "menu_order": 0}

# Fields that are always shown.
_SHOWN = {
    "categories": ("id", "name", "slug", "parent", "description", "display"),
    "tags": ("id", "name", "slug"),
}


class Categories(ShopPart):
    """Categories and tags of products, which WordPress calls terms."""

    # For task authors.

    def add(self, name: str, parent: int = 0) -> int:
        """Add a category and return its id."""
        return int(self._create({"name": name, "parent": parent})["id"])

    def all(self) -> list[Row]:
        """Return all categories in API form, by id."""
        return self._show("categories", self._shop.select_ids("categories", {}, "id"))

    # For other parts.

    def find_or_add(self, table: str, term: int | str, ids: dict[str, int]) -> int:
        """Return a term's id, given its name or id; add new names to `table` and `ids`."""
        if isinstance(term, int):
            return term
        if term not in ids:
            slug = slug_of(term, self._shop.column_values(table, "slug"))
            new = _CATEGORY if table == "categories" else {"description": ""}
            ids[term] = self._store.insert(table, **new | {"name": term, "slug": slug})
        return ids[term]

    def assign(self, product_id: int, data: Row) -> None:
        """Assign a product's `categories` and `tags`, if `data` has them."""
        for table, name in TERMS.items():
            if table in data:
                terms = list(dict.fromkeys(term["id"] for term in data[table]))
                for term in terms:
                    self._store.get(table, term, name)
                if not terms and table == "categories":
                    terms = [1]  # every product has at least Uncategorized
                self._store.delete(f"product_{table}", product_id=product_id)
                links = [{"product_id": product_id, "term_id": term} for term in terms]
                self._store.insert_all(f"product_{table}", links)

    # Tools.

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
            f"{_COUNT.format('categories')} >= ?": 1 if hideEmpty else None,
        }
        ids = self._shop.select_ids("categories", where, "id", page, perPage)
        return self._show("categories", ids)

    @tool
    def woo_products_categories_create(self, categoryData: NewCategory) -> Row:
        """Create a product category.

        Args:
            categoryData: The category.
        """
        return self._create(validate(TermData, categoryData, "categoryData", ["name"]))

    @tool
    def woo_products_tags_list(
        self, perPage: int = 10, page: int = 1, search: str | None = None, hideEmpty: bool = False
    ) -> list[Row]:
        """List product tags.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
            search: Words in the name.
            hideEmpty: Leave out empty ones.
        """
        where = {
            words_in("name"): words(search),
            f"{_COUNT.format('tags')} >= ?": 1 if hideEmpty else None,
        }
        return self._show("tags", self._shop.select_ids("tags", where, "id", page, perPage))

    # Helpers.

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
        return self._show("categories", [self._store.insert("categories", **fields)])[0]

    def _show(self, table: str, ids: list[int]) -> list[Row]:
        sql = f"SELECT id, {_COUNT.format(table)} AS n FROM {table}"
        counts = {row["id"]: row["n"] for row in self._store.rows(sql)}
        terms = []
        for row in self._shop.rows_by_id(table, ids):
            term = {name: row[name] for name in _SHOWN[table]}
            term |= {name: row[name] for name in ("menu_order", "image") if row.get(name)}
            terms.append({**term, "count": counts[row["id"]]})
        return terms
