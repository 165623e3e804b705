"""Tools: methods that a policy calls by name."""

from __future__ import annotations

import copy
import functools
import inspect
import json
import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, NotRequired, TypeVar, get_type_hints, overload

import msgspec
from pydantic_core import ValidationError, to_jsonable_python

# Maximum JSON length of a call's arguments; every file of a task is shorter.
MAX_CALL_CHARS = 262_144

# Maximum nesting depth, far below the recursion limit of JSON decoders.
MAX_DEPTH = 64

# Errors stay in the context, so long values are quoted only in part.
_ECHO_CHARS = 120
_LISTED_CHARS = 300
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

MethodT = TypeVar("MethodT", bound=Callable[..., Any])
ResultT = TypeVar("ResultT")


class ToolError(Exception):
    """Error for a rejected call, shown as `error: …`; the world must be unchanged."""


class HostLimitError(ToolError):
    """Error for a call whose process the host killed; the episode becomes invalid."""


class RollbackError(Exception):
    """Error for a failed call whose effects could not be undone."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Schema of a tool; a successful call of a `final` tool ends the episode."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    final: bool = False

    def to_openai(self) -> dict[str, Any]:
        """Return the tool as a chat-completions function tool."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


@overload
def tool(method: MethodT) -> MethodT: ...
@overload
def tool(*, final: bool = False, name: str | None = None) -> Callable[[MethodT], MethodT]: ...
def tool(
    method: MethodT | None = None, *, final: bool = False, name: str | None = None
) -> MethodT | Callable[[MethodT], MethodT]:
    """Offer a method to the policy.

    The method needs a Google-style docstring with an `Args:` section and type annotations: `str`,
    `int`, `float`, `bool`, `Literal`, an enum, `list`, `dict`, `Optional`, a dataclass or a
    `TypedDict`. The method returns text, `Content` or JSON-able data, and raises `ToolError` before
    changing anything. A parameter `class_` is offered as `class`.

    Args:
        method: The method, if the decorator is used without parentheses.
        final: Whether a successful call ends the episode.
        name: The tool's name; by default the method's name.
    """

    def mark(function: MethodT) -> MethodT:
        function.__agentgym_tool__ = (name or function.__name__, final)  # type: ignore[attr-defined]
        return function

    return mark if method is None else mark(method)


def tool_with_schema(schema: Tool, method: MethodT) -> MethodT:
    """Offer a method with a given schema; its arguments are not validated."""
    method.__agentgym_tool__ = (schema.name, schema.final)  # type: ignore[attr-defined]
    method.__agentgym_schema__ = schema  # type: ignore[attr-defined]
    return method


class Toolset:
    """Tools mounted on an env in addition to the world's tools.

    Attributes:
        requirements: The host requirements (`agentgym.text.requirements`).
        episode_state: The names of the attributes that snapshots save.
        tool_order: The names of all tools in listing order; by default, tools in definition order,
            followed by the parts' tools.
        parts: Objects with further `@tool` methods, which keep all their state in the toolset.
        renamed: New names for some tools.
        json_indent: The indentation of data in results; None for one line.
    """

    requirements: ClassVar[Mapping[str, str]] = MappingProxyType({})
    json_indent: ClassVar[int | None] = None
    episode_state: ClassVar[tuple[str, ...]] = ()
    tool_order: ClassVar[tuple[str, ...]] = ()
    parts: Sequence[object] = ()
    renamed: Mapping[str, str] = MappingProxyType({})

    def begin(self) -> None:
        """Prepare for an episode; called at each reset."""

    def close(self) -> None:
        """Release external resources, which a later call may acquire again."""

    def transaction(self) -> AbstractContextManager[None] | None:
        """Return a context manager that restores the episode's state after an exception.

        The context manager raises `RollbackError` if it cannot restore the state. Return None
        if a rejected call never changes the state.
        """
        return None


class BoundTool(msgspec.Struct, eq=False):
    """Tool of one object."""

    schema: Tool
    checks: _ArgumentCheck
    method: Callable[..., Any]
    owner: object
    json_indent: int | None = None
    transaction: Callable[[], AbstractContextManager[None] | None] | None = None

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        return self.run(arguments, lambda result, indent: result)

    def run(
        self, arguments: Mapping[str, Any], convert: Callable[[Any, int | None], ResultT]
    ) -> ResultT:
        """Run the method; raise ToolError for bad arguments. Undo the call if `convert` fails."""
        try:
            checked = self.checks.validate(arguments)
        except ValidationError as error:
            raise ToolError(self.checks.explain(error)) from None
        transaction = self.transaction() if self.transaction else None
        if transaction is None:
            return convert(self.method(**checked), self.json_indent)
        with transaction:
            return convert(self.method(**checked), self.json_indent)

    @property
    def restores(self) -> bool:
        return self.transaction is not None and self.transaction() is not None


class _ArgumentCheck:
    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        from agentgym.text.schemas import strict_adapter  # noqa: PLC0415 - see its docstring

        adapter = strict_adapter(name, fields)
        self.schema = _without_titles(adapter.json_schema())
        self._name = name
        self._names = ", ".join(fields) or "none"
        # In strict mode, pydantic builds enums and dataclasses only from JSON.
        validator = adapter.validator
        self.validate: Callable[[Any], dict[str, Any]] = validator.validate_python
        if "$defs" in self.schema:
            self.validate = lambda arguments: validator.validate_json(json.dumps(arguments))
        if keywords := [field for field in fields if keyword.iskeyword(field)]:
            self.validate = _with_underscores(self.validate, keywords)

    def under(self, name: str) -> _ArgumentCheck:
        other = copy.copy(self)
        other._name = name
        return other

    def explain(self, error: ValidationError) -> str:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in problem["loc"])[:_ECHO_CHARS]
        known = f"; arguments: {self._names}" if len(problem["loc"]) == 1 else ""
        if problem["type"] == "missing":
            return f"{self._name}: argument '{where}' is missing{known}"
        if problem["type"] == "extra_forbidden":
            return f"{self._name}: no argument is called '{where}'{known}"
        message = problem["msg"][0].lower() + problem["msg"][1:]
        return f"{self._name}: argument '{where}': {message}, got {echo(problem['input'])}"


class _NoCheck(_ArgumentCheck):
    def __init__(self, name: str) -> None:
        self._name = name
        self.validate = dict


def _with_underscores(
    validate: Callable[[Any], dict[str, Any]], keywords: Sequence[str]
) -> Callable[[Any], dict[str, Any]]:
    def validate_and_rename(arguments: Any) -> dict[str, Any]:
        renamed = {}
        for name, value in validate(arguments).items():
            renamed[f"{name}_" if name in keywords else name] = value
        return renamed

    return validate_and_rename


def echo(value: object) -> str:
    """Return a value as JSON text, shortened for an error message."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= _ECHO_CHARS else f"{text[:_ECHO_CHARS]}… ({len(text)} characters)"


def first_paragraph(docstring: str | None) -> str:
    """Return a docstring's summary as one line."""
    return " ".join((docstring or "").strip().split("\n\n", 1)[0].split())


def listed(names: Iterable[str]) -> str:
    """Join names with commas, shortening very long lists."""
    text = ", ".join(names)
    if len(text) <= _LISTED_CHARS:
        return text
    return (
        f"{text[:_LISTED_CHARS].rpartition(',')[0]}, … ({text.count(',') + 1} in all, as the "
        "system message says)"
    )


def nests_deeper(value: object, levels: int) -> bool:
    """Report whether lists and dicts are nested more than `levels` deep."""
    layer = [value]
    for _ in range(levels):
        nested: dict[int, object] = {}  # keyed by object id, to visit shared values only once
        for item in layer:
            children = item.values() if isinstance(item, dict) else item
            if isinstance(item, (dict, list, tuple)):
                nested |= {id(child): child for child in children}  # type: ignore[attr-defined]
        if not nested:
            return False
        layer = list(nested.values())
    return any(isinstance(item, (dict, list, tuple)) for item in layer)


def check_jsonable(arguments: Mapping[str, Any]) -> None:
    """Raise `ToolError` if arguments are too large or not JSON."""
    if nests_deeper(arguments, MAX_DEPTH):
        raise ToolError(f"arguments may nest at most {MAX_DEPTH} levels deep")
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        raise ToolError(
            "arguments must be valid JSON, without NaN, Infinity and lone surrogates"
        ) from None
    if len(text) > MAX_CALL_CHARS:
        raise ToolError(f"arguments may have at most {MAX_CALL_CHARS} characters, got {len(text)}")
    if _NUL.search(text):
        raise ToolError("arguments must not contain the NUL character")


def tools_of(*owners: Any) -> dict[str, BoundTool]:
    """Return the tools of objects and their parts, in listing order."""
    tools: dict[str, BoundTool] = {}
    for owner in owners:
        tools.update(_tools_of_one(owner))
    return tools


def _tools_of_one(owner: Any) -> dict[str, BoundTool]:
    tools: dict[str, BoundTool] = {}
    if not isinstance(owner, Toolset):
        for name, schema, checks in _class_tools(owner.__class__):
            tools[schema.name] = BoundTool(schema, checks, getattr(owner, name), owner)
        return tools
    parts = (owner, *owner.parts)
    classes = tuple(part.__class__ for part in parts)
    composed = _composed_tools(classes, owner.tool_order, tuple(owner.renamed.items()))
    indent, transaction = owner.json_indent, owner.transaction
    for k, name, schema, checks in composed:
        method = getattr(parts[k], name)
        tools[schema.name] = BoundTool(schema, checks, method, owner, indent, transaction)
    return tools


@functools.cache
def _composed_tools(
    owners: tuple[type, ...], order: tuple[str, ...], renamed: tuple[tuple[str, str], ...]
) -> tuple[tuple[int, str, Tool, _ArgumentCheck], ...]:
    tools: dict[str, tuple[int, str, Tool, _ArgumentCheck]] = {}
    new_names = dict(renamed)
    for k, part in enumerate(owners):
        for attribute, schema, checks in _class_tools(part):
            if schema.name in tools:
                raise TypeError(
                    f"{owners[0].__qualname__} has two tools named {schema.name}; remove or "
                    "rename one"
                )
            if new := new_names.get(schema.name):
                tools[schema.name] = (k, attribute, replace(schema, name=new), checks.under(new))
            else:
                tools[schema.name] = (k, attribute, schema, checks)
    if order and set(order) != tools.keys():
        raise TypeError(
            f"tool_order of {owners[0].__qualname__} must list each tool; missing or unknown: "
            f"{sorted(set(order) ^ tools.keys())}"
        )
    return tuple(tools[name] for name in order or tools)


@functools.cache
def _class_tools(owner: Any) -> tuple[tuple[str, Tool, _ArgumentCheck], ...]:
    tools: dict[str, tuple[str, Tool, _ArgumentCheck]] = {}
    for cls in reversed(owner.__mro__):
        for name in vars(cls):
            method = getattr(owner, name)
            if name not in tools and hasattr(method, "__agentgym_tool__"):
                tools[name] = (name, *_describe(method))
    return tuple(tools.values())


def _describe(method: Callable[..., Any]) -> tuple[Tool, _ArgumentCheck]:
    from pydantic import PydanticUserError  # noqa: PLC0415 - see `agentgym.text.schemas`

    from agentgym.text.schemas import read_docstring  # noqa: PLC0415 - see its docstring

    name, final = method.__agentgym_tool__  # type: ignore[attr-defined]
    if ready := getattr(method, "__agentgym_schema__", None):
        return ready, _NoCheck(name)
    document = read_docstring(inspect.getdoc(method) or "")
    description = "\n".join(filter(None, [document.short_description, document.long_description]))
    if not description:
        raise TypeError(f"the tool {method.__qualname__} needs a docstring, which the policy reads")
    texts = {parameter.arg_name: parameter.description or "" for parameter in document.params}
    try:
        hints = get_type_hints(method, include_extras=True)
    except NameError as error:
        raise TypeError(f"the tool {method.__qualname__} has an annotation: {error}") from error
    parameters = list(inspect.signature(method).parameters.values())[1:]
    fields = {_public_name(p.name): _field(method, p, hints, texts) for p in parameters}
    try:
        checks = _ArgumentCheck(name, fields)
    except PydanticUserError as error:
        raise TypeError(
            f"the tool {method.__qualname__} has an annotation without a JSON Schema: {error}"
        ) from error
    for parameter in parameters:
        if parameter.default is not parameter.empty and parameter.default is not None:
            shown = checks.schema["properties"][_public_name(parameter.name)]
            shown["default"] = to_jsonable_python(parameter.default)
    return Tool(name, description, checks.schema, final), checks


def _public_name(name: str) -> str:
    plain = name.removesuffix("_")
    return plain if keyword.iskeyword(plain) else name


def _field(
    method: Callable[..., Any],
    parameter: inspect.Parameter,
    hints: Mapping[str, Any],
    texts: Mapping[str, str],
) -> Any:
    from agentgym.text.schemas import described  # noqa: PLC0415 - see its docstring

    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(
            f"the tool {method.__qualname__} must take its arguments by name, unlike "
            f"'{parameter.name}'"
        )
    if parameter.name not in hints:
        raise TypeError(
            f"the tool {method.__qualname__} needs a type annotation for its argument "
            f"'{parameter.name}'"
        )
    annotated = described(hints[parameter.name], texts.get(parameter.name, ""))
    return annotated if parameter.default is parameter.empty else NotRequired[annotated]


def _without_titles(schema: Any) -> Any:
    # Schemas may have a property named `title`, which must stay.
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    untitled: dict[str, Any] = {}
    for key, item in schema.items():
        if key in ("properties", "$defs"):
            untitled[key] = {name: _without_titles(value) for name, value in item.items()}
        elif key != "title":
            untitled[key] = _without_titles(item)
    return untitled
