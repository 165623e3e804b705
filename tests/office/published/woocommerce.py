"""The shop: calls that are compared with the published answers, and the differences."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from agentgym.office.context import START, OfficeContext
from agentgym.office.woocommerce.server import WooCommerce
from tests.office.published import Call, Difference

ALERT = {"stock_threshold": "8"}
DATES = {"dateMin": "2025-01-01", "dateMax": "2025-01-31"}


def prepared() -> WooCommerce:
    """A shop with records of all kinds."""
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
    shop.products.add("Shirt", type="variable", tags=["new"])
    shop.products.add("Shirt S", parent_id=4, regular_price="20.00", stock_quantity=4)
    shop.reviews.add(1, "Ann", "Nice.", 5, reviewer_email="ann@example.com", status="hold")
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
    shop.coupons.add(
        "WELCOME",
        "10",
        discount_type="percent",
        minimum_amount="20.00",
        date_expires="2025-12-31T23:59:59",
        usage_limit=100,
        usage_limit_per_user=1,
    )
    return shop


def sent(name: str, **fields: Any) -> dict[str, Any]:
    return {"productData": {"name": name, **fields}}


CALLS = [
    Call("woo_reports_products", {"perPage": 3}),
    Call("woo_reports_orders", {}),
    Call("woo_reports_stock", {}),
    Call("woo_reports_low_stock", {}),
    Call("woo_products_list", {"perPage": 3}),
    Call("woo_products_get", {"productId": 2}),
    Call("woo_products_create", sent("Vase", regular_price="30.00")),
    Call("woo_products_update", {"productId": 1, "productData": {"regular_price": "8.50"}}),
    Call("woo_products_variations_list", {"productId": 4}),
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
    Call("woo_products_reviews_list", {"status": "all"}),
    Call("woo_orders_list", {}),
    Call("woo_orders_create", {"orderData": {"line_items": [{"product_id": 1, "quantity": 1}]}}),
    Call("woo_orders_update", {"orderId": 1, "orderData": {"status": "processing"}}),
    Call("woo_orders_notes_create", {"orderId": 1, "note": "Packed."}),
    Call(
        "woo_orders_refunds_create",
        {"orderId": 1, "amount": "1.00", "reason": "Late", "lineItems": [{"id": 1}]},
    ),
    Call("woo_orders_get", {"orderId": 1}),
    Call("woo_orders_batch_update", {"create": [{}], "update": [{"id": 2}], "delete": [3]}),
    Call("woo_customers_list", {}),
    Call("woo_customers_get", {"customerId": 2}),
    Call(
        "woo_customers_create", {"customerData": {"email": "bob@example.com", "first_name": "Bob"}}
    ),
    Call("woo_customers_update", {"customerId": 3, "customerData": {"last_name": "Ray"}}),
    Call("woo_coupons_list", {}),
    Call("woo_coupons_get", {"couponId": 1}),
    Call(
        "woo_coupons_create",
        {"couponData": {"code": "five", "amount": "5", "discount_type": "fixed_cart"}},
    ),
    Call("woo_coupons_update", {"couponId": 1, "couponData": {"amount": "15"}}),
    Call("woo_coupons_delete", {"couponId": 1}),
    Call("woo_reports_sales", DATES),
    Call("woo_reports_top_sellers", {}),
    Call("woo_reports_customers", {}),
    Call("woo_products_tags_list", {}),
    Call("woo_orders_delete", {"orderId": 2, "force": True}),
    Call("woo_products_delete", {"productId": 1, "force": True}),
    Call("woo_shipping_zones_list", {}),
    Call("woo_shipping_zones_create", {"name": "Europe"}),
    Call("woo_shipping_zones_get", {"zoneId": 1}),
    Call("woo_shipping_zones_update", {"zoneId": 1, "name": "EU"}),
    Call(
        "woo_shipping_zone_methods_create",
        {"zoneId": 1, "methodId": "flat_rate", "settings": {"cost": "5"}},
    ),
    Call("woo_shipping_zone_methods_list", {"zoneId": 1}),
    Call("woo_tax_rates_create", {"country": "US", "rate": "7.25"}),
    Call("woo_tax_rates_get", {"rateId": 1}),
    Call("woo_tax_rates_list", {}),
    Call("woo_tax_classes_list", {}),
    Call("woo_system_status", {}),
    Call("woo_system_tools_list", {}),
    Call("woo_system_tools_run", {"toolId": "recount_terms"}),
    Call("woo_settings_list", {}),
    Call("woo_settings_get", {"groupId": "general"}),
    Call("woo_payment_gateways_list", {}),
    Call("woo_payment_gateways_get", {"gatewayId": "cod"}),
    Call("woo_payment_gateways_update", {"gatewayId": "cod", "enabled": False}),
    Call(
        "woo_webhooks_create",
        {"name": "w", "topic": "order.created", "delivery_url": "https://example.com"},
    ),
    Call("woo_webhooks_list", {}),
]

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
"""Keys that the orders of one published task carry."""

_ORDER = (
    "Orders tell when they were paid, whose they are (0 for a guest) and where they go, and their "
    "lines have the ids by which lines are changed and refunded."
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
    "woo_coupons_create": Difference(
        "A code is unique and kept in small letters, as in WooCommerce, which compares codes so."
    ),
    "woo_reports_sales": Difference("The period counts, and refunds are subtracted."),
    "woo_reports_top_sellers": Difference("The period counts."),
    "woo_reports_customers": Difference("The period counts."),
    "woo_reports_low_stock": Difference(
        "The threshold is that of the product or of the shop's settings, not always 10."
    ),
    "woo_products_categories_create": Difference(
        "A new category is answered whole, as it is listed.", added={"description", "slug"}
    ),
    "woo_orders_list": Difference(_ORDER, added={"[].date_paid", "[].line_items[].id"}),
    "woo_orders_get": Difference(_ORDER, added={"billing", "date_paid", "line_items[].id"}),
    "woo_orders_create": Difference(
        "Prices are those of the products, the stock follows, and lines have the ids by which they "
        "are changed and refunded.",
        added={"line_items[].id"},
    ),
    "woo_orders_update": Difference(_ORDER, added={"billing", "date_paid", "line_items[].id"}),
    "woo_orders_delete": Difference(
        "An order goes to the trash unless `force` is true; it has no keys that only the records of "
        "one task had.",
        added={"billing", "customer_id", "date_paid"},
        lacking=_SEED,
    ),
    "woo_orders_batch_update": Difference(
        "Orders are those of `woo_orders_get`, without keys that only the records of one task had.",
        added={
            "create[].customer_id",
            *(
                f"{verb}[].{key}"
                for verb in ("update", "delete")
                for key in ("billing", "customer_id", "date_paid")
            ),
        },
        lacking={"create[].billing", *(f"delete[].{key}" for key in _SEED)},
    ),
    "woo_orders_refunds_create": Difference(
        "The amount is at most what is left of the order, and a line may name the pieces that go "
        "back to the stock.",
        params={"lineItems[].quantity"},
    ),
    "woo_customers_create": Difference(
        "An email address has one customer, and the record is whole.", added={"last_name"}
    ),
    "woo_reports_orders": Difference("The period counts."),
    "woo_reports_products": Difference(
        "A report on products without their sales says nothing.",
        added={"[].items_sold", "[].net_revenue", "[].orders_count"},
    ),
    "woo_reports_stock": Difference(
        "Variations have a stock of their own, and name their product.", added={"[].parent_id"}
    ),
    "woo_shipping_zone_methods_create": Difference(
        "The key is `method_id`, as in the list of methods, and the record is whole.",
        added={"method_id", "method_title", "settings.cost"},
        lacking={"methodId"},
    ),
    "woo_tax_rates_create": Difference(
        "A new rate is answered whole, as it is listed.", added={"name", "state"}
    ),
}
