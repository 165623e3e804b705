"""Configurations, whose fields define validation, errors and JSON Schemas."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

# pydantic's type for bounds, because `pydantic.Field` is slow to import
from annotated_types import Interval
from pydantic_core import ValidationError, core_schema, to_jsonable_python

from agentgym.text.validation import list_names, parse_count
from agentgym.world.world import World

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

_adapters: dict[type[Any], TypeAdapter[dict[str, Any]]] = {}

Share = Annotated[float, Interval(ge=0.0, le=1.0)]

# NumPy's legacy generator accepts only 32-bit seeds.
Seed = Annotated[int, Interval(ge=0, le=2**32 - 1)]

# An env runs at most 128 calls per reply (`agentgym.play.env.MAX_CALLS`).
CallsPerTurn = Annotated[int, Interval(ge=1, le=128)]


class Config:
    """Base class for frozen dataclasses that validate fields against annotations.

    Declare bounds as in pydantic, describe each option under `Attributes:`, and override
    `__post_init__` to check several options together. Invalid values raise ValueError.

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class GuessConfig(Config):
        ...     highest: Annotated[int, Field(ge=1, le=1_000)] = 10
    """

    def __post_init__(self) -> None:
        try:
            values = _adapter(type(self)).validator.validate_python(vars(self))
        except ValidationError as error:
            name = str(error.errors(include_url=False, include_input=False)[0]["loc"][0])
            expected = _describe(json_schema(type(self))["properties"][name])
            raise ValueError(f"{name} must be {expected}, got {vars(self)[name]!r}") from None
        for name, value in values.items():
            # `TokenCount` accepts strings.
            if type(value) is int and isinstance(vars(self)[name], str):
                object.__setattr__(self, name, value)


@dataclass(frozen=True)
class TokenCount:
    """Annotation for a number of tokens, which may also be a string such as `8k`."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_read_tokens, handler(source))


def _read_tokens(value: Any) -> Any:
    return parse_count("it", value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Choice:
    """Annotation for an option with listed values; unlike `Literal`, it rejects True for 1."""

    values: Collection[Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.chain_schema(
            [handler(source), core_schema.literal_schema(list(self.values))]
        )

    def __get_pydantic_json_schema__(
        self, schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class Option:
    """A row of an option table; `bounds` may be empty."""

    name: str
    type: str
    default: Any
    bounds: str
    meaning: str


def make_config(
    world: type[World[Any]], options: Mapping[str, Any], others: Collection[str] = ()
) -> Any:
    """Create a world's configuration, or raise ValueError."""
    known = [field.name for field in fields(world.Config)]
    if unknown := [name for name in options if name not in known]:
        raise ValueError(
            f"{world.__name__} has no option {unknown[0]!r}; "
            f"{list_names(unknown[0], known, 'options', (*known, *others))}"
        )
    return world.Config(**options)


def json_schema(config: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a dataclass."""
    schema = _adapter(config).json_schema()
    meanings = _read_meanings(config)
    required = []
    for field in fields(config):
        option = schema["properties"][field.name]
        option.pop("title", None)
        if field.name in meanings:
            option["description"] = meanings[field.name]
        if field.default is not MISSING:
            option["default"] = to_jsonable_python(field.default)
        elif field.default_factory is not MISSING:
            option["default"] = to_jsonable_python(field.default_factory())
        else:
            required.append(field.name)
    return {**schema, "required": required}


def list_options(config: type[Any]) -> list[Option]:
    """Return the options of a configuration in field order."""
    options = []
    for name, schema in json_schema(config)["properties"].items():
        kinds = schema.get("anyOf", (schema,))
        types = dict.fromkeys(_TYPES.get(kind.get("type"), "any") for kind in kinds)
        bounds = "; ".join(filter(None, map(_bounds, kinds)))
        default, meaning = schema.get("default"), schema.get("description", "")
        options.append(Option(name, " or ".join(types), default, bounds, meaning))
    return options


def _adapter(config: type[Any]) -> TypeAdapter[dict[str, Any]]:
    if config not in _adapters:
        from agentgym.text.schemas import strict_adapter  # noqa: PLC0415 - see its docstring

        hints = get_type_hints(config, include_extras=True)
        types = {field.name: hints[field.name] for field in fields(config)}
        _adapters[config] = strict_adapter(config.__name__, types)
    return _adapters[config]


def _read_meanings(config: type[Any]) -> dict[str, str]:
    from agentgym.text.schemas import read_docstring  # noqa: PLC0415 - see its docstring

    meanings = {}
    for cls in reversed(config.__mro__):
        for item in read_docstring(cls.__doc__ or "").params:
            if item.args[0] == "attribute":
                meanings[item.arg_name] = " ".join((item.description or "").split())
    return meanings


_TYPES: Mapping[Any, str] = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "string": "str",
    "array": "tuple",
    "object": "dict",
    "null": "None",
}
_NOUNS = {
    "integer": "an integer",
    "number": "a number",
    "string": "a text",
    "array": "a tuple",
    "object": "a mapping",
}


def _bounds(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    member = schema.get("items") or schema.get("additionalProperties")
    if isinstance(member, dict):
        return f"each {bounds}" if (bounds := _bounds(member)) else ""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None and high is None:
        return ""
    left = "[" if "minimum" in schema else "("
    right = "]" if "maximum" in schema else ")"
    return f"{left}{'-inf' if low is None else low}, {'inf' if high is None else high}{right}"


def _describe(schema: Mapping[str, Any]) -> str:
    texts = []
    for kind in schema.get("anyOf", (schema,)):
        member = kind.get("items") or kind.get("additionalProperties")
        reference = kind.get("$ref", "").rpartition("/")[2]
        noun = _NOUNS.get(kind.get("type", ""), f"of type {reference}")
        if "enum" in kind or "const" in kind:
            texts.append(f"one of {_bounds(kind)}")
        elif isinstance(member, dict):
            texts.append(f"{noun} with each value {_describe(member)}")
        elif kind.get("type") == "boolean":
            texts.append("True or False")
        elif kind.get("type") != "null":
            bounds = _bounds(kind)
            texts.append(f"{noun} in {bounds}" if bounds else noun)
    return " or ".join(texts)
