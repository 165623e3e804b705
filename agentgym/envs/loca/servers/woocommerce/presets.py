"""Presets of a new shop: its settings, payment gateways, tax classes and first records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

GROUPS = {
    "general": ("General", "Where the shop is and what it sells in."),
    "products": ("Products", "Stock, reviews and measures."),
    "tax": ("Tax", "How taxes are computed."),
    "shipping": ("Shipping", "How shipping is offered."),
    "checkout": ("Payments", "What a customer needs to pay."),
    "account": ("Accounts & Privacy", "Who may register."),
    "email": ("Emails", "Who is named as the sender."),
    "integration": ("Integration", "Other services; none is installed."),
    "advanced": ("Advanced", "Addresses of the steps of the checkout."),
    "rest-api": ("REST API", "Access by programs; this connection has all of it."),
}
"""Label and description of each group of settings."""

# group | id | label | type | default | options: a line each, because a table is read by column
_SETTINGS = """
general|gmt_offset|Hours from GMT to the time of the site|number|0
general|woocommerce_store_address|Address line 1|text|
general|woocommerce_store_city|City|text|
general|woocommerce_default_country|Country / State|single_select_country|US:CA
general|woocommerce_store_postcode|Postcode / ZIP|text|
general|woocommerce_calc_taxes|Enable tax rates and calculations|checkbox|yes
general|woocommerce_enable_coupons|Enable the use of coupon codes|checkbox|yes
general|woocommerce_currency|Currency|select|USD
general|woocommerce_price_num_decimals|Number of decimals|number|2
products|woocommerce_weight_unit|Weight unit|select|kg|kg,g,lbs,oz
products|woocommerce_dimension_unit|Dimensions unit|select|cm|m,cm,mm,in,yd
products|woocommerce_enable_reviews|Enable product reviews|checkbox|yes
products|woocommerce_manage_stock|Enable stock management|checkbox|yes
products|woocommerce_notify_low_stock_amount|Low stock threshold|number|2
products|woocommerce_notify_no_stock_amount|Out of stock threshold|number|0
tax|woocommerce_prices_include_tax|Prices entered with tax|radio|no|no
tax|woocommerce_tax_based_on|Calculate tax based on|select|shipping|shipping
tax|woocommerce_shipping_tax_class|Shipping tax class|select|standard|standard
tax|woocommerce_tax_round_at_subtotal|Round tax at subtotal level, instead of per line|checkbox|no
shipping|woocommerce_ship_to_countries|Shipping location(s)|select|all|all
shipping|woocommerce_ship_to_destination|Shipping destination|radio|shipping|shipping
checkout|woocommerce_enable_guest_checkout|Allow customers to place orders without an account|checkbox|yes
account|woocommerce_enable_myaccount_registration|Allow customers to create an account|checkbox|no
account|woocommerce_registration_generate_username|Make the user name from the email address|checkbox|yes
email|woocommerce_email_from_name|"From" name|text|WooCommerce
email|woocommerce_email_from_address|"From" address|email|admin@woocommerce.local
advanced|woocommerce_checkout_pay_endpoint|Pay|text|order-pay
advanced|woocommerce_checkout_order_received_endpoint|Order received|text|order-received
"""

# id, title, description, whether it is enabled (an integer in SQL), what it supports
_GATEWAYS = (
    (
        "bacs",
        "Direct bank transfer",
        "Pay into our bank account; the order is sent when the money has arrived.",
        0,
        ["products"],
    ),
    ("cheque", "Check payments", "Send a check to the address of the shop.", 0, ["products"]),
    ("cod", "Cash on delivery", "Pay with cash upon delivery.", 1, ["products"]),
    ("paypal", "PayPal", "Pay with a PayPal account or a card.", 0, ["products", "refunds"]),
)


_RECORDS: tuple[tuple[str, dict[str, object]], ...] = (
    (
        "categories",
        {
            "name": "Uncategorized",
            "slug": "uncategorized",
            "parent": 0,
            "description": "",
            "display": "default",
            "menu_order": 0,
        },
    ),
    (
        "customers",
        {
            "email": "admin@woocommerce.local",
            "username": "admin",
            "first_name": "Shop",
            "last_name": "Admin",
            "role": "administrator",
            "date_created": "2024-01-01T00:00:00",
            "date_modified": "2024-01-01T00:00:00",
            "details": {"billing": {}, "shipping": {}},
            "meta_data": [],
        },
    ),
    ("zones", {"id": 0, "name": "Locations not covered by your other zones", "menu_order": 0}),
    ("tax_classes", {"slug": "standard", "name": "Standard rate"}),
    ("tax_classes", {"slug": "reduced-rate", "name": "Reduced rate"}),
    ("tax_classes", {"slug": "zero-rate", "name": "Zero rate"}),
)
"""First records with their tables. Zone 0 is there because orders may come from anywhere."""


def _literal(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    return "'" + (value if isinstance(value, str) else json.dumps(value)).replace("'", "''") + "'"


def _insert(table: str, record: Mapping[str, object]) -> str:
    values = ", ".join(map(_literal, record.values()))
    return f"INSERT INTO {table} ({', '.join(record)}) VALUES ({values});"


def _statements() -> Iterator[str]:
    for table, record in _RECORDS:
        yield _insert(table, record)
    for order, (key, title, text, enabled, supports) in enumerate(_GATEWAYS):
        gateway = {
            "id": key,
            "title": title,
            "description": text,
            "menu_order": order,
            "enabled": enabled,
            "method_title": title,
            "supports": supports,
            "settings": {"title": title, "description": text, "instructions": ""},
        }
        yield _insert("gateways", gateway)
    for line in _SETTINGS.strip().splitlines():
        group, key, label, kind, default, *choices = line.split("|")
        setting = {
            "id": key,
            "group_id": group,
            "label": label,
            "type": kind,
            "default_value": default,
            "value": default,
            "options": {name: name for name in choices[0].split(",")} if choices else {},
        }
        yield _insert("settings", setting)


PRESETS = "\n".join(_statements())
"""SQL that fills the tables of a new shop."""
