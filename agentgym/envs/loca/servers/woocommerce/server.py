"""The shop of the office: 55 tools with the names and the data of the REST API of WooCommerce (version 3)."""

from __future__ import annotations

from agentgym.envs.loca.servers.woocommerce.settings import Settings


class WooCommerce(Settings):
    """A shop; whoever calls is its administrator.

    What it does as WooCommerce does:

    * Sums are computed in whole cents from the lines of an order; so are discounts and taxes (`woocommerce_money.py`).
    * Orders move the stock and the sales of products (`woocommerce_orders.Orders`); below zero if need be.
    * `date_…` is in the time of the site (the setting `gmt_offset`), `date_…_gmt` in GMT.
    * Whether a product is on sale is settled when it is saved.
    * Items of `meta_data` are matched by id or key; a null value removes one.

    Authors of tasks fill it with `add_product(s)`, `add_category`, `add_review`, `add_customer(s)`, `add_order(s)`, `add_coupon`
    and `set_setting`, and read its state with `products`, `categories`, `customers`, `orders`, `notes`, `coupons` and `deliveries`.
    Ids count from 1 in the order of filling, but 1 is the category Uncategorized among categories, and the administrator
    among customers.
    """
