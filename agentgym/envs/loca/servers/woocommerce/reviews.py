"""Reviews of the shop's products."""

from __future__ import annotations

from typing import Any, Literal

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import ShopContext
from agentgym.tools import tool


class Reviews:
    """Reviews of products.

    Args:
        shop: Context of the shop.
    """

    def __init__(self, shop: ShopContext) -> None:
        self._shop = shop

    def add(self, product_id: int, reviewer: str, review: str, rating: int, **fields: Any) -> int:
        """Add a review and return its id.

        Args:
            product_id: Id of the product.
            reviewer: Name of the customer.
            review: Text.
            rating: Stars, from 1 to 5.
            **fields: `reviewer_email`, `status`, `verified` or `date_created`.
        """
        store = self._shop.store
        record = {
            "status": "approved",
            "reviewer_email": "",
            "verified": False,
            **fields,
            "date_created": self._shop.date_of(fields),
        }
        with store.change():
            store.get("products", product_id)
            new_id = store.insert(
                "reviews",
                product_id=product_id,
                reviewer=reviewer,
                review=review,
                rating=rating,
                **record,
            )
            approved = store.find("reviews", product_id=product_id, status="approved")
            mean = sum(row["rating"] for row in approved) / max(1, len(approved))
            store.update(
                "products", product_id, average_rating=f"{mean:.2f}", rating_count=len(approved)
            )
        return new_id

    @tool
    def woo_products_reviews_list(
        self,
        productId: int | None = None,
        perPage: int = 10,
        page: int = 1,
        status: Literal["all", "hold", "approved", "spam", "trash"] = "approved",
    ) -> list[Row]:
        """List product reviews, latest first.

        Args:
            productId: Only of this product.
            perPage: Items a page, at most 100.
            page: Page, from 1.
            status: Status.
        """
        where = {"product_id = ?": productId, "status = ?": None if status == "all" else status}
        rows = self._shop.select_page("reviews", where, "date_created DESC, id DESC", page, perPage)
        for row in rows:
            row["date_created"] = self._shop.site_time(row["date_created"])
            del row["verified"]
        return rows
