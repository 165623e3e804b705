"""The published shop's calls, and the differences."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from agentgym.office.context import START, OfficeContext
from agentgym.office.woocommerce.server import WooCommerce
from tests.office.published import DISABLED, Call, Difference

ALERT = {"stock_threshold": "8"}


def prepared() -> WooCommerce:
    shop = WooCommerce(OfficeContext(START))
    shop.products.add_all(
        {
            "name": name,
            "sku": name.upper(),
            "description": "Made by hand.",
            "regular_price": price,
            "stock_quantity": stock,
            "meta_data": ALERT,
        }
        for name, price, stock in (("Mug", "9.90", 5), ("Bowl", "12.00", 2), ("Plate", "7.00", 1))
    )
    shop.products.add("Shirt", tags=["new"])
    shop.categories.add("Kitchen")
    shop.customers.add("ann@example.com", "Ann", "Lee")
    order = {
        "billing": {
            "email": "ann@example.com",
            "first_name": "Ann",
            "last_name": "Lee",
            "phone": "1",
        },
        "status": "completed",
        "line_items": [{"product_id": 1, "quantity": 2}],
    }
    shop.orders.add_all([order | {"date_created": START - timedelta(days=day)} for day in range(3)])
    return shop


def sent(name: str, **fields: Any) -> dict[str, Any]:
    return {"productData": {"name": name, **fields}}


CALLS = [
    Call("woo_reports_stock", {}),
    Call("woo_reports_low_stock", {}),
    Call("woo_products_list", {"perPage": 3}),
    Call("woo_products_get", {"productId": 2}),
    Call("woo_products_create", sent("Vase", regular_price="30.00")),
    Call("woo_products_update", {"productId": 1, "productData": {"regular_price": "8.50"}}),
    Call(
        "woo_products_batch_update",
        {
            "create": [{"name": "Jug"}],
            "update": [{"id": 1, "stock_quantity": 6}, {"id": 99}],
            "delete": [3],
        },
    ),
    Call("woo_products_categories_list", {}),
    Call("woo_products_categories_create", {"categoryData": {"name": "Outlet"}}),
    Call("woo_orders_list", {}),
    Call("woo_orders_update", {"orderId": 1, "orderData": {"status": "processing"}}),
    Call("woo_orders_notes_create", {"orderId": 1, "note": "Packed."}),
    Call("woo_orders_get", {"orderId": 1}),
    Call("woo_customers_list", {}),
    Call("woo_customers_get", {"customerId": 2}),
    Call("woo_products_tags_list", {}),
    Call("woo_orders_delete", {"orderId": 2, "force": True}),
    Call("woo_products_delete", {"productId": 1, "force": True}),
    Call("woo_system_status", {}),
    Call("woo_settings_list", {}),
    Call("woo_settings_get", {"groupId": "general"}),
]

# Order keys in one published task.
_SEED = {
    "customer_email",
    "customer_name",
    "order_id",
    "order_number",
    "period",
    "product_name",
    "product_price",
    "quantity",
}

_ORDER = (
    "Orders tell when they were paid, whose they are (0 for a guest) and where they go, and their "
    "lines have the ids by which lines are changed."
)

_PAGE = "A page has at most 100 items, as in WooCommerce's API; search also looks in other texts than names."

DIFFERENCES = {
    "woo_products_list": Difference(_PAGE),
    "woo_customers_list": Difference(_PAGE),
    "woo_products_create": Difference(
        "Values are checked, a SKU has one product, and fields that WooCommerce does not know are "
        "not kept."
    ),
    "woo_products_update": Difference(
        "Values are checked, items of `meta_data` are merged by key, and categories are shown with "
        "their names."
    ),
    "woo_products_delete": Difference(
        "A product goes to the trash unless `force` is true, as in WooCommerce."
    ),
    "woo_products_batch_update": Difference(
        "A batch has at most 100 items, as in WooCommerce's API."
    ),
    "woo_reports_low_stock": Difference(
        "The threshold is that of the product or of the shop's settings, not always 10."
    ),
    "woo_products_categories_create": Difference(
        "A new category is answered whole, as it is listed.", added={"description", "slug"}
    ),
    "woo_orders_list": Difference(_ORDER, added={"[].date_paid", "[].line_items[].id"}),
    "woo_orders_get": Difference(
        _ORDER, added={"billing", "date_paid", "line_items[].id"}, empty={"refunds"}
    ),
    "woo_orders_update": Difference(_ORDER, added={"billing", "date_paid", "line_items[].id"}),
    "woo_orders_delete": Difference(
        "An order goes to the trash unless `force` is true; it has no keys that only the records of "
        "one task had.",
        added={"billing", "customer_id", "date_paid"},
        lacking=_SEED,
    ),
    **{
        f"woo_{tool}": DISABLED
        for tool in (
            *("coupons_list", "coupons_get", "coupons_create", "coupons_update", "coupons_delete"),
            *("shipping_zones_list", "shipping_zones_get", "shipping_zones_create"),
            *("shipping_zones_update", "shipping_zone_methods_list"),
            *("shipping_zone_methods_create", "tax_rates_list", "tax_rates_get"),
            *("tax_rates_create", "tax_classes_list", "system_tools_list", "system_tools_run"),
            *("payment_gateways_list", "payment_gateways_get", "payment_gateways_update"),
            *("webhooks_list", "webhooks_create"),
            *("orders_create", "orders_batch_update", "orders_refunds_create"),
            *("reports_sales", "reports_top_sellers", "reports_customers"),
            *("reports_orders", "reports_products", "customers_create"),
            *("customers_update", "products_variations_list", "products_reviews_list"),
        )
    },
    "woo_orders_refunds_create": replace(DISABLED, params={"lineItems[].quantity"}),
}
