"""Tables of the shop's records.

Sums of orders, items and refunds are in whole cents, so that adding them up loses nothing; prices
of products stay the texts that were given, because the API shows them as they were written. Fields
that no query asks for are in a JSON column, `details`.
"""

TABLES = """
CREATE TABLE products (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  parent_id INTEGER REFERENCES products(id) ON DELETE CASCADE, name TEXT, slug TEXT UNIQUE,
  type TEXT, status TEXT, sku TEXT, regular_price TEXT, sale_price TEXT, price TEXT, on_sale BOOL,
  featured BOOL, manage_stock BOOL, stock_quantity INTEGER, stock_status TEXT, backorders TEXT,
  low_stock_amount INTEGER, total_sales INTEGER, average_rating TEXT, rating_count INTEGER,
  date_created TEXT, date_modified TEXT, details JSON, meta_data JSON);
CREATE UNIQUE INDEX product_skus ON products(sku) WHERE sku <> '';
CREATE INDEX products_by_date ON products(date_created, type, status);
CREATE INDEX product_parents ON products(parent_id);
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
CREATE TABLE reviews (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  product_id INTEGER REFERENCES products(id) ON DELETE CASCADE, status TEXT, reviewer TEXT,
  reviewer_email TEXT, review TEXT, rating INTEGER, verified BOOL, date_created TEXT);
CREATE TABLE customers (
  id INTEGER PRIMARY KEY AUTOINCREMENT, email TEXT COLLATE NOCASE UNIQUE,
  username TEXT COLLATE NOCASE UNIQUE, first_name TEXT, last_name TEXT, role TEXT,
  date_created TEXT, date_modified TEXT, details JSON, meta_data JSON);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY AUTOINCREMENT, status TEXT, currency TEXT,
  customer_id INTEGER REFERENCES customers(id), date_created TEXT, date_modified TEXT,
  date_paid TEXT, date_completed TEXT, discount_total INTEGER, discount_tax INTEGER,
  shipping_total INTEGER, shipping_tax INTEGER, cart_tax INTEGER, total_tax INTEGER,
  total INTEGER, booked BOOL, details JSON, meta_data JSON);
CREATE INDEX orders_by_date ON orders(date_created, status);
CREATE INDEX orders_of_customer ON orders(customer_id);
CREATE TABLE items (
  id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER REFERENCES orders(id) ON DELETE CASCADE,
  type TEXT, name TEXT, product_id INTEGER REFERENCES products(id) ON DELETE SET NULL,
  variation_id INTEGER REFERENCES products(id) ON DELETE SET NULL, quantity INTEGER,
  subtotal INTEGER, subtotal_tax INTEGER, total INTEGER, total_tax INTEGER, reduced INTEGER,
  code TEXT, taxes JSON, meta_data JSON);
CREATE INDEX items_of_order ON items(order_id);
CREATE INDEX items_of_product ON items(product_id);
CREATE INDEX items_of_code ON items(code);
CREATE INDEX items_of_variation ON items(variation_id);
CREATE TABLE refunds (
  id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER REFERENCES orders(id) ON DELETE CASCADE,
  amount INTEGER, reason TEXT, date_created TEXT, refunded_payment BOOL, lines JSON);
CREATE TABLE notes (
  id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER REFERENCES orders(id) ON DELETE CASCADE,
  author TEXT, note TEXT, customer_note BOOL, date_created TEXT);
CREATE TABLE coupons (
  id INTEGER PRIMARY KEY AUTOINCREMENT, code TEXT COLLATE NOCASE UNIQUE, amount TEXT, status TEXT,
  discount_type TEXT, description TEXT, date_expires TEXT, usage_count INTEGER, date_created TEXT,
  date_modified TEXT, details JSON, meta_data JSON);
CREATE TABLE tax_rates (
  id INTEGER PRIMARY KEY AUTOINCREMENT, country TEXT, state TEXT, rate TEXT, name TEXT,
  priority INTEGER, compound BOOL, shipping BOOL, class TEXT);
CREATE TABLE tax_classes (slug TEXT PRIMARY KEY, name TEXT);
CREATE TABLE zones (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, menu_order INTEGER);
CREATE TABLE zone_methods (
  id INTEGER PRIMARY KEY AUTOINCREMENT, zone_id INTEGER REFERENCES zones(id), method_id TEXT,
  enabled BOOL, settings JSON);
CREATE TABLE gateways (
  id TEXT PRIMARY KEY, title TEXT, description TEXT, menu_order INTEGER, enabled BOOL,
  method_title TEXT, supports JSON, settings JSON);
CREATE TABLE settings (
  id TEXT PRIMARY KEY, group_id TEXT, label TEXT, type TEXT, default_value TEXT, value TEXT,
  options JSON);
CREATE TABLE webhooks (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, status TEXT, topic TEXT, delivery_url TEXT,
  secret TEXT, date_created TEXT, date_modified TEXT);
CREATE TABLE deliveries (
  id INTEGER PRIMARY KEY AUTOINCREMENT, webhook_id INTEGER REFERENCES webhooks(id), topic TEXT,
  resource_id INTEGER, date_created TEXT);
"""
"""SQL that makes the tables; AUTOINCREMENT gives no id twice, as in WordPress."""
