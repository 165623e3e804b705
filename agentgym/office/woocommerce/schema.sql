-- The shop's tables, and a new shop's settings and first records. Order and item totals are whole cents,
-- which add up exactly; product prices stay text, because the API shows them as written.
-- AUTOINCREMENT never reuses an id, as in WordPress.
CREATE TABLE products (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT, slug TEXT UNIQUE, type TEXT, status TEXT, sku TEXT, regular_price TEXT, sale_price TEXT, price TEXT, on_sale BOOL,
  featured BOOL, manage_stock BOOL, stock_quantity INTEGER, stock_status TEXT, backorders TEXT,
  low_stock_amount INTEGER, total_sales INTEGER, average_rating TEXT, rating_count INTEGER,
  date_created TEXT, date_modified TEXT, details JSON, meta_data JSON);
CREATE UNIQUE INDEX product_skus ON products(sku) WHERE sku <> '';
CREATE INDEX products_by_date ON products(date_created, type, status);
CREATE TABLE categories (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, slug TEXT UNIQUE,
  parent INTEGER DEFAULT 0, description TEXT DEFAULT '', display TEXT DEFAULT 'default',
  menu_order INTEGER DEFAULT 0, image JSON);
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
  username TEXT COLLATE NOCASE UNIQUE, first_name TEXT, last_name TEXT,
  role TEXT DEFAULT 'customer', date_created TEXT, date_modified TEXT, details JSON,
  meta_data JSON DEFAULT '[]');
CREATE TABLE orders (
  id INTEGER PRIMARY KEY AUTOINCREMENT, status TEXT, currency TEXT,
  customer_id INTEGER REFERENCES customers(id), date_created TEXT, date_modified TEXT,
  date_paid TEXT, date_completed TEXT, discount_total INTEGER DEFAULT 0,
  shipping_total INTEGER DEFAULT 0, total INTEGER, booked BOOL, details JSON,
  meta_data JSON DEFAULT '[]');
CREATE INDEX orders_by_date ON orders(date_created, status);
CREATE INDEX orders_of_customer ON orders(customer_id);
CREATE TABLE items (
  id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER REFERENCES orders(id) ON DELETE CASCADE,
  type TEXT DEFAULT 'line_item', name TEXT, product_id INTEGER REFERENCES products(id) ON DELETE SET NULL,
  quantity INTEGER,
  subtotal INTEGER, total INTEGER, reduced INTEGER, code TEXT DEFAULT '',
  meta_data JSON DEFAULT '[]');
CREATE INDEX items_of_order ON items(order_id);
CREATE INDEX items_of_product ON items(product_id);
-- Stays empty: the keys of instances count it.
CREATE TABLE notes (
  id INTEGER PRIMARY KEY AUTOINCREMENT, order_id INTEGER REFERENCES orders(id) ON DELETE CASCADE,
  author TEXT, note TEXT, customer_note BOOL, date_created TEXT);
CREATE TABLE settings (
  id TEXT PRIMARY KEY, group_id TEXT, label TEXT, type TEXT, default_value TEXT, value TEXT,
  options JSON);

INSERT INTO categories (name, slug, parent, description, display, menu_order) VALUES ('Uncategorized', 'uncategorized', 0, '', 'default', 0);
INSERT INTO customers (email, username, first_name, last_name, role, date_created, date_modified, details, meta_data) VALUES ('admin@woocommerce.local', 'admin', 'Shop', 'Admin', 'administrator', '2024-01-01T00:00:00', '2024-01-01T00:00:00', '{"billing": {}, "shipping": {}}', '[]');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('gmt_offset', 'general', 'Hours from GMT to the time of the site', 'number', '0', '0', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_store_address', 'general', 'Address line 1', 'text', '', '', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_store_city', 'general', 'City', 'text', '', '', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_default_country', 'general', 'Country / State', 'single_select_country', 'US:CA', 'US:CA', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_store_postcode', 'general', 'Postcode / ZIP', 'text', '', '', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_calc_taxes', 'general', 'Enable tax rates and calculations', 'checkbox', 'yes', 'yes', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_enable_coupons', 'general', 'Enable the use of coupon codes', 'checkbox', 'yes', 'yes', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_currency', 'general', 'Currency', 'select', 'USD', 'USD', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_price_num_decimals', 'general', 'Number of decimals', 'number', '2', '2', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_weight_unit', 'products', 'Weight unit', 'select', 'kg', 'kg', '{"kg": "kg", "g": "g", "lbs": "lbs", "oz": "oz"}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_dimension_unit', 'products', 'Dimensions unit', 'select', 'cm', 'cm', '{"m": "m", "cm": "cm", "mm": "mm", "in": "in", "yd": "yd"}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_enable_reviews', 'products', 'Enable product reviews', 'checkbox', 'yes', 'yes', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_manage_stock', 'products', 'Enable stock management', 'checkbox', 'yes', 'yes', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_notify_low_stock_amount', 'products', 'Low stock threshold', 'number', '2', '2', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_notify_no_stock_amount', 'products', 'Out of stock threshold', 'number', '0', '0', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_prices_include_tax', 'tax', 'Prices entered with tax', 'radio', 'no', 'no', '{"no": "no"}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_tax_based_on', 'tax', 'Calculate tax based on', 'select', 'shipping', 'shipping', '{"shipping": "shipping"}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_shipping_tax_class', 'tax', 'Shipping tax class', 'select', 'standard', 'standard', '{"standard": "standard"}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_tax_round_at_subtotal', 'tax', 'Round tax at subtotal level, instead of per line', 'checkbox', 'no', 'no', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_ship_to_countries', 'shipping', 'Shipping location(s)', 'select', 'all', 'all', '{"all": "all"}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_ship_to_destination', 'shipping', 'Shipping destination', 'radio', 'shipping', 'shipping', '{"shipping": "shipping"}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_enable_guest_checkout', 'checkout', 'Allow customers to place orders without an account', 'checkbox', 'yes', 'yes', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_enable_myaccount_registration', 'account', 'Allow customers to create an account', 'checkbox', 'no', 'no', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_registration_generate_username', 'account', 'Make the user name from the email address', 'checkbox', 'yes', 'yes', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_email_from_name', 'email', '"From" name', 'text', 'WooCommerce', 'WooCommerce', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_email_from_address', 'email', '"From" address', 'email', 'admin@woocommerce.local', 'admin@woocommerce.local', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_checkout_pay_endpoint', 'advanced', 'Pay', 'text', 'order-pay', 'order-pay', '{}');
INSERT INTO settings (id, group_id, label, type, default_value, value, options) VALUES ('woocommerce_checkout_order_received_endpoint', 'advanced', 'Order received', 'text', 'order-received', 'order-received', '{}');
