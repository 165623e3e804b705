"""WooCommerce server: 55 tools with the names and data of REST API version 3."""

from __future__ import annotations

from pathlib import Path

from agentgym.office.context import OfficeContext
from agentgym.office.disabled import with_disabled_tools
from agentgym.office.server import Server
from agentgym.office.woocommerce.categories import Categories
from agentgym.office.woocommerce.customers import Customers
from agentgym.office.woocommerce.orders import Orders
from agentgym.office.woocommerce.products import Products
from agentgym.office.woocommerce.settings import Settings


@with_disabled_tools(Path(__file__).with_name("disabled_tools.json"))
class WooCommerce(Server):
    """A WooCommerce shop; the caller is the administrator.

    Order totals are computed from line items, in whole cents. Dates are in site time (the setting
    `gmt_offset`, in hours). Whether a product is on sale is determined when the product is saved.
    Items of `meta_data` are matched by id or key; a null value removes an item.

    The attributes `products`, `categories`, `orders` and `customers` let tasks add records, as in
    `shop.products.add("Mug", regular_price="5")`, and read records with `all`; `settings` has
    `update`. Ids count from 1; category 1 is Uncategorized, and customer 1 is the administrator.
    """

    name = "woocommerce"
    schema = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
    tool_order = tuple(
        """
        woo_products_list woo_products_get woo_products_create woo_products_update
        woo_products_delete woo_products_batch_update woo_products_variations_list
        woo_products_categories_list woo_products_categories_create woo_products_tags_list
        woo_products_reviews_list
        woo_orders_list woo_orders_get woo_orders_create woo_orders_update woo_orders_delete
        woo_orders_batch_update woo_orders_notes_create woo_orders_refunds_create
        woo_customers_list woo_customers_get woo_customers_create woo_customers_update
        woo_coupons_list woo_coupons_get woo_coupons_create woo_coupons_update woo_coupons_delete
        woo_reports_sales woo_reports_top_sellers woo_reports_customers woo_reports_orders
        woo_reports_products woo_reports_stock woo_reports_low_stock
        woo_shipping_zones_list woo_shipping_zones_get woo_shipping_zones_create
        woo_shipping_zones_update woo_shipping_zone_methods_list woo_shipping_zone_methods_create
        woo_tax_rates_list woo_tax_rates_get woo_tax_rates_create woo_tax_classes_list
        woo_system_status woo_system_tools_list woo_system_tools_run
        woo_settings_list woo_settings_get
        woo_payment_gateways_list woo_payment_gateways_get woo_payment_gateways_update
        woo_webhooks_list woo_webhooks_create
        """.split()
    )

    def __init__(self, context: OfficeContext | None = None) -> None:
        super().__init__(context)
        self.categories = Categories(self)
        self.products = Products(self, self.categories)
        self.orders = Orders(self)
        self.customers = Customers(self)
        self.settings = Settings(self)
        self.parts = (
            self.products,
            self.categories,
            self.orders,
            self.customers,
            self.settings,
        )
