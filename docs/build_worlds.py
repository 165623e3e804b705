"""Write docs/worlds.md from the registry: the worlds of each paper and their options."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import agentgym
from agentgym.assemble.registry import Entry
from agentgym.envs.loca.task import OfficeTask
from agentgym.world.config import Option, list_options

HEAD = """# Worlds and options

<!-- Written by `make docs`; edit docs/build_worlds.py, and the docstrings and annotations of the worlds. -->

Each world has a page with an example episode, tools, options, score and presets. `agentgym list` prints the worlds;
`agentgym list grid` and `agentgym list --all` add presets and teams with their options.
"""

OPTIONS = """
## Options of every env

Options are keyword arguments of `agentgym.make` and `gymnasium.make`.

| option | meaning |
|---|---|
| `dialect` | how calls are written: `auto`, `json` or `python` |
| `parallel_calls` | whether one reply may contain several calls |
| `max_failed_rounds` | failed replies in a row that end the episode; `None` for no limit |
| `max_result_chars` | maximum length of a tool result; the model is told what was cut |
| `on_fault` | `report` or `raise` unexpected exceptions of a tool |
| `render_mode` | Gymnasium's render mode |
| `split` | `"train"` or `"test"`, which never share an instance ([details](splits.md)) |

Every world has `budget_factor` m and `budget_slack` n, which set its turn budget to `ceil(m * T*) + n`, where `T*` is the
number of turns of an optimal policy. Presets range from two turns to more than two thousand, such as
`agentgym/ListWorld-easy-v0` and `agentgym/ListWorld-extreme-v0`.

Text written by a model never makes `step` raise, hang, or change state on error ([robustness](robustness.md)).
`agentgym audit ID` measures the scores of policies that skip the task ([results for every world](audit.md)).

## Options of each world

Bounds are inclusive, and values of another type are rejected, except an `int` for a `float`.
`agentgym.config_schema("ListWorld")` returns the options as a JSON Schema.

Each office task has the presets `-8k`, `-16k`, `-32k`, `-64k`, `-96k`, `-128k` and `-256k`, which set
`length`. For example, `ABTesting-8k` is `length=8000`.
"""

# Title and page of each folder of worlds.
PAPERS = {
    "lumina": ("LUMINA", "papers/lumina.md"),
    "lore": ("LORE (TaskWeaver)", "papers/lore.md"),
    "agentlongbench": ("AgentLongBench", "papers/agentlongbench.md"),
    "gsm_agent": ("GSM-Agent", "papers/gsm_agent.md"),
    "loca": ("LOCA-bench", "papers/loca.md"),
    "games": ("Games", "games.md"),
}

TOCTREE = """
```{toctree}
:hidden:
:glob:

worlds/*
```
"""

ROW = "| {} | {} | {} | {} | {} |\n"


def page() -> str:
    entries = sorted(agentgym.worlds(presets=True), key=lambda entry: entry.world.__name__)
    sections = [(world, list(some)) for world, some in groupby(entries, lambda entry: entry.world)]
    papers = [
        paper(folder, [presets[0] for world, presets in sections if folder_of(world) == folder])
        for folder in PAPERS
    ]
    options = [section(world, presets) for world, presets in sections]
    return "\n".join([HEAD, *papers]) + "\n".join([OPTIONS, *options]) + TOCTREE


def paper(folder: str, entries: list[Entry]) -> str:
    title, page = PAPERS[folder]
    lines = [f"## [{title}]({page})", "", "| id | task |", "| --- | --- |"]
    for entry in entries:
        lines.append(f"| [`{entry.id}`](#{entry.world.__name__.lower()}) | {entry.summary} |")
    return "\n".join(lines) + "\n"


def folder_of(world: type[Any]) -> str:
    return world.__module__.removeprefix("agentgym.envs.").partition(".")[0]


def section(world: type[Any], entries: list[Entry]) -> str:
    _, *presets = entries
    shown = [f"`{short(entry)}` ({write(entry.options)})" for entry in presets]
    text = f"### {world.__name__}\n\n"
    # OPTIONS lists the presets of all office tasks.
    if shown and not issubclass(world, OfficeTask):
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
