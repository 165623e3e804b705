"""Categories and tags of the shop's products, and reviews of them."""

from __future__ import annotations

from typing import Any, Literal

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.products import Products
from agentgym.envs.loca.servers.woocommerce.shapes import TermData, checked
from agentgym.envs.loca.servers.woocommerce.shop import slug_of, words, words_in
from agentgym.tools import ToolError, echo, tool

_COUNT = """(SELECT count(*) FROM product_{0} AS l JOIN products AS p ON p.id = l.product_id
  WHERE l.term_id = {0}.id AND p.status = 'publish')"""
"""SQL: how many published products a category or tag has."""


class Terms(Products):
    """The tools for categories, tags and reviews, and the methods that fill and read them."""

    def add_category(self, name: str, parent: int = 0) -> int:
        """Add a category of products; its id."""
        return int(self._add_category({"name": name, "parent": parent})["id"])

    def add_review(self, product_id: int, reviewer: str, review: str, rating: int, **fields: Any) -> int:
        """Add a review (`reviewer_email`, `status`, `verified` and `date_created` may be given); its id."""
        given = {"status": "approved", "reviewer_email": "", "verified": False, **fields, "date_created": self._date(fields)}
        with self.store.change():
            self.store.get("products", product_id)
            made = self.store.insert("reviews", product_id=product_id, reviewer=reviewer, review=review, rating=rating, **given)
            ratings = [row["rating"] for row in self.store.find("reviews", product_id=product_id, status="approved")]
            mean = f"{sum(ratings) / max(1, len(ratings)):.2f}"
            self.store.update("products", product_id, average_rating=mean, rating_count=len(ratings))
        return made

    def categories(self) -> list[Row]:
        """All categories of products, by id."""
        return self._shown_terms("categories", self._ids("categories", {}, "id"))

    @tool
    def woo_products_categories_list(
        self, perPage: int = 10, page: int = 1, search: str | None = None, parent: int | None = None, hideEmpty: bool = False
    ) -> list[Row]:
        """List categories of products by name.

        With `parent` only those right below a category (0: at the top), with `hideEmpty` only those that have products.
        """
        where = {
            words_in("name"): words(search),
            "parent = ?": parent,
            f"{_COUNT.format('categories')} >= ?": 1 if hideEmpty else None,
        }
        return self._shown_terms("categories", self._ids("categories", where, "name, id", page, perPage))

    @tool
    def woo_products_categories_create(self, categoryData: dict[str, Any]) -> Row:
        """Create a category of products: `name`, and `slug`, `parent`, `description`, `display`, `menu_order` if wanted."""
        return self._add_category(checked(TermData, categoryData, "categoryData"))

    @tool
    def woo_products_tags_list(
        self, perPage: int = 10, page: int = 1, search: str | None = None, hideEmpty: bool = False
    ) -> list[Row]:
        """List tags of products by name."""
        where = {words_in("name"): words(search), f"{_COUNT.format('tags')} >= ?": 1 if hideEmpty else None}
        return self._shown_terms("tags", self._ids("tags", where, "name, id", page, perPage))

    @tool
    def woo_products_reviews_list(
        self,
        productId: int | None = None,
        perPage: int = 10,
        page: int = 1,
        status: Literal["all", "hold", "approved", "spam", "trash"] = "approved",
    ) -> list[Row]:
        """List reviews of products, latest first."""
        where = {"product_id = ?": productId, "status = ?": None if status == "all" else status}
        found = self._page("reviews", where, "date_created DESC, id DESC", page, perPage)
        return [{**row, **self._dates(row, "date_created")} for row in found]

    def _add_category(self, data: Row) -> Row:
        if "name" not in data:
            raise ToolError("invalid argument: a category needs a name")
        parent = data.get("parent", 0)
        if parent:
            self.store.get("categories", parent, "category")
        if self.store.value("SELECT 1 FROM categories WHERE name = ? COLLATE NOCASE AND parent = ?", data["name"], parent):
            raise ToolError(f"conflict: there is a category {echo(data['name'])} with this parent already")
        slug = slug_of(data.get("slug") or data["name"], self._values("categories", "slug"))
        made = self.store.insert(
            "categories",
            **{
                "description": "",
                "display": "default",
                "menu_order": 0,
                **data,
                "parent": parent,
                "slug": slug,
            },
        )
        return self._shown_terms("categories", [made])[0]

    def _shown_terms(self, table: str, ids: list[int]) -> list[Row]:
        counts = {row["id"]: row["n"] for row in self.store.rows(f"SELECT id, {_COUNT.format(table)} AS n FROM {table}")}
        return [{**row, "count": counts[row["id"]]} for row in self._by_ids(table, ids)]
