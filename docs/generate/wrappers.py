"""Generate an index and a page for each wrapper: oracles, context strategies, adapters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import agentgym
from agentgym import Message, ToolCall, oracles, render, wrappers
from agentgym.oracles import TeamPolicy
from agentgym.text.requirements import MissingRequirement
from generate.episodes import SEED, Played, play, script
from generate.markup import arguments_table, chat_block, describe, index_page, table


@dataclass(frozen=True, slots=True)
class Excerpt:
    """An excerpt of a chat on a wrapper's page.

    Attributes:
        turns: The number of replies that precede the excerpt.
        replies: The policy's replies; by default those of the oracle policy.
        newest: The number of newest messages to show; by default all except the system message.
        show_info: The `info` key to show with the excerpt.
    """

    world: str
    turns: int
    options: Mapping[str, Any]
    replies: tuple[str, ...] = ()
    newest: int = 0
    show_info: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Contents of a wrapper's page, besides the wrapper's docstring."""

    wrapper: type[Any]
    group: str
    use: str
    excerpts: tuple[Excerpt, ...] = ()
    note: str = ""


_LIST = {"items": 6, "removals": 3}
_TREE = {"nodes": 40}
_CODE = (
    "for name in ('main.py', 'util.py'):\n"
    "    try:\n"
    "        print(name, len(read_document(name)), 'characters')\n"
    "    except ToolError as error:\n"
    "        print(name, error)"
)
_NOTE = {"command": "create", "path": "/memories/notes.md", "file_text": "Popped so far: 12."}


def _context(name: str, window: int, **arguments: Any) -> dict[str, Any]:
    return {"context": name, "window": window, "context_options": {name: arguments}}


# The public wrappers, with their pages. A test checks that this table is complete.
PAGES = (
    Page(
        oracles.PlanOracle,
        "Oracles",
        'oracles="P"',
        tuple(
            Excerpt("ListWorld", 1, {**_LIST, "oracles": arm}, newest=1)
            for arm in ("P", "P_", "P0")
        ),
        "`P_` asks for a placebo, `P0` for wrong hints, `P0.5` for hints that are right with this "
        "probability.",
    ),
    Page(
        oracles.StateOracle,
        "Oracles",
        'oracles="S"',
        (Excerpt("ListWorld", 1, {**_LIST, "oracles": "S"}, newest=1),),
        "`S_` asks for a placebo, `S0` for wrong hints, `S0.9` for hints that are right with this "
        "probability.",
    ),
    Page(
        oracles.HistoryOracle,
        "Oracles",
        'oracles="SH"',
        (Excerpt("ListWorld", 2, {**_LIST, "oracles": "SH"}),),
        "H needs S.",
    ),
    Page(
        oracles.CommunicationOracle,
        "Oracles",
        'oracles="C"',
        (Excerpt("ListWorld-team", 3, {**_LIST, "oracles": "C"}, newest=1),),
        "It is for teams.",
    ),
    Page(
        oracles.InContextExamples,
        "Oracles",
        "shots=1",
        (Excerpt("ListWorld", 0, {**_LIST, "shots": 1, "oracles": "P"}),),
    ),
    Page(
        oracles.StepOptimality,
        "Oracles",
        "labels=True",
        (
            Excerpt(
                "ListWorld",
                1,
                {**_LIST, "labels": True},
                (render(ToolCall("pop", {"id": 5})),),
                show_info="optimal",
            ),
        ),
    ),
    Page(
        wrappers.ClearToolResults,
        "Context strategies",
        'context="clear_results"',
        (
            Excerpt(
                "TreeWorld",
                6,
                {**_TREE, **_context("clear_results", 1_500, keep=2, trigger={"tokens": 900})},
            ),
        ),
    ),
    Page(
        wrappers.ClearThinking,
        "Context strategies",
        'context="clear_thinking"',
        (
            Excerpt(
                "ListWorld",
                2,
                {**_LIST, "context": "clear_thinking"},
                tuple(
                    f"<think>This is the thought number {k}.</think>\n{render(ToolCall('pop', {'id': k}))}"
                    for k in (0, 1)
                ),
            ),
        ),
    ),
    Page(
        wrappers.Compaction,
        "Context strategies",
        'context="compaction"',
        (
            Excerpt(
                "TreeWorld",
                6,
                {**_TREE, **_context("compaction", 1_500, trigger={"turns": 6})},
                newest=1,
            ),
            Excerpt(
                "TreeWorld", 8, {**_TREE, **_context("compaction", 1_500, trigger={"turns": 6})}
            ),
        ),
    ),
    Page(
        wrappers.ContextAwareness,
        "Context strategies",
        'context="awareness"',
        (Excerpt("ListWorld", 2, {**_LIST, "context": "awareness", "window": 2_000}),),
    ),
    Page(
        wrappers.MemoryTool,
        "Context strategies",
        'context="memory"',
        (
            Excerpt(
                "ListWorld",
                2,
                {**_LIST, "context": "memory"},
                (
                    render(ToolCall("memory", _NOTE)),
                    render(ToolCall("memory", {"command": "view", "path": "/memories"})),
                ),
            ),
        ),
    ),
    Page(
        wrappers.ProgrammaticTools,
        "Context strategies",
        'context="programmatic"',
        (
            Excerpt(
                "CodeWorld",
                1,
                {"context": "programmatic"},
                (render(ToolCall("run_python", {"code": _CODE})),),
            ),
        ),
    ),
    Page(
        wrappers.Retrieval,
        "Context strategies",
        'context="retrieval"',
        (
            Excerpt(
                "TreeWorld",
                9,
                {**_TREE, **_context("retrieval", 1_500, trigger={"turns": 6}, keep=2)},
            ),
        ),
    ),
    Page(
        wrappers.Trim,
        "Context strategies",
        "window=1_000",
        (Excerpt("TreeWorld", 9, {**_TREE, "window": 1_000}),),
        "Every stack with a window has it.",
    ),
    Page(wrappers.EditMessages, "Context strategies", "EditMessages(env, function)"),
    Page(wrappers.DiscreteActions, "Adapters", "DiscreteActions(env)"),
    Page(wrappers.FeatureObservations, "Adapters", "FeatureObservations(DiscreteActions(env))"),
)


def wrapper_pages() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        yield f"wrappers/{page.wrapper.__name__}.md", wrapper_page(page)
    text = (
        "What stands between a world and a policy. How they stack, and in which order: "
        "[oracles](../oracles.md), [why an oracle helps](../arms.md), "
        "[context strategies](../context.md).\n"
    )
    for group in dict.fromkeys(page.group for page in PAGES):
        rows = [
            (
                f"[{page.wrapper.__name__}]({page.wrapper.__name__}.md)",
                f"`{page.use}`",
                " ".join(describe(page.wrapper).partition("\n\n")[0].split()),
            )
            for page in PAGES
            if page.group == group
        ]
        text += f"\n## {group}\n\n{table(('wrapper', 'asked for by', 'what it does'), rows)}"
    yield (
        "wrappers/index.md",
        index_page("Wrappers", text, [page.wrapper.__name__ for page in PAGES]),
    )


def wrapper_page(page: Page) -> str:
    name, module = page.wrapper.__name__, page.wrapper.__module__
    public = "agentgym.oracles" if module.startswith("agentgym.oracles") else "agentgym.wrappers"
    parts = [
        f"# {name}",
        describe(page.wrapper),
        f"Ask for it with `{page.use}`. {page.note}".strip(),
        f"`from {public} import {name}`; source: "
        + " ".join((__import__(module, fromlist=[name]).__doc__ or "").split()),
        "## Arguments",
        arguments_table(page.wrapper),
    ]
    if page.excerpts:
        parts += ["## In a chat", *map(_excerpt, page.excerpts)]
    return "\n\n".join(parts) + "\n"


def _excerpt(excerpt: Excerpt) -> str:
    options = ", ".join(f"{name}={value!r}" for name, value in excerpt.options.items())
    call = f'agentgym.make("{excerpt.world}", {options})'
    policy: Any = None
    if excerpt.replies:
        policy = script(*excerpt.replies)
    elif excerpt.world.endswith("-team"):
        policy = TeamPolicy(excerpt.world)
    played = play(excerpt.world, policy, excerpt.turns, **excerpt.options)
    if isinstance(played, MissingRequirement):
        return f"`{call}` was not played when this page was built: {played}"
    lead = f"`{call}`, seed {SEED}, after {excerpt.turns or 'no'} repl{'y' if excerpt.turns == 1 else 'ies'}"
    return f"{lead}:\n\n{chat_block(_shown(excerpt, played), limit=700)}" + _accounts(
        excerpt, played
    )


def _shown(excerpt: Excerpt, played: Played) -> list[Message | str]:
    messages = [m for m in played.chats[-1].messages if m.role != "system"]
    left_out = len(messages) - excerpt.newest if excerpt.newest else 0
    note = (
        f"{left_out} earlier messages and the system message" if left_out else "The system message"
    )
    return [f"{note}.", *messages[left_out:]]


def _accounts(excerpt: Excerpt, played: Played) -> str:
    if excerpt.show_info:
        alive = played.info["alive"]
        return f'\n`info["{excerpt.show_info}"]` is {played.info[excerpt.show_info]}, `info["alive"]` is {alive}.\n'
    record = played.info.get("context")
    if record is None:
        return ""
    return (
        f'\n`info["context"]`: {record.tokens} tokens shown, of which {record.reused} are as before; '
        f"{record.appended} appended, {record.removed} removed, {record.inserted} inserted.\n"
    )


def exported_wrappers() -> set[str]:
    bases = {"HintOracle", "ContextWrapper"}
    return {
        name
        for package in (oracles, wrappers)
        for name in package.__all__
        if isinstance(kind := getattr(package, name), type)
        and issubclass(kind, agentgym.play.env.gymnasium.Wrapper)
        and name not in bases
    }
