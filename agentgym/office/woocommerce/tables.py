"""Tables of the shop, and a new shop's settings and first records.

Order and item totals are whole cents, which add up exactly. Product prices stay text,
because the API shows them as written. Fields that no query uses are in the JSON column `details`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

# AUTOINCREMENT never reuses an id, as in WordPress.
TABLES = """
CREATE TABLE products (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT, slug TEXT UNIQUE, type TEXT, status TEXT, sku TEXT, regular_price TEXT, sale_price TEXT, price TEXT, on_sale BOOL,
  featured BOOL, manage_stock BOOL, stock_quantity INTEGER, stock_status TEXT, backorders TEXT,
  low_stock_amount INTEGER, total_sales INTEGER, average_rating TEXT, rating_count INTEGER,
  date_created TEXT, date_modified TEXT, details JSON, meta_data JSON);
CREATE UNIQUE INDEX product_skus ON products(sku) WHERE sku <> '';
CREATE INDEX products_by_date ON products(date_created, type, status);
CREATE TABLE categories (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, slug TEXT UNIQUE, parent INTEGER,
  description TEXT, display TEXT, menu_order INTEGER, image JSON);
CREATE TABLE tags (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, slug TEXT UNIQUE, description TEXT);
CREATE TABLE product_categories (
  product_id INTEGER REFERENCES products(id) ON DELETE CASCADE,
  term_id INTEGER REFERENCES categories(id), PRIMARY KEY (product_id, term_id));
CREATE TABLE product_tags (
  product_id INTEGER REFERENCES products(id) ON DELETE CASCADE,
  term_id INTEGER REFERENCES tags(id), PRIMARY KEY (product_id, term_id));
CREATE INDEX products_of_category ON product_categories(term_id);
CREATE TABLE customers (
  id INTEGER PRIMARY KEY AUTOINCREMENT, email TEXT COLLATE NOCASE UNIQUE,
  username TEXT COLLATE NOCASE UNIQUE, first_name TEXT, last_name TEXT, role TEXT,
  date_created TEXT, date_modified TEXT, details JSON, meta_data JSON);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY AUTOINCREMENT, status TEXT, currency TEXT,
  customer_id INTEGER REFERENCES customers(id), date_created TEXT, date_modified TEXT,
  date_paid TEXT, date_completed TEXT, discount_total INTEGER, shipping_total INTEGER, total INTEGER,
  booked BOOL, details JSON, meta_data JSON);
CREATE INDEX orders_by_date ON orders(date_created, status);
CREATE INDEX orders_of_customer ON orders(customer_id);
CREATE TABLE items (
  id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER REFERENCES orders(id) ON DELETE CASCADE,
  type TEXT, name TEXT, product_id INTEGER REFERENCES products(id) ON DELETE SET NULL,
  quantity INTEGER,
  subtotal INTEGER, total INTEGER, reduced INTEGER, code TEXT, meta_data JSON);
CREATE INDEX items_of_order ON items(order_id);
CREATE INDEX items_of_product ON items(product_id);
CREATE TABLE notes (
  id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER REFERENCES orders(id) ON DELETE CASCADE,
  author TEXT, note TEXT, customer_note BOOL, date_created TEXT);
CREATE TABLE settings (
  id TEXT PRIMARY KEY, group_id TEXT, label TEXT, type TEXT, default_value TEXT, value TEXT,
  options JSON);
"""

# Label and description by group of settings.
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

# group | id | label | type | default | options; one line each, to be read by column.
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

# A new shop's first records, with their tables.
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
)


def _literal(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value)
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def _insert(table: str, record: Mapping[str, object]) -> str:
    values = ", ".join(map(_literal, record.values()))
    return f"INSERT INTO {table} ({', '.join(record)}) VALUES ({values});"


def _statements() -> Iterator[str]:
    for table, record in _RECORDS:
        yield _insert(table, record)
    for line in _SETTINGS.strip().splitlines():
        group, key, label, kind, default, *choices = line.split("|")
        options = {name: name for name in choices[0].split(",")} if choices else {}
        yield _insert(
            "settings",
            {
                "id": key,
                "group_id": group,
                "label": label,
                "type": kind,
                "default_value": default,
                "value": default,
                "options": options,
            },
        )


PRESETS = "\n".join(_statements())  # SQL that fills the tables of a new shop
