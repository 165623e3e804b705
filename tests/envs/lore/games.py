"""LORE tasks and calls for the tests."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agentgym import Content, ToolCall, render
from agentgym.envs.lore import PAPER
from agentgym.envs.lore.code_world import CodeWorld
from agentgym.envs.lore.document_world import DocumentWorld
from agentgym.envs.lore.multimodal_world import MultimodalWorld
from agentgym.envs.lore.programs import PROGRAMS
from tests.envs.lore.code_solver import CodeSolver
from tests.envs.lore.lore_solver import Solver
from tests.envs.lore.picture_solver import kinds, read_turned

BOTH = ["standard", "hard"]
LORE: dict[str, Any] = {
    "DocumentWorld": DocumentWorld,
    "MultimodalWorld": MultimodalWorld,
    "CodeWorld": CodeWorld,
}
SOLVERS: dict[str, Any] = {
    "DocumentWorld": Solver,
    "MultimodalWorld": Solver,
    "CodeWorld": CodeSolver,
}
LOSSLESS = r"mirrored|by (90|180|270) degrees|^Picture:"  # changes that keep every pixel


def read(file: str) -> ToolCall:
    return ToolCall("read_document", {"file_id": file})


def submit(value: str) -> ToolCall:
    return ToolCall("submit", {"value": value})


def reply(*calls: ToolCall) -> str:
    return "\n".join(map(render, calls))


def default(env_id: str, seed: int, operators: Sequence[str] = (), **options: Any) -> Any:
    """Return a task. In CodeWorld, `operators` restricts the operators."""
    config = LORE[env_id].Config
    if operators:
        chosen = dict.fromkeys(BOTH, tuple(map(PROGRAMS.__getitem__, operators)))
        config = type("Config", (config,), {"operators_of": chosen})
    world = LORE[env_id](config(**options), seed)
    world.generate()
    return world


def generated(env_id: str, seed: int, **options: Any) -> Any:
    """Return a task without irrelevant documents, so that every reading order is optimal."""
    if env_id == "CodeWorld":
        return default(env_id, seed, **options)
    return default(env_id, seed, **{**PAPER, "distractor_documents": 0.0, **options})


def told_of(world: Any, done: set[int]) -> set[int]:
    """Return the unread documents with known ids after the documents in `done` have been read."""
    nodes = world.graph.nodes
    if isinstance(world, CodeWorld):
        return {0, *(child for uid in done for child in nodes[uid].children)} - done
    behind = {node.uid for node in nodes if node.children and done.issuperset(node.children)}
    return (set(world.graph.start) | behind) - done


def longest_chain(graph: Any) -> int:
    @functools.cache
    def below_node(uid: int) -> int:
        return max((1 + below_node(child) for child in graph.nodes[uid].children), default=0)

    for uid in reversed(range(len(graph.nodes))):
        below_node(uid)
    return below_node(0)


def pictured(world: Any, kind: str) -> list[tuple[Any, Content]]:
    shown = [(node, world.show(node)) for node in world.graph.nodes if node.kind == kind]
    return [(node, content) for node, content in shown if isinstance(content, Content)]


def tools(world: Any, file: str) -> Callable[[str, dict[str, Any]], np.ndarray[Any, Any]]:
    def change(name: str, arguments: dict[str, Any]) -> np.ndarray[Any, Any]:
        pixels: np.ndarray[Any, Any] = getattr(world, name)(file, **arguments).images[0].to_array()
        return pixels

    return change


def shown(world: Any, file: str) -> str:
    """Return a document as text, with pictures replaced by the facts that they show."""
    content = world.read_document(file)
    text, _, words = str(content).partition("\nPicture")
    if isinstance(content, Content):
        text, words = content.text, content.images[0].alt
    if not words:
        return text
    if counted := re.match(r"(v\d+) is how many (\w+)( \w+)?s? the picture shows\.", text):
        found = Counter(re.findall(r"\w+ \w+(?= at)", words))
        if isinstance(content, Content):
            found = kinds(content.images[0].to_array())
        wanted = f"{counted[2]}{counted[3] or ''}"
        count = found.total() if wanted == "objects" else found[wanted.removesuffix("s")]
        return f"{counted[1]} = {count}.{text[counted.end() :]}"
    expression = words.rpartition(": ")[2].removesuffix(".")
    if isinstance(content, Content) and re.search(LOSSLESS, words):
        assert read_turned(content.images[0].to_array(), tools(world, file)) == expression
    prefix = text.split("'")[1].partition("%")[0]
    return f"Open the document called '{prefix}%X' next, where X is the value of {expression}. So."
