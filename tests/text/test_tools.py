from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from typing_extensions import TypedDict

from agentgym import Tool, ToolError, tool
from agentgym.text.tools import check_jsonable, echo, listed, nests_deeper, tools_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict):
    loud: bool


class Box:
    @tool
    def every_type(
        self,
        text: str,
        number: int,
        ratio: float,
        flag: bool,
        mode: Literal["a", "b"],
        colour: Colour,
        names: list[str],
        table: dict[str, int],
        point: Point,
        options: Options,
        note: str | None = None,
        title: str = "none",
    ) -> dict[str, Any]:
        """Take one of each.

        More about it.

        Args:
            text: Any text.
            number: A whole number,
                described on two lines.
        """
        texts = {"note": note, "title": title}
        return {"colour": colour, "point": point, "number": number, "ratio": ratio, **texts}

    @tool(final=True, name="stop")
    def finish(self) -> str:
        """End it."""
        return "over"

    @tool
    def count(self, number: int) -> str:
        """Count."""
        return str(number)

    def hidden(self) -> str:
        return "not a tool"


RIGHT: dict[str, Any] = {
    "text": "t", "number": 1, "ratio": 2, "flag": True, "mode": "a", "colour": "red", "names": ["n"], "table": {"k": 1},
    "point": {"x": 1}, "options": {"loud": False},
}  # fmt: skip


def test_schemas_are_what_a_person_would_write() -> None:
    tools = {name: bound.schema for name, bound in tools_of(Box()).items()}
    assert list(tools) == ["every_type", "stop", "count"]
    nothing = {"type": "object", "properties": {}, "additionalProperties": False}
    assert tools["stop"] == Tool("stop", "End it.", nothing, final=True)
    schema = tools["every_type"]
    assert schema.description == "Take one of each.\nMore about it."
    properties = schema.parameters["properties"]
    assert properties["text"] == {"type": "string", "description": "Any text."}
    meaning = "A whole number,\ndescribed on two lines."
    assert properties["number"] == {"type": "integer", "description": meaning}
    assert properties["ratio"] == {"type": "number"}
    assert properties["flag"] == {"type": "boolean"}
    assert properties["mode"] == {"type": "string", "enum": ["a", "b"]}
    assert properties["names"] == {"type": "array", "items": {"type": "string"}}
    assert properties["table"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert properties["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert properties["title"] == {"type": "string", "default": "none"}, (
        "an argument that is called title keeps its schema"
    )
    assert schema.parameters["$defs"]["Colour"] == {"type": "string", "enum": ["red", "blue"]}
    assert schema.parameters["required"] == list(RIGHT)
    assert schema.to_openai()["function"]["parameters"] == schema.parameters


def test_right_arguments_arrive_as_the_annotated_types() -> None:
    got = tools_of(Box())["every_type"](RIGHT)
    values = {"colour": Colour.RED, "point": Point(1, 0), "number": 1, "ratio": 2.0}
    assert got == {**values, "note": None, "title": "none"}
    assert tools_of(Box())["every_type"]({**RIGHT, "note": "n", "title": "t"})["title"] == "t"


WRONG = [
    ("number", True, "valid integer, got true"),
    ("number", 1.0, "valid integer, got 1.0"),
    ("number", "1", 'valid integer, got "1"'),
    ("number", None, "valid integer, got null"),
    ("ratio", "2", "valid number"),
    ("ratio", False, "valid number"),
    ("flag", 1, "valid boolean"),
    ("flag", "true", "valid boolean"),
    ("text", 3, "valid string"),
    ("mode", "c", "'a' or 'b'"),
    ("colour", "green", "'red' or 'blue'"),
    ("names", "n", "valid array"),
    ("names", [1], "argument 'names.0'"),
    ("table", {"k": "1"}, "argument 'table.k'"),
    ("point", {"x": "1"}, "argument 'point.x'"),
    ("point", [1, 2], "argument 'point'"),
    ("point", {}, "'point.x' is missing"),
    ("options", {"loud": 1}, "argument 'options.loud'"),
]


@pytest.mark.parametrize(("name", "value", "why"), WRONG)
def test_wrong_types_are_named(name: str, value: Any, why: str) -> None:
    with pytest.raises(ToolError) as caught:
        tools_of(Box())["every_type"]({**RIGHT, name: value})
    assert why in str(caught.value)
    assert f"'{name}" in str(caught.value)
    assert str(caught.value).startswith("every_type: ")


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1], {}, math.nan, math.inf])
def test_simple_tools_are_as_strict(value: Any) -> None:
    with pytest.raises(
        ToolError, match="count: argument 'number': input should be a valid integer"
    ):
        tools_of(Box())["count"]({"number": value})
    assert tools_of(Box())["count"]({"number": 10**30}) == str(10**30)


def test_missing_and_unknown_arguments_are_named_with_those_there_are() -> None:
    count = tools_of(Box())["count"]
    with pytest.raises(ToolError, match="count: argument 'number' is missing; arguments: number"):
        count({})
    with pytest.raises(ToolError, match="count: no argument is called 'n'; arguments: number"):
        count({"number": 1, "n": 2})
    with pytest.raises(ToolError, match="stop: no argument is called 'x'; arguments: none"):
        tools_of(Box())["stop"]({"x": 1})


@pytest.mark.parametrize("ratio", [math.nan, math.inf, -math.inf])
def test_numbers_are_finite(ratio: float) -> None:
    with pytest.raises(ToolError, match="ratio"):
        tools_of(Box())["every_type"]({**RIGHT, "ratio": ratio})


class Rates:
    @tool
    def rate(self, class_: str = "standard") -> str:
        """Rate.

        Args:
            class_: Which class.
        """
        return class_


def test_a_keyword_of_python_is_a_parameter_without_the_underscore() -> None:
    bound = tools_of(Rates())["rate"]
    assert bound.schema.parameters["properties"] == {
        "class": {"type": "string", "description": "Which class.", "default": "standard"}
    }
    assert [bound({}), bound({"class": "reduced"})] == ["standard", "reduced"]
    with pytest.raises(ToolError, match="rate: no argument is called 'class_'; arguments: class"):
        bound({"class_": "reduced"})


def test_tools_that_cannot_be_described_are_refused_when_they_are_collected() -> None:
    class NoDocstring:
        @tool
        def act(self, number: int) -> str:
            return ""

    class NoAnnotation:
        @tool
        def act(self, number) -> str:  # type: ignore[no-untyped-def]
            """Act."""
            return ""

    class Starred:
        @tool
        def act(self, *numbers: int) -> str:
            """Act."""
            return ""

    class Mistyped:
        @tool
        def act(self, box: Bxo) -> str:  # type: ignore[name-defined]  # noqa: F821
            """Act."""
            return ""

    class NoSchema:
        @tool
        def act(self, box: Box) -> str:
            """Act."""
            return ""

    owners = (NoDocstring, NoAnnotation, Starred, Mistyped, NoSchema)
    reasons = ("docstring", "annotation", "by name.*numbers", "'Bxo'", "JSON Schema")
    for owner, why in zip(owners, reasons, strict=True):
        with pytest.raises(TypeError, match=f"act .*{why}"):
            tools_of(owner())


@pytest.mark.parametrize(
    "value", [math.nan, [math.inf], "\ud800", {"\ud800": 1}, "\0", b"x", object(), "x" * 300_000]
)
def test_what_json_cannot_carry_is_refused(value: Any) -> None:
    with pytest.raises(ToolError, match="arguments"):
        check_jsonable({"a": value})


def test_what_json_can_carry_passes() -> None:
    check_jsonable(
        {"a": ["\\u0000", "\u2028", "é", "\U0001f600", 10**40, -1.5, None, True, {"b": {}}]}
    )
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(ToolError, match="arguments"):
        check_jsonable(loop)


def test_echoes_are_short() -> None:
    assert echo([1, "a"]) == '[1, "a"]'
    assert len(echo("x" * 10_000)) < 160
    assert "10002 characters" in echo("x" * 10_000)


def test_depth_is_counted_in_linear_time() -> None:
    value: Any = []
    for depth in range(1, 70):
        assert nests_deeper(value, depth - 1)
        assert not nests_deeper(value, depth)
        value = {"a": value} if depth % 2 else [1, value, "x"]
    doubled: Any = [1]
    for _ in range(60):
        doubled = [doubled, doubled]  # following every path would visit 2**60 leaves
    assert nests_deeper(doubled, 60)
    assert not nests_deeper(doubled, 61)
    endless: list[Any] = []
    endless.append(endless)
    assert nests_deeper(endless, 64)
    with pytest.raises(ToolError, match="arguments may nest at most 64 levels deep"):
        check_jsonable({"a": value})


def test_of_very_many_names_the_first_and_their_number_are_told() -> None:
    names = [f"tool_{k}" for k in range(200)]
    shown, _, rest = listed(names).partition(", … ")
    assert shown.split(", ") == names[: shown.count(",") + 1]
    assert len(shown) <= 300 < len(", ".join(names[: shown.count(",") + 2]))
    assert rest == "(200 in all, as the system message says)"
    assert listed(names[:3]) == "tool_0, tool_1, tool_2"
