"""WooCommerce tools that are listed but disabled: coupons, shipping, taxes, gateways, webhooks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from agentgym.office.disabled import disabled_tool
from agentgym.office.woocommerce.shapes import Amount, Id, schema_of

_COUPONS = "coupons are"
_SHIPPING = "shipping zones are"
_TAXES = "tax rates are"
_SYSTEM_TOOLS = "system tools are"
_GATEWAYS = "payment gateways are"
_WEBHOOKS = "webhooks are"

_ToolId = Literal[
    "clear_transients",
    "clear_expired_transients",
    "clear_orphaned_variations",
    "add_order_indexes",
    "recount_terms",
    "reset_roles",
    "clear_sessions",
    "clear_template_cache",
    "clear_system_status_theme_info_cache",
]
Topic = Literal[
    "coupon.created",
    "coupon.updated",
    "coupon.deleted",
    "customer.created",
    "customer.updated",
    "customer.deleted",
    "order.created",
    "order.updated",
    "order.deleted",
    "product.created",
    "product.updated",
    "product.deleted",
]
HookStatus = Literal["active", "paused", "disabled"]


class CouponData(TypedDict, total=False):
    """Coupon fields in the published schema."""

    code: Annotated[
        str, Field(min_length=1, max_length=100, description="Code that customers enter")
    ]
    amount: Annotated[Amount, Field(description="Amount of money, or percentage")]
    discount_type: Annotated[
        Literal["percent", "fixed_cart", "fixed_product"],
        Field(description="What the amount means"),
    ]
    date_expires: Annotated[str | None, Field(description="Last moment, ISO 8601")]
    individual_use: Annotated[bool, Field(description="Not with other coupons")]
    product_ids: Annotated[list[Id], Field(description="Only for these products")]
    excluded_product_ids: Annotated[list[Id], Field(description="Not for these products")]
    usage_limit: Annotated[Id | None, Field(description="Total uses")]
    usage_limit_per_user: Annotated[Id | None, Field(description="Uses by one customer")]
    limit_usage_to_x_items: Annotated[
        Id | None, Field(description="Maximum number of items it applies to")
    ]
    free_shipping: Annotated[bool, Field(description="Grants free shipping")]
    exclude_sale_items: Annotated[bool, Field(description="Not for products on sale")]
    minimum_amount: Annotated[Amount, Field(description="Minimum order value")]
    maximum_amount: Annotated[Amount, Field(description="Maximum order value")]


NewCoupon = Annotated[dict[str, Any], schema_of(CouponData, ["code", "amount", "discount_type"])]


class DisabledShopTools:
    """Signatures of the disabled tools, which give the published schemas."""

    @disabled_tool(_COUPONS)
    def woo_coupons_list(
        self, perPage: int = 10, page: int = 1, search: str | None = None, code: str | None = None
    ) -> None:
        """List coupons, latest first.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
            search: Words in code or description.
            code: Code.
        """

    @disabled_tool(_COUPONS)
    def woo_coupons_get(self, couponId: int) -> None:
        """Get a coupon.

        Args:
            couponId: Coupon.
        """

    @disabled_tool(_COUPONS)
    def woo_coupons_create(self, couponData: NewCoupon) -> None:
        """Create a coupon; other fields of the REST API (description, product_categories …) are accepted too.

        Args:
            couponData: The coupon.
        """

    @disabled_tool(_COUPONS)
    def woo_coupons_update(self, couponId: int, couponData: dict[str, Any]) -> None:
        """Change fields of a coupon; orders keep the discounts they have.

        Args:
            couponId: Coupon.
            couponData: Fields to change, as for creating.
        """

    @disabled_tool(_COUPONS)
    def woo_coupons_delete(self, couponId: int, force: bool = True) -> None:
        """Delete a coupon.

        Args:
            couponId: Coupon.
            force: Delete permanently; otherwise move to the trash.
        """

    @disabled_tool(_SHIPPING)
    def woo_shipping_zones_list(self) -> None:
        """List shipping zones; zone 0 contains all places outside the others."""

    @disabled_tool(_SHIPPING)
    def woo_shipping_zones_get(self, zoneId: int) -> None:
        """Get a shipping zone.

        Args:
            zoneId: Shipping zone.
        """

    @disabled_tool(_SHIPPING)
    def woo_shipping_zones_create(self, name: str, order: int = 0) -> None:
        """Create a shipping zone.

        Args:
            name: Name.
            order: Place in the list.
        """

    @disabled_tool(_SHIPPING)
    def woo_shipping_zones_update(
        self, zoneId: int, name: str | None = None, order: int | None = None
    ) -> None:
        """Change a shipping zone.

        Args:
            zoneId: Shipping zone.
            name: Name.
            order: Place in the list.
        """

    @disabled_tool(_SHIPPING)
    def woo_shipping_zone_methods_list(self, zoneId: int) -> None:
        """List the shipping methods of a zone.

        Args:
            zoneId: Shipping zone.
        """

    @disabled_tool(_SHIPPING)
    def woo_shipping_zone_methods_create(
        self,
        zoneId: int,
        methodId: str,
        enabled: bool = True,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """Add a shipping method to a zone.

        Args:
            zoneId: Shipping zone.
            methodId: flat_rate, free_shipping or local_pickup.
            enabled: Offer it.
            settings: Such as title and cost.
        """

    @disabled_tool(_TAXES)
    def woo_tax_rates_list(
        self, taxClass: str | None = None, perPage: int = 10, page: int = 1
    ) -> None:
        """List tax rates.

        Args:
            taxClass: Only of this class, such as standard.
            perPage: Items per page, at most 100.
            page: Page, from 1.
        """

    @disabled_tool(_TAXES)
    def woo_tax_rates_get(self, rateId: int) -> None:
        """Get a tax rate.

        Args:
            rateId: Tax rate.
        """

    @disabled_tool(_TAXES)
    def woo_tax_rates_create(
        self,
        *,
        country: str,
        state: str = "",
        rate: str,
        name: str = "Tax",
        priority: int = 1,
        compound: bool = False,
        shipping: bool = True,
        class_: str = "standard",
    ) -> None:
        """Create a tax rate for orders from now on.

        Args:
            country: Country code; empty for any.
            state: State code; empty for any.
            rate: Percent.
            name: Name.
            priority: Of rates with the same priority the most specific one counts.
            compound: Tax the taxes of lower priority too.
            shipping: Tax shipping too.
            class_: Tax class.
        """

    @disabled_tool(_TAXES)
    def woo_tax_classes_list(self) -> None:
        """List tax classes."""

    @disabled_tool(_SYSTEM_TOOLS)
    def woo_system_tools_list(self) -> None:
        """List what woo_system_tools_run can do."""

    @disabled_tool(_SYSTEM_TOOLS)
    def woo_system_tools_run(self, toolId: _ToolId) -> None:
        """Run a system tool.

        Args:
            toolId: Tool.
        """

    @disabled_tool(_GATEWAYS)
    def woo_payment_gateways_list(self) -> None:
        """List payment gateways."""

    @disabled_tool(_GATEWAYS)
    def woo_payment_gateways_get(self, gatewayId: str) -> None:
        """Get a payment gateway.

        Args:
            gatewayId: Payment gateway.
        """

    @disabled_tool(_GATEWAYS)
    def woo_payment_gateways_update(
        self,
        gatewayId: str,
        enabled: bool | None = None,
        title: str | None = None,
        description: str | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """Change a payment gateway.

        Args:
            gatewayId: Payment gateway.
            enabled: Offer it.
            title: Title.
            description: Description.
            settings: title, description, instructions.
        """

    @disabled_tool(_WEBHOOKS)
    def woo_webhooks_list(
        self, perPage: int = 10, page: int = 1, status: HookStatus | None = None
    ) -> None:
        """List webhooks, latest first.

        Args:
            perPage: Items per page, at most 100.
            page: Page, from 1.
            status: Status.
        """

    @disabled_tool(_WEBHOOKS)
    def woo_webhooks_create(
        self,
        name: str,
        topic: Topic,
        delivery_url: str,
        status: HookStatus = "active",
        secret: str | None = None,
    ) -> None:
        """Create a webhook: events from now on are sent to a URL.

        Args:
            name: Name.
            topic: Event.
            delivery_url: Address.
            status: Status.
            secret: Key that signs the events; never shown.
        """
