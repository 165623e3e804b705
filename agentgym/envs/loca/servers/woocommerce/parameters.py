"""Parameters of tools that take a record: any object, with a schema that describes its main fields.

The records themselves are checked by `shapes.validate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import TypeAdapter, WithJsonSchema

from agentgym.envs.loca.servers.store import Row
from agentgym.envs.loca.servers.woocommerce.shapes import (
    CouponData,
    CustomerData,
    OrderData,
    ProductData,
    RefundLine,
    TermData,
)


def _schema_of(shape: Any, required: Sequence[str] = ()) -> WithJsonSchema:
    """Return the JSON Schema of a record with those fields that have a description.

    The other fields are accepted too; a prompt that described them all would be twice as long.
    """
    schema = TypeAdapter(shape).json_schema()
    described = _described(schema, schema.get("$defs", {})) | {"required": list(required)}
    return WithJsonSchema({key: value for key, value in described.items() if value})


def _described(schema: Row, definitions: Row) -> Row:
    """Return a schema without references, null, limits of values, and what has no description."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[-1]] | schema
    schema = next(iter(schema.get("anyOf", ())), {}) | schema
    fields = {
        name: _described(field, definitions) | {"description": field["description"]}
        for name, field in schema.get("properties", {}).items()
        if "description" in field
    }
    told = {key: schema[key] for key in ("type", "enum") if key in schema}
    if "items" in schema:
        told["items"] = _described(schema["items"], definitions)
    return told | ({"properties": fields} if fields else {})


NewProduct = Annotated[dict[str, Any], _schema_of(ProductData)]
NewCategory = Annotated[dict[str, Any], _schema_of(TermData, ["name"])]
NewOrder = Annotated[dict[str, Any], _schema_of(OrderData)]
NewCustomer = Annotated[dict[str, Any], _schema_of(CustomerData)]
NewCoupon = Annotated[dict[str, Any], _schema_of(CouponData, ["code", "amount", "discount_type"])]
RefundedLine = Annotated[dict[str, Any], _schema_of(RefundLine)]
ChangedRecord = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {"type": "object", "properties": {"id": {"type": "integer", "description": "Id"}}}
    ),
]
"""A record of a batch that is updated."""
