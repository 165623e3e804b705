"""Completion of names in the shell (`agentgym --install-completion`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentgym.oracles import ARMS
from agentgym.registry import teams, worlds
from agentgym.stacks import strategies


def complete(names: Callable[[], Iterable[str]], joints: str = "") -> Callable[[str], list[str]]:
    """Return a function that completes names in the shell.

    Args:
        names: Lists the names when they are asked for.
        joints: The characters that join several names; the last of them is completed.
    """

    def matches(incomplete: str) -> list[str]:
        start = max((incomplete.rfind(joint) + 1 for joint in joints), default=0)
        head, tail = incomplete[:start], incomplete[start:].casefold()
        return [head + name for name in names() if name.casefold().startswith(tail)]

    return matches


def _world_names() -> Iterable[str]:
    for entry in (*worlds(presets=True), *teams()):
        yield entry.id.rpartition("/")[2].removesuffix("-v0")


complete_world = complete(_world_names)
complete_worlds = complete(_world_names, ",")
complete_oracles = complete(lambda: [arm or "none" for arm in ARMS], ",")
complete_context = complete(lambda: ("none", *strategies()), ",+")
