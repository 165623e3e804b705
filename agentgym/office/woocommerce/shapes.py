"""Records from callers: fields, validation and tool parameter schemas.

The REST API's read-only fields (`price`, `date_created`, `total` …) are ignored, so callers may
send back a record as read.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
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

_MAX_AMOUNT = 10**9  # keeps order totals in cents far below 64 bits

# Accept numbers for text, as the REST API does for prices.
_CONFIG = ConfigDict(extra="ignore", coerce_numbers_to_str=True, allow_inf_nan=False)

_ECHO_CHARS = 120  # callers choose the length of a path into a record


def _amount(value: object) -> str:
    """Normalise an amount to at most two decimals; an empty text stays empty."""
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
        raise ValueError(f"an amount is from 0 to {_MAX_AMOUNT}")
    number = abs(number)  # -0 is 0
    if not -2 <= int(number.as_tuple().exponent) <= 0:
        number = number.quantize(Decimal("0.01"), ROUND_HALF_UP)
    return format(number, "f")


Amount = Annotated[str, BeforeValidator(_amount)]
Id = Annotated[int, Field(ge=0, lt=2**63)]  # SQLite's integers
Stock = Annotated[int, Field(ge=-(10**9), le=10**9)]  # backorders make it negative
ProductStatus = Literal["publish", "draft", "private", "pending"]
ProductType = Literal["simple", "grouped", "external", "variable"]


class Meta(TypedDict, total=False):
    """A custom field."""

    id: Id
    key: Annotated[str, Field(description="Name")]
    value: Annotated[Any, Field(description="Value"), WithJsonSchema({"type": "string"})]


class Term(TypedDict):
    """A category or tag of a product."""

    id: Annotated[Id, Field(description="Id")]


class Dimensions(TypedDict, total=False):
    """The size of a product."""

    length: str
    width: str
    height: str


class ProductImage(TypedDict, total=False):
    """A product picture."""

    id: Id
    src: Annotated[str, Field(description="URL of the picture")]
    name: str
    alt: Annotated[str, Field(description="Alternative text")]


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

    name: Annotated[str, Field(description="Name")]
    slug: str
    type: Annotated[ProductType, Field(description="Kind of product")]
    status: Annotated[ProductStatus, Field(description="Visibility in the shop")]
    featured: Annotated[bool, Field(description="Show among the featured products")]
    catalog_visibility: Annotated[
        Literal["visible", "catalog", "search", "hidden"],
        Field(description="Where customers find it"),
    ]
    description: Annotated[str, Field(description="Long description, HTML allowed")]
    short_description: Annotated[str, Field(description="Short description")]
    sku: Annotated[str, Field(max_length=100, description="Stock keeping unit, unique")]
    regular_price: Annotated[Amount, Field(description="Price such as 12.50")]
    sale_price: Annotated[Amount, Field(description="Reduced price")]
    date_on_sale_from: str | None
    date_on_sale_to: str | None
    virtual: bool
    downloadable: bool
    tax_status: Literal["taxable", "shipping", "none"]
    tax_class: str
    manage_stock: Annotated[bool, Field(description="Track the stock")]
    stock_quantity: Annotated[
        Stock | None, Field(description="Quantity in stock, with manage_stock")
    ]
    stock_status: Literal["instock", "outofstock", "onbackorder"]
    backorders: Literal["no", "notify", "yes"]
    low_stock_amount: Stock | None
    sold_individually: bool
    weight: str
    dimensions: Dimensions
    reviews_allowed: bool
    purchase_note: str
    categories: Annotated[list[Term], Field(description="Categories by id")]
    tags: list[Term]
    images: Annotated[list[ProductImage], Field(description="Pictures")]
    attributes: list[Attribute]
    default_attributes: list[Attribute]
    menu_order: Stock
    meta_data: list[Meta]


@with_config(_CONFIG)
class TermData(TypedDict, total=False):
    """A category or tag."""

    name: Annotated[str, Field(min_length=1, max_length=200, description="Name")]
    slug: Annotated[str, Field(description="Name in addresses")]
    parent: Annotated[Id, Field(description="Id of the category above")]
    description: Annotated[str, Field(description="Description")]
    display: Annotated[
        Literal["default", "products", "subcategories", "both"],
        Field(description="What its page shows"),
    ]
    menu_order: Stock
    menuOrder: Annotated[Stock, Field(description="Place in the list")]
    image: Annotated[ProductImage, Field(description="Picture")]


def validate(shape: Any, data: object, name: str, required: Sequence[str] = ()) -> Row:
    """Return a record's settable fields, or raise `ToolError` with its name."""
    try:
        fields: Row = _adapter(shape).validate_python(data)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        path = ".".join([name, *map(str, problem["loc"])])[:_ECHO_CHARS]
        raise ToolError(
            f"invalid argument: {path}: {problem['msg'].lower()}, got {echo(problem['input'])}"
        ) from None
    missing = [field for field in required if field not in fields]
    if missing:
        raise ToolError(f"invalid argument: {name}.{missing[0]} is missing")
    return fields


def parse_amount(value: object, name: str) -> str:
    """Convert an amount that is an argument by itself, or raise `ToolError`."""
    try:
        return _amount(value)
    except ValueError as error:
        raise ToolError(f"invalid argument: {name}: {error}, got {echo(value)}") from None


@functools.cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def schema_of(shape: Any, required: Sequence[str] = ()) -> WithJsonSchema:
    """Return a record's JSON Schema with described fields only; all would double the prompt."""
    schema = TypeAdapter(shape).json_schema()
    described = _described(schema, schema.get("$defs", {})) | {"required": list(required)}
    return WithJsonSchema({key: value for key, value in described.items() if value})


def _described(schema: Row, definitions: Row) -> Row:
    """Simplify a schema: no references, null, value limits or undescribed fields."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[-1]] | schema
    schema = next(iter(schema.get("anyOf", ())), {}) | schema
    fields = {}
    for name, field in schema.get("properties", {}).items():
        if "description" in field:
            fields[name] = {
                **_described(field, definitions),
                "description": field["description"],
            }
    simple = {key: schema[key] for key in ("type", "enum") if key in schema}
    if "items" in schema:
        simple["items"] = _described(schema["items"], definitions)
    if fields:
        simple["properties"] = fields
    return simple


NewProduct = Annotated[dict[str, Any], schema_of(ProductData)]
NewCategory = Annotated[dict[str, Any], schema_of(TermData, ["name"])]
ChangedRecord = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {"type": "object", "properties": {"id": {"type": "integer", "description": "Id"}}}
    ),
]
"""A batch record to update."""
