from __future__ import annotations

import copy
import json
import math
import pickle
import random
import re
import runpy
from collections.abc import Iterator, Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

import agentgym
from agentgym import Config, World, config_schema
from agentgym.world.config import Choice, Option, Share, json_schema, list_options, make_config

ROOT = Path(__file__).parents[2]
WORLDS = [pytest.param(entry.world, id=entry.id) for entry in agentgym.worlds()]

# Options with a maximum that depends on another option, computed from the configuration drawn so
# far.
AT_MOST = {
    "removals": lambda config: config["items"],
    "revealed": lambda config: config["nodes"],
    "distance": lambda config: 2 * (config["size"] - 1),
    "min_arity": lambda config: config["max_arity"],
    "email_rate": lambda config: 0.3,
    "no_exam_rate": lambda config: 0.3,
    "exemption_rate": lambda config: 0.3,
}
# Options on which others depend, or whose valid values are not described by bounds.
FIXED = {"setting", "search_by", "data", "counter"}
FIXED |= {"row", "verified"}  # these need data


@dataclass(frozen=True, kw_only=True)
class InnerConfig(Config):
    depth: int = 1


@dataclass(frozen=True, kw_only=True)
class ToyConfig(Config):
    """Options of a toy.

    Attributes:
        size: The size,
            described on two lines.
        colour: The colour.
    """

    size: Annotated[int, Field(ge=1, le=9)] = 3
    colour: Literal["red", "blue"] = "red"
    speed: Annotated[float, Field(gt=0.0)] | None = None
    step: Annotated[int, Choice((1, 2))] = 1
    shares: Mapping[str, Share] = field(default_factory=dict)
    names: tuple[str, ...] = ("a",)
    inner: InnerConfig = field(default_factory=InnerConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step > self.size:
            raise ValueError("step must be at most size")


def parts(option: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(option.get("anyOf", [option]))


def draw(rng: random.Random, option: Mapping[str, Any]) -> Any:
    part = rng.choice(parts(option))
    if "enum" in part:
        return rng.choice(part["enum"])
    if part["type"] == "integer":
        return rng.randint(part["minimum"], min(part["maximum"], part["minimum"] + 20))
    if part["type"] == "number":
        return rng.uniform(part["minimum"], min(part["maximum"], part["minimum"] + 1))
    return {"boolean": rng.random() < 0.5, "null": None}[part["type"]]


def draw_config(rng: random.Random, properties: Mapping[str, Any]) -> dict[str, Any]:
    config = {name: draw(rng, option) for name, option in properties.items() if name not in FIXED}
    for name, most in AT_MOST.items():
        if config.get(name) is not None:
            config[name] = min(config[name], most(config))
    return config


def beyond(part: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    for bound, away in (("minimum", -1), ("maximum", 1)):
        if bound in part:
            value = part[bound]
            outside = math.nextafter(value, away * math.inf)
            yield value + away if part["type"] == "integer" else outside, str(value)


@pytest.mark.parametrize("world", WORLDS)
def test_small_values_within_the_bounds_make_a_configuration(world: type[World[Any]]) -> None:
    rng = random.Random(0)
    properties = json_schema(world.Config)["properties"]
    for _ in range(25):
        options = draw_config(rng, properties)
        config = make_config(world, options)
        assert asdict(config).items() >= options.items()
        assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config
        assert replace(config) == config
        assert hash(replace(config)) == hash(config)
        assert make_config(world, json.loads(json.dumps(options))) == config


@pytest.mark.parametrize("world", WORLDS)
def test_values_next_to_a_bound_are_refused_with_option_bound_and_value(
    world: type[World[Any]],
) -> None:
    for name, option in json_schema(world.Config)["properties"].items():
        for value, bound in (pair for part in parts(option) for pair in beyond(part)):
            if value in parts(option)[0].get("enum", ()):
                continue
            with pytest.raises(ValueError, match=f"^{name} must be ") as caught:
                make_config(world, {name: value})
            assert bound in str(caught.value).partition(", got ")[0]
            assert str(caught.value).endswith(f", got {value!r}")
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("world", WORLDS)
def test_values_of_another_type_are_refused(world: type[World[Any]]) -> None:
    wrong: Mapping[str, tuple[Any, ...]] = {
        "integer": (True, "2", 2.0, math.nan, [2]),
        "number": (True, "0.5", math.nan, math.inf, [0.5]),
        "boolean": (1, 0, "True", None),
        "string": (1, True, "no such value", None),
    }
    for name, option in json_schema(world.Config)["properties"].items():
        kinds = {part["type"] for part in parts(option)}
        free = option.get("type") == "string" and "enum" not in option
        for value in wrong.get((kinds - {"null"}).pop(), ()):
            if not (free and isinstance(value, str)):
                with pytest.raises(ValueError, match=f"^{name} must be .*, got "):
                    make_config(world, {name: value})


@pytest.mark.parametrize("world", WORLDS)
def test_every_option_has_a_meaning_and_every_number_has_bounds(world: type[World[Any]]) -> None:
    options = list_options(world.Config)
    assert [option.name for option in options] == [item.name for item in fields(world.Config)]
    for option in options:
        assert option.meaning.endswith("."), option
        assert option.bounds or not {"int", "float"} & set(option.type.split()), option


def test_every_preset_is_a_configuration() -> None:
    env_options = {"dialect", "parallel_calls", "max_failed_rounds"}
    for entry in agentgym.worlds(presets=True):
        options = {name: value for name, value in entry.options.items() if name not in env_options}
        assert asdict(make_config(entry.world, options)).items() >= options.items(), entry.id


def test_a_schema_has_bounds_defaults_and_descriptions() -> None:
    schema = config_schema("ListWorld-easy")
    assert schema["additionalProperties"] is False
    assert schema["properties"]["items"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 10_000,
        "default": 4,
        "description": "The length of the initial list.",
    }
    assert config_schema("agentgym/ListWorld-v0")["properties"]["items"]["default"] == 10
    with pytest.raises(ValueError, match="there is no world 'NoWorld'"):
        config_schema("NoWorld")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 10}, "size must be an integer in [1, 9], got 10"),
        ({"colour": "green"}, "colour must be one of red, blue, got 'green'"),
        ({"speed": 0}, "speed must be a number in (0.0, inf), got 0"),
        ({"speed": math.inf}, "speed must be a number in (0.0, inf), got inf"),
        ({"step": True}, "step must be one of 1, 2, got True"),
        ({"step": 1.0}, "step must be one of 1, 2, got 1.0"),
        (
            {"shares": {"a": 2.0}},
            "shares must be a mapping with each value a number in [0.0, 1.0], got {'a': 2.0}",
        ),
        ({"names": ["a"]}, "names must be a tuple with each value a text, got ['a']"),
        ({"inner": 3}, "inner must be of type InnerConfig, got 3"),
        ({"size": 1, "step": 2}, "step must be at most size"),
    ],
)
def test_an_error_names_option_bounds_and_value(options: dict[str, Any], message: str) -> None:
    whole = f"^{re.escape(message)}$"
    with pytest.raises(ValueError, match=whole):
        ToyConfig(**options)
    with pytest.raises(ValueError, match=whole):
        replace(ToyConfig(), **options)


def test_a_configuration_is_a_frozen_dataclass_that_keeps_its_values() -> None:
    config = ToyConfig(speed=1, shares={"a": 0.5})
    assert (config.speed, config.shares) == (1, {"a": 0.5})
    with pytest.raises(FrozenInstanceError):
        config.size = 4  # type: ignore[misc]
    with pytest.raises(TypeError, match="sice"):
        ToyConfig(sice=4)  # type: ignore[call-arg]
    assert json_schema(ToyConfig)["required"] == []
    size, _, speed, *_ = list_options(ToyConfig)
    assert size == Option("size", "int", 3, "[1, 9]", "The size, described on two lines.")
    assert speed == Option("speed", "float or None", None, "(0.0, inf)", "")


def test_a_world_may_have_a_plain_dataclass() -> None:
    @dataclass(frozen=True)
    class Plain:
        highest: int
        label: str = "x"

    class PlainWorld(World[Plain]):
        Config = Plain

    assert make_config(PlainWorld, {"highest": 3}) == Plain(3)
    with pytest.raises(ValueError, match="PlainWorld has no option 'low'; options: highest, label"):
        make_config(PlainWorld, {"low": 3})


def test_the_page_of_worlds_is_what_the_registry_says() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "build_worlds.py"))["page"]()
    committed = (ROOT / "docs" / "worlds.md").read_text(encoding="utf-8")
    assert committed == page, "run `make docs`"
