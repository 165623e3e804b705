"""Products as the REST API shows them."""

from __future__ import annotations

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import SITE, ShopContext


def show_products(shop: ShopContext, ids: list[int]) -> list[Row]:
    """Return the products with ids as the API shows them."""
    terms: dict[str, dict[int, list[Row]]] = {"categories": {}, "tags": {}}
    for table, by_product in terms.items():
        sql = f"""SELECT l.product_id AS product, t.id, t.name, t.slug
            FROM product_{table} AS l JOIN {table} AS t ON t.id = l.term_id
            WHERE l.product_id IN (SELECT value FROM json_each(?)) ORDER BY t.name, t.id"""
        for row in shop.store.rows(sql, ids):
            by_product.setdefault(row.pop("product"), []).append(row)
    variations: dict[int, list[int]] = {}
    sql = """SELECT id, parent_id FROM products
        WHERE parent_id IN (SELECT value FROM json_each(?)) ORDER BY id"""
    for row in shop.store.rows(sql, ids):
        variations.setdefault(row["parent_id"], []).append(row["id"])
    products = []
    for row in shop.rows_by_id("products", ids):
        links = {table: by_product.get(row["id"], []) for table, by_product in terms.items()}
        products.append(_show(shop, row, {**links, "variations": variations.get(row["id"], [])}))
    return products


def _show(shop: ShopContext, row: Row, links: Row) -> Row:
    details = row.pop("details")
    meta = row.pop("meta_data")
    return {
        "id": row["id"],
        "name": row["name"],
        "slug": row["slug"],
        "permalink": f"{SITE}/product/{row['slug']}/",
        **shop.show_dates(row, "date_created", "date_modified"),
        **{name: value for name, value in row.items() if not name.startswith("date_")},
        **details,
        **shop.show_dates(details, "date_on_sale_from", "date_on_sale_to"),
        "purchasable": row["price"] != "",
        "backorders_allowed": row["backorders"] != "no",
        "backordered": row["stock_status"] == "onbackorder",
        "parent_id": row["parent_id"] or 0,
        **links,
        "meta_data": meta,
    }
