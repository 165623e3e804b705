"""What the shop accepts: the fields of a product, order, customer or coupon that a caller may set, and how they are checked.

Fields that the REST API only shows (`price`, `date_created`, `total` …) are passed over,
so that a record may be sent back as it was read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from agentgym.envs.loca.servers.store import Row
from agentgym.tools import ToolError, echo

MAX_AMOUNT = 10**9
"""No amount of money is larger."""

STATUSES = ("pending", "processing", "on-hold", "completed", "cancelled", "refunded", "failed")
"""The statuses of an order that a caller may set."""

_CONFIG = ConfigDict(extra="ignore", coerce_numbers_to_str=True, allow_inf_nan=False)


def _amount(value: object) -> str:
    """An amount of money as text, with cents at most; nothing stays nothing."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError('an amount is written like "12.50"')
    if str(value).strip() == "":
        return ""
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        raise ValueError('an amount is written like "12.50"') from None
    if not number.is_finite() or not 0 <= number <= MAX_AMOUNT:
        raise ValueError(f"an amount is from 0 to {MAX_AMOUNT}")
    return format(abs(number) if -2 <= int(number.as_tuple().exponent) <= 0 else _to_cents(number), "f")


def _to_cents(number: Decimal) -> Decimal:
    return abs(number).quantize(Decimal("0.01"), ROUND_HALF_UP)


Amount = Annotated[str, BeforeValidator(_amount)]
Id = Annotated[int, Field(ge=0, lt=2**63)]
Stock = Annotated[int, Field(ge=-(10**9), le=10**9)]
Quantity = Annotated[int, Field(ge=0, le=10**6)]
Email = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s.]+$", max_length=100)]
ProductStatus = Literal["draft", "pending", "private", "publish"]
OrderStatus = Literal["pending", "processing", "on-hold", "completed", "cancelled", "refunded", "failed"]


class Meta(TypedDict, total=False):
    """A custom field."""

    id: Id
    key: str
    value: Any


class Term(TypedDict):
    """A category or tag of a product."""

    id: Id


class Dimensions(TypedDict, total=False):
    """The size of a product."""

    length: str
    width: str
    height: str


class Image(TypedDict, total=False):
    """A picture of a product."""

    id: Id
    src: str
    name: str
    alt: str


class Attribute(TypedDict, total=False):
    """A property of a product, or the choice of it that a variation is."""

    id: Id
    name: str
    position: Id
    visible: bool
    variation: bool
    options: list[str]
    option: str


@with_config(_CONFIG)
class ProductData(TypedDict, total=False):
    """A product."""

    name: str
    slug: str
    type: Literal["simple", "grouped", "external", "variable", "variation"]
    status: ProductStatus
    featured: bool
    catalog_visibility: Literal["visible", "catalog", "search", "hidden"]
    description: str
    short_description: str
    sku: Annotated[str, Field(max_length=100)]
    regular_price: Amount
    sale_price: Amount
    date_on_sale_from: str | None
    date_on_sale_to: str | None
    virtual: bool
    downloadable: bool
    tax_status: Literal["taxable", "shipping", "none"]
    tax_class: str
    manage_stock: bool
    stock_quantity: Stock | None
    stock_status: Literal["instock", "outofstock", "onbackorder"]
    backorders: Literal["no", "notify", "yes"]
    low_stock_amount: Stock | None
    sold_individually: bool
    weight: str
    dimensions: Dimensions
    reviews_allowed: bool
    purchase_note: str
    categories: list[Term]
    tags: list[Term]
    images: list[Image]
    attributes: list[Attribute]
    default_attributes: list[Attribute]
    menu_order: Stock
    meta_data: list[Meta]


@with_config(_CONFIG)
class TermData(TypedDict, total=False):
    """A category or tag."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    slug: str
    parent: Id
    description: str
    display: Literal["default", "products", "subcategories", "both"]
    menu_order: Stock


class Address(TypedDict, total=False):
    """Where somebody is billed or shipped to."""

    first_name: str
    last_name: str
    company: str
    address_1: str
    address_2: str
    city: str
    state: str
    postcode: str
    country: str
    email: str
    phone: str


class LineItem(TypedDict, total=False):
    """A product in an order; with the `id` of a line it changes that line, and a quantity of 0 removes it."""

    id: Id
    product_id: Id | None
    variation_id: Id | None
    sku: str | None
    name: str
    quantity: Quantity
    tax_class: str
    subtotal: Amount
    total: Amount
    meta_data: list[Meta]


class ShippingLine(TypedDict, total=False):
    """A way of shipping in an order."""

    id: Id
    method_id: str | None
    method_title: str
    total: Amount
    meta_data: list[Meta]


class FeeLine(TypedDict, total=False):
    """A fee in an order."""

    id: Id
    name: str | None
    tax_class: str
    total: Amount
    meta_data: list[Meta]


class CouponLine(TypedDict):
    """A coupon in an order."""

    code: str


@with_config(_CONFIG)
class OrderData(TypedDict, total=False):
    """An order."""

    status: OrderStatus
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")]
    customer_id: Id
    customer_note: str
    billing: Address
    shipping: Address
    payment_method: str
    payment_method_title: str
    transaction_id: str
    set_paid: bool
    line_items: list[LineItem]
    shipping_lines: list[ShippingLine]
    fee_lines: list[FeeLine]
    coupon_lines: list[CouponLine]
    meta_data: list[Meta]


@with_config(_CONFIG)
class RefundLine(TypedDict, total=False):
    """What of a line of an order is paid back."""

    id: Id
    quantity: Quantity
    refund_total: Amount
    refund_tax: list[RefundTax]


class RefundTax(TypedDict):
    """What of the tax of a line is paid back, by the id of the rate."""

    id: Id
    refund_total: Amount


@with_config(_CONFIG)
class CustomerData(TypedDict, total=False):
    """A customer."""

    email: Email
    first_name: str
    last_name: str
    username: Annotated[str, Field(min_length=1, max_length=60)]
    password: str
    billing: Address
    shipping: Address
    meta_data: list[Meta]


@with_config(_CONFIG)
class CouponData(TypedDict, total=False):
    """A coupon."""

    code: Annotated[str, Field(min_length=1, max_length=100)]
    amount: Amount
    status: ProductStatus
    discount_type: Literal["percent", "fixed_cart", "fixed_product"]
    description: str
    date_expires: str | None
    individual_use: bool
    product_ids: list[Id]
    excluded_product_ids: list[Id]
    usage_limit: Id | None
    usage_limit_per_user: Id | None
    limit_usage_to_x_items: Id | None
    free_shipping: bool
    product_categories: list[Id]
    excluded_product_categories: list[Id]
    exclude_sale_items: bool
    minimum_amount: Amount
    maximum_amount: Amount
    email_restrictions: list[str]
    meta_data: list[Meta]


def checked(shape: Any, data: object, name: str) -> Row:
    """The fields of a record that may be set.

    Args:
        shape: One of the types above.
        data: What a caller gave.
        name: What the error calls it.

    Raises:
        ToolError: A field has a value that it cannot have.
    """
    try:
        made: Row = _adapter(shape).validate_python(data)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join([name, *map(str, problem["loc"])])[:120]
        raise ToolError(f"invalid argument: {where}: {problem['msg'].lower()}, got {echo(problem['input'])}") from None
    return made


def filled(shape: Any, record: Mapping[str, Any], more: Iterable[str] = ()) -> Row:
    """A record that the author of a task gives; a misspelt field is an error here.

    Raises:
        ValueError: The record has a field that there is not.
        ToolError: A field has a value that it cannot have.
    """
    extra = dict.fromkeys(more)
    unknown = record.keys() - shape.__annotations__.keys() - extra.keys()
    if unknown:
        raise ValueError(f"no field is called {sorted(unknown)[0]!r}; there are {', '.join([*shape.__annotations__, *extra])}")
    return checked(shape, record, "record") | {field: record[field] for field in extra if field in record}


def as_amount(value: object, name: str) -> str:
    """An amount of money that is an argument of its own.

    Raises:
        ToolError: It is none.
    """
    try:
        return _amount(value)
    except ValueError as error:
        raise ToolError(f"invalid argument: {name}: {error}, got {echo(value)}") from None


def merge_meta(held: list[Row], given: Iterable[Row]) -> list[Row]:
    """Custom fields after a change: one with the same id or else the same key gets the new value, a null value removes it.

    Raises:
        ToolError: A new field has no key.
    """
    kept = [dict(meta) for meta in held]
    for meta in given:
        name, wanted = ("id", meta["id"]) if meta.get("id") in {field["id"] for field in kept} else ("key", meta.get("key"))
        found = next((field for field in kept if field[name] == wanted), None)
        if found is None and not meta.get("key"):
            raise ToolError("invalid argument: a new item of meta_data needs a key")
        if meta.get("value") is None:
            kept = [field for field in kept if field is not found]
        elif found is not None:
            found.update({"key": meta.get("key", found["key"]), "value": meta["value"]})
        else:
            number = max((field["id"] for field in kept), default=0) + 1
            kept.append({"id": number, "key": meta["key"], "value": meta["value"]})
    return kept


@functools.cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
