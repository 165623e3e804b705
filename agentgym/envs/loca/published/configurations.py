"""Convert LOCA-bench's published configurations into worlds, options and seeds."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agentgym.envs.loca.published.files import read_json
from agentgym.envs.loca.records import Fields


@dataclass(frozen=True)
class PublishedRun:
    """World id, options and seed of one published configuration.

    With these options and this seed, agentgym draws a different state with the same proportions.
    """

    world: str
    options: Fields
    seed: int


@dataclass(frozen=True)
class _Configuration:
    env_class: str
    env_params: dict[str, bool | int | float | str | None]


@dataclass(frozen=True)
class _File:
    configurations: list[_Configuration]


def read_configurations(path: str | Path) -> Sequence[PublishedRun]:
    """Read a configuration file of LOCA-bench, such as `final_8k_set_config.json`.

    Raise ValueError, naming the file, the configuration and the parameter, if the file has another
    format or sets a parameter that agentgym does not have.
    """
    file = read_json(Path(path), TypeAdapter(_File))
    runs = []
    for number, each in enumerate(file.configurations):
        try:
            runs.append(_convert(each))
        except ValueError as error:
            raise ValueError(f"{path}: configurations.{number}.{error}") from None
    return runs


def _convert(configuration: _Configuration) -> PublishedRun:
    task = configuration.env_class.rpartition(".")[2].removesuffix("S2LEnv")
    if task not in _tasks():
        raise ValueError(
            f"env_class must end with a task name and S2LEnv, got {configuration.env_class!r}; "
            f"the tasks are {', '.join(_tasks())}"
        )
    table = _tasks()[task]
    params = {**table["defaults"], **configuration.env_params}
    for name, value in table.get("fixed", {}).items():
        if params.pop(name, value) != value:
            raise ValueError(f"env_params.{name} must be {value!r}, the only supported value")
    seed = params.pop("seed", None)
    if type(seed) is not int:
        raise ValueError(f"env_params.seed must be an integer, got {seed!r}")
    unknown = params.keys() - table["defaults"].keys() - {"verbose", *table["without"]}
    if unknown:
        raise ValueError(f"env_params contains unknown names: {', '.join(sorted(unknown))}")
    for name, most in table.get("most", {}).items():
        if not str(params[name]).isdecimal():
            raise ValueError(f"env_params.{name} must be a number, got {params[name]!r}")
        params[name] = min(most, int(params[name]))
    options = {name: _value(text, params) for name, text in table["options"].items()}
    return PublishedRun(f"agentgym/{task}-v0", options, seed)


@functools.cache
def _tasks() -> Fields:
    return tomllib.loads(Path(__file__).with_name("tasks.toml").read_text(encoding="utf-8"))


def _value(text: str, params: Fields) -> Any:
    """Evaluate a parameter name, or a sum or product of parameter names and integers."""
    if text.isdecimal():
        return int(text)
    for sign, combine in ((" + ", sum), (" * ", math.prod)):
        if sign in text:
            return combine(_value(part, params) for part in text.split(sign))
    return params[text]
