"""Records that callers pass to tools: fields, validation and parameter schemas.

Read-only fields such as `price` are ignored, so callers may send records that a tool returned.
"""

from __future__ import annotations

import functools
import json
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    with_config,
)
from typing_extensions import TypedDict

from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo

_MAX_AMOUNT = 10**9  # keeps order totals in cents far below 2**63

# Accept numbers in place of strings, as the REST API does for prices.
_CONFIG = ConfigDict(extra="ignore", coerce_numbers_to_str=True, allow_inf_nan=False)

_ECHO_CHARS = 120  # maximum length of a field path in errors


def _amount(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError('an amount must look like "12.50"')
    text = str(value).strip()
    if not text:
        return ""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError('an amount must look like "12.50"') from None
    if not number.is_finite() or not 0 <= number <= _MAX_AMOUNT:
        raise ValueError(f"an amount must be between 0 and {_MAX_AMOUNT}")
    number = abs(number)  # avoids -0
    if not -2 <= int(number.as_tuple().exponent) <= 0:
        number = number.quantize(Decimal("0.01"), ROUND_HALF_UP)
    return format(number, "f")


Amount = Annotated[str, BeforeValidator(_amount)]
Id = Annotated[int, Field(ge=0, lt=2**63)]  # the range of SQLite's integers
Stock = Annotated[int, Field(ge=-(10**9), le=10**9)]  # backorders make it negative
ProductStatus = Literal["publish", "draft", "private", "pending"]
ProductType = Literal["simple", "grouped", "external", "variable"]


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


class ProductImage(TypedDict, total=False):
    """A product picture."""

    id: Id
    src: str
    name: str
    alt: str


class Attribute(TypedDict, total=False):
    """A product attribute, or the option that a variation chooses."""

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
    type: ProductType
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
    images: list[ProductImage]
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
    menuOrder: Stock
    image: ProductImage


def validate(shape: Any, data: object, name: str) -> Row:
    """Return the settable fields of a record, or raise `ToolError`."""
    try:
        fields: Row = _adapter(shape).validate_python(data)
        return fields
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        path = ".".join([name, *map(str, problem["loc"])])[:_ECHO_CHARS]
        raise ToolError(
            f"invalid argument: {path}: {problem['msg'].lower()}, got {echo(problem['input'])}"
        ) from None


def parse_amount(value: object, name: str) -> str:
    """Validate and normalise an amount of money."""
    try:
        return _amount(value)
    except ValueError as error:
        raise ToolError(f"invalid argument: {name}: {error}, got {echo(value)}") from None


@functools.cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


# Tool schemas show only these fields; all fields would double the prompt.
_SCHEMAS = json.loads(Path(__file__).with_name("record_schemas.json").read_text(encoding="utf-8"))

NewProduct = Annotated[dict[str, Any], WithJsonSchema(_SCHEMAS["product"])]
NewCategory = Annotated[dict[str, Any], WithJsonSchema(_SCHEMAS["category"])]
ChangedRecord = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {"type": "object", "properties": {"id": {"type": "integer", "description": "Id"}}}
    ),
]
"""A batch record to update."""
