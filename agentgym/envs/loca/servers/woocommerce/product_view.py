"""Products as the published server shows them."""

from __future__ import annotations

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.context import ShopContext, show_meta, slug_of

PRODUCT_DETAILS: Row = {
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
"""Fields in the column `details`, as they are in a new product."""

PRODUCT: Row = {
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
    "details": PRODUCT_DETAILS,
    "meta_data": [],
}
"""A new product."""

_ALWAYS = (
    "id",
    "name",
    "type",
    "status",
    "featured",
    "catalog_visibility",
    "price",
    "on_sale",
    "stock_status",
    "date_created",
    "date_modified",
)
"""Fields that each product has; the published records have others only where one was given."""

_DATES = ("date_created", "date_modified", "date_on_sale_from", "date_on_sale_to")


def show_products(shop: ShopContext, ids: list[int]) -> list[Row]:
    """Return the products with ids as the server shows them: with the fields that all have, and
    those whose value is not that of a new product.
    """
    terms: dict[str, dict[int, list[Row]]] = {"categories": {}, "tags": {}}
    for table, by_product in terms.items():
        sql = f"""SELECT l.product_id AS product, t.id, t.name
            FROM product_{table} AS l JOIN {table} AS t ON t.id = l.term_id
            WHERE l.product_id IN (SELECT value FROM json_each(?)) AND t.slug <> 'uncategorized'
            ORDER BY t.name, t.id"""
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
    fields = {**row, **row["details"]}
    if row["slug"] == slug_of(row["name"], set()):
        del fields["slug"]
    fields |= {name: shop.site_time(fields[name]) for name in _DATES}
    defaults = {**PRODUCT, **PRODUCT["details"]}
    shown = {
        name: value
        for name, value in fields.items()
        if name in _ALWAYS or (name != "details" and value != defaults[name])
    }
    shown |= {name: value for name, value in links.items() if value}
    if "meta_data" in shown:
        shown["meta_data"] = show_meta(shown["meta_data"])
    return shown
