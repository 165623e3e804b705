"""The interfaces of the published servers, compared with ours.

`<server>.json` has one line per tool, with the parameters and the form of a result. In a JSON tree,
`key?` is optional, `<key>` represents any key, `a|null` may be null, `[x]` is a list of x, and `[]`
a list of anything. `<server>.txt` contains the calls to compare, in the format of `recorded/`. `<server>.toml`
lists the intended differences with their reasons; docs/loca_servers.md is generated from this file.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Difference:
    """An intended difference from a published tool. Keys and values are given as paths, such as
    `emails[].thread`.

    Attributes:
        because: The reason, as one sentence for the documentation.
        disabled: Whether every call is refused, because the account lacks the feature.
        added: Keys that occur only in our results.
        lacking: Keys that occur only in the published results.
        types: Values whose types differ.
        params: Parameters that differ or that only our tool has.
        empty: Lists that are always empty in our results.
    """

    because: str = ""
    disabled: bool = False
    added: Sequence[str] = ()
    lacking: Sequence[str] = ()
    types: Sequence[str] = ()
    params: Sequence[str] = ()
    empty: Sequence[str] = ()


def facts(server: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((FOLDER / f"{server}.json").read_text(encoding="utf-8"))
    return read


def differences(server: str) -> Mapping[str, Difference]:
    file = FOLDER / f"{server}.toml"
    read = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {tool: Difference(**fields) for tool, fields in read.items()}


class Shape:
    """Comparison of results with a tree of keys and types, by path.

    Attributes:
        added: Keys that the tree lacks.
        lacking: Keys that a result lacks.
        types: Values whose types differ, each with the actual type.
        empty: Empty lists.
    """

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self.added: set[str] = set()
        self.lacking: set[str] = set()
        self.types: dict[str, Any] = {}
        self._lists: set[str] = set()
        self._filled: set[str] = set()

    @property
    def empty(self) -> set[str]:
        return self._lists - self._filled

    def compare(self, answer: Any) -> None:
        self._compare(answer, self._tree, "")

    def _compare(self, value: Any, tree: Any, path: str) -> None:
        if isinstance(tree, dict) and "any of" in tree:
            self._compare_alternatives(value, tree["any of"], path)
        elif isinstance(tree, dict) and isinstance(value, dict):
            self._compare_keys(value, tree, path)
        elif isinstance(tree, list) and isinstance(value, list):
            if tree:
                self._lists.add(path)
                if value:
                    self._filled.add(path)
                for item in value:
                    self._compare(item, tree[0], f"{path}[]")
        elif not isinstance(tree, str) or not set(type_names(value)) & set(tree.split("|")):
            self.types[path] = value

    def _compare_alternatives(self, value: Any, trees: list[Any], path: str) -> None:
        shapes = [Shape(tree) for tree in trees]
        for shape in shapes:
            shape._compare(value, shape._tree, path)
        best = min(shapes, key=lambda shape: len(shape.types) + len(shape.lacking | shape.added))
        self.added |= best.added
        self.lacking |= best.lacking
        self.types |= best.types

    def _compare_keys(self, value: dict[str, Any], tree: dict[str, Any], path: str) -> None:
        optional = {key.removesuffix("?"): key.endswith("?") for key in tree}
        dot = f"{path}." if path else ""
        for name in [name for name in tree if name.startswith("<")]:
            for key in value.keys() - optional.keys():
                self._compare(value[key], tree[name], dot + name)
            return
        self.added |= {dot + key for key in value.keys() - optional.keys()}
        self.lacking |= {
            dot + key for key, free in optional.items() if not free and key not in value
        }
        for key, free in optional.items():
            if key in value:
                self._compare(value[key], tree[f"{key}?" if free else key], dot + key)


def type_names(value: Any) -> tuple[str, ...]:
    if value is None:
        return ("null",)
    if isinstance(value, bool):
        return ("boolean",)
    names = {str: ("string",), int: ("integer", "number"), float: ("number",)}
    return names.get(type(value), (type(value).__name__,))
