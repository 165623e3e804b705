"""What a new shop has: settings, ways to pay, tax classes, a category, the administrator, the zone of all other places."""

from __future__ import annotations

import json

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

# group | id | label | type | default | options
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

_GATEWAYS = (
    ("bacs", "Direct bank transfer", "Pay into our bank account; the order is sent when the money has arrived.", 0, ["products"]),
    ("cheque", "Check payments", "Send a check to the address of the shop.", 0, ["products"]),
    ("cod", "Cash on delivery", "Pay with cash upon delivery.", 1, ["products"]),
    ("paypal", "PayPal", "Pay with a PayPal account or a card.", 0, ["products", "refunds"]),
)


def _literal(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    return "'" + (value if isinstance(value, str) else json.dumps(value)).replace("'", "''") + "'"


def _insert(table: str, columns: str, *values: object) -> str:
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join(map(_literal, values))});"


def _statements() -> list[str]:
    made = [
        _insert(
            "categories",
            "name, slug, parent, description, display, menu_order",
            "Uncategorized",
            "uncategorized",
            0,
            "",
            "default",
            0,
        ),
        _insert(
            "customers",
            "email, username, first_name, last_name, role, date_created, date_modified, details, meta_data",
            "admin@woocommerce.local",
            "admin",
            "Shop",
            "Admin",
            "administrator",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00",
            {"billing": {}, "shipping": {}},
            [],
        ),
        _insert("zones", "id, name, menu_order", 0, "Locations not covered by your other zones", 0),
    ]
    for slug, name in (("standard", "Standard rate"), ("reduced-rate", "Reduced rate"), ("zero-rate", "Zero rate")):
        made.append(_insert("tax_classes", "slug, name", slug, name))
    for order, (key, title, text, enabled, supports) in enumerate(_GATEWAYS):
        settings = {"title": title, "description": text, "instructions": ""}
        columns = "id, title, description, menu_order, enabled, method_title, supports, settings"
        made.append(_insert("gateways", columns, key, title, text, order, enabled, title, supports, settings))
    for line in _SETTINGS.strip().splitlines():
        group, key, label, kind, default, *options = line.split("|")
        known = {name: name for name in options[0].split(",")} if options else {}
        columns = "id, group_id, label, type, default_value, value, options"
        made.append(_insert("settings", columns, key, group, label, kind, default, default, known))
    return made


PRESETS = "\n".join(_statements())
"""SQL that fills the tables of a new shop."""
