"""Generate a page for each world."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import build_audit
import build_worlds

import agentgym
from agentgym import Message, World
from agentgym.assemble.registry import Entry
from agentgym.envs.loca.task import OfficeTask
from agentgym.office.office import SERVERS, server_class
from agentgym.text.requirements import MissingRequirement
from agentgym.text.tools import tools_of
from agentgym.world.turn_budget import TurnBudget
from generate.episodes import SEED, Played, play
from generate.markup import (
    board_block,
    chat_block,
    cut,
    describe,
    raw_html,
    table,
    tools_table,
)

# maximum number of turns that a page shows
_SHOWN = 2


def world_pages() -> Iterator[tuple[str, str]]:
    entries = sorted(agentgym.worlds(presets=True), key=lambda entry: entry.world.__name__)
    audits = build_audit.read_page()
    worlds = {world: list(presets) for world, presets in groupby(entries, lambda e: e.world)}
    for world, presets in worlds.items():
        audit = audits.get(world.__name__)
        yield f"worlds/{world.__name__}.md", world_page(world, presets, audit)


def world_page(world: type[Any], entries: list[Entry], audit: tuple[str, str] | None) -> str:
    played = play(entries[0].id)
    plain, *presets = entries
    shown = [(f"`{entry.id}`", build_worlds.write(entry.options)) for entry in [plain, *presets]]
    parts = [
        f"# {world.__name__}",
        f"`{plain.id}`",
        describe(world),
        "## An episode",
        _episode(played),
        "## Tools",
        _tools(world, played),
        "## Options",
        build_worlds.options_table(world),
        "`agentgym.make` takes further options, which are those of [every env](../worlds.md#options-of-every-env).",
        "## Score and end",
        _ending(world, played),
        "## Presets",
        table(("id", "options"), shown),
        "## Audit",
        _audit(world, audit),
        "## Source",
        _source(world),
    ]
    return "\n\n".join(parts) + "\n"


def _episode(played: Played | MissingRequirement) -> str:
    if isinstance(played, MissingRequirement):
        return f"Not played when this page was built: {played}"
    *_, last = played.chats
    opening = [m for m in played.chats[0].messages if m.role != "system"]
    first = last.messages[1 + len(opening) :]
    ends = [k for k, m in enumerate(first) if m.role == "assistant"] + [len(first)]
    rules = cut(played.env.unwrapped.world.rules().strip(), 800)
    parts: list[Message | str] = [
        Message("system", rules),
        "The schemas of the tools, and the form of calls, stand here.",
        *opening,
        *first[: ends[min(_SHOWN, len(ends) - 1)]],
    ]
    left_out = len(ends) - 1 - _SHOWN - 1
    if left_out > 0:
        parts.append(f"{left_out} more turns.")
    if left_out >= 0:
        parts += first[ends[-2] :]
    turns, budget = played.info["turn"], played.env.unwrapped.world.max_turns
    text = (
        f"The oracle's policy with seed {SEED} and default options: score {played.reward:g} after "
        f"{turns} of {budget} turns. Long messages are cut.\n\n{chat_block(parts)}"
    )
    return text + _boards(played)


def _boards(played: Played) -> str:
    if not played.boards[0]:
        return ""
    last = len(played.boards) - 1
    moments = sorted({0, last // 2, last})
    captions = [(f"turn {k}", played.boards[k]) for k in moments]
    return (
        "\nThe board, as `agentgym play` and `render` draw it for people (no model sees it):\n\n"
        + board_block(captions)
    )


def _tools(world: type[Any], played: Played | MissingRequirement) -> str:
    if issubclass(world, OfficeTask):
        rows = []
        for name in SERVERS:
            if name in world.servers:
                count = len(tools_of(server_class(name)()))
                rows.append((f"[`{name}`](../servers/{name}.md)", str(count)))
        return "The tools of these servers:\n\n" + table(("server", "tools"), rows)
    if isinstance(played, MissingRequirement):
        return f"Not listed when this page was built: {played}"
    return tools_table(played.chats[0].tools)


def _ending(world: type[Any], played: Played | MissingRequirement) -> str:
    lines = [inspect.getdoc(world.score) or ""]
    if not isinstance(played, MissingRequirement):
        final = [f"`{tool.name}`" for tool in played.chats[0].tools if tool.final]
        if final:
            lines.append(f"A call of {' or '.join(final)} ends the episode.")
    if issubclass(world.Config, TurnBudget):
        lines.append(
            "The episode is truncated after `ceil(budget_factor * T*) + budget_slack` turns, "
            "where an optimal policy needs `T*`."
        )
    if world.max_failed_rounds is not None:
        lines.append(
            f"So it is at the failed round number {world.max_failed_rounds} in a row "
            "(`max_failed_rounds`)."
        )
    if world.report is not World.report:
        report = " ".join((inspect.getdoc(world.report) or "").split())
        lines.append(f'`info["detail"].report` at the end: {report}')
    return "\n\n".join(lines)


def _audit(world: type[Any], audit: tuple[str, str] | None) -> str:
    command = f"`agentgym audit {world.__name__}`"
    if audit is None:
        return f"Not in [the audit](../audit.md) yet; {command} runs it."
    title, _, rest = audit[1].partition("\n")
    scores = raw_html("<details><summary>Each policy</summary>")
    return (
        f"Audit: {title.partition(': ')[2]} ([how to read it](../audit.md); "
        f"{command}).\n\n{scores}\n{rest.strip()}\n\n{raw_html('</details>')}"
    )


def _source(world: type[Any]) -> str:
    title, page = build_worlds.PAPERS[build_worlds.folder_of(world)]
    sentence = " ".join((sys.modules[world.__module__].__doc__ or "").split())
    return (
        f"{sentence}\n\n[{title}: tables, figures and differences](../{page}). "
        f"The module is `{world.__module__}`."
    )
