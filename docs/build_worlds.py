"""Write docs/worlds.md from the registry: each world with its presets and a table of its options.

`make docs` runs this script, and a test compares the committed page with its output.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import agentgym
from agentgym.assemble.registry import Entry
from agentgym.world.config import Option, list_options

HEAD = """# Worlds and their options

<!-- Written by `make docs`; edit the docstrings and annotations of the worlds in its place. -->

The options are keyword arguments of `agentgym.make` and `gymnasium.make`. Bounds are inclusive; a
value of another type is refused (`True` is not 1, and `1.0` is no `int`), but an `int` will do for
a `float`. `agentgym.config_schema("ListWorld")` returns the same as JSON Schema.
"""

ROW = "| {} | {} | {} | {} | {} |\n"


def page() -> str:
    entries = sorted(agentgym.worlds(presets=True), key=lambda entry: entry.world.__name__)
    sections = groupby(entries, key=lambda entry: entry.world)
    return "\n".join([HEAD, *(section(world, list(presets)) for world, presets in sections)])


def section(world: type[Any], entries: list[Entry]) -> str:
    plain, *presets = entries
    shown = [f"`{short(entry)}` ({write(entry.options)})" for entry in presets]
    text = f"## {world.__name__}\n\n`{plain.id}`: {plain.summary}\n\n"
    if shown:
        text += f"Presets: {', '.join(shown)}.\n\n"
    return text + options_table(world)


def options_table(world: type[Any]) -> str:
    head = ROW.format("option", "type", "default", "bounds", "meaning") + ROW.format(*["---"] * 5)
    names = [name for cls in world.Config.__mro__ for name in vars(cls).get("__annotations__", ())]
    options = sorted(list_options(world.Config), key=lambda option: names.index(option.name))
    return head + "".join(map(row, options))


def row(option: Option) -> str:
    meaning = option.meaning.replace("|", "\\|")
    default = f"`{option.default!r}`"
    return ROW.format(f"`{option.name}`", option.type, default, option.bounds, meaning)


def short(entry: Entry) -> str:
    return entry.id.removeprefix("agentgym/").removesuffix("-v0")


def write(options: Any) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in options.items())


if __name__ == "__main__":
    Path(__file__).with_name("worlds.md").write_text(page(), encoding="utf-8")
