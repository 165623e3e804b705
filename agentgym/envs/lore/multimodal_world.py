"""MultimodalWorld: documents in whose pictures values are counted and rules read (TaskWeaver,
section 3 and appendix B.2).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, cast

from agentgym.config import Share
from agentgym.envs.lore.bottom_up import Births, grow_bottom_up
from agentgym.envs.lore.config import PRESETS
from agentgym.envs.lore.document_world import DocumentConfig, DocumentWorld
from agentgym.envs.lore.graph import Graph, Node, Operator, Value, among, below
from agentgym.envs.lore.knowledge import Knowledge
from agentgym.envs.lore.operators import BY_NAME, STANDARD
from agentgym.envs.lore.pictures import (
    COLOURS,
    SHAPES,
    Step,
    Thing,
    change,
    describe,
    draw_distortion,
    draw_expression,
    draw_scene,
    others,
    scatter,
)
from agentgym.envs.lore.records import Facts, Records, read_document, write_values
from agentgym.messages import Content, Image, ToolCall, pillow
from agentgym.registry import register
from agentgym.tools import ToolError, echo, tool

MOST_COUNTED = 12
"""A picture shows so many of what is to be counted at most; and up to 18 other things, in hard
tasks.
"""
NEUTRAL_CHANGES = 3
"""So many changes of the picture of one document do no harm to a label; what comes after them is
redundant.
"""
MOST_CHANGES = 16
"""So many changes of a picture can be made until its document is read again."""

_PICTURED = "picture"
_OTHERS = (6, 18)
_TOOLS = frozenset({"rotate_image", "flip_image", "stretch_image"})

_COUNT = "v{} is how many {} the picture shows."
_RULE = (
    "The picture shows an expression. Compute its value X, then open the document called 'v{}%X'. "
    "Put a minus sign in front when X "
    "is below zero and no sign otherwise."
)
_DISTORTED = (
    " The picture may be turned, mirrored, stretched or sheared: rotate_image, "
    "flip_image "
    "and stretch_image can undo that."
)

_KIND = rf"(?:{'|'.join(COLOURS)}) (?:{'|'.join(SHAPES)})"
_THING = rf"{_KIND} at \([0-9]+, [0-9]+\)"
_COUNTED = re.compile(
    rf"(v[0-9]+) is how many (object|{_KIND})s the picture shows\.(?: (.+))?\nPicture: "
    rf"({_THING}(?:, {_THING})*)\."
)
_READ = re.compile(
    rf"{_RULE.partition('v{}')[0]}(v[0-9]+)%X'\. Put a minus sign .* "
    rf"otherwise\.(?:{re.escape(_DISTORTED)})?"
    r"\nPicture(?: \(.+\))?: (v[0-9]+(?: [+-] v[0-9]+)+)\."
)


@dataclass
class PictureRecords(Records):
    """Records that count and read what the descriptions of pictures tell."""

    def facts(self, text: str) -> Facts:
        """What a document tells, with a picture or without."""
        if found := _READ.fullmatch(text):
            return Facts(rule=(found[1], found[2]))
        if found := _COUNTED.fullmatch(text):
            kinds = re.findall(_KIND, found[4])
            facts = read_document(found[3]) if found[3] else Facts()
            count = len(kinds) if found[2] == "object" else kinds.count(found[2])
            return Facts({found[1]: count, **facts.values})
        return read_document(text)


@dataclass(frozen=True, kw_only=True)
class MultimodalConfig(DocumentConfig):
    """Options of MultimodalWorld.

    Attributes:
        render: Whether pictures are pictures (`image`) or described in words (`scene`), for models
            that see none.
        counted: The share of the numbers that have to be counted in a picture.
        pictured: The share of the rules over numbers whose expression is a picture.
    """

    render: Literal["image", "scene"] = "image"
    counted: Share = 0.5
    pictured: Share = 0.5

    @property
    def operators(self) -> Sequence[Operator]:
        """What may be computed: in this domain it is the pictures that are hard."""
        return STANDARD


class MultimodalWorld(DocumentWorld):
    """Find the value of a variable in documents with pictures, in which things are counted and
    expressions read.

    What the hints and the scripted policies know of a picture comes from its description
    (`Image.alt`), which models are not sent. The turn budget is that of the reads; changes of
    pictures can share a reply with reads.
    """

    Config = MultimodalConfig
    config: MultimodalConfig

    def generate(self) -> None:
        """Draw the graph, and set the budget.

        Raises:
            ImportError: The pictures cannot be drawn.
        """
        if self.config.render == "image":
            self._check_pillow()
        self._views: dict[str, tuple[tuple[Step, ...], bytes]] = {}
        self._changes: Counter[str] = Counter()
        super().generate()

    @staticmethod
    def _check_pillow() -> None:
        try:
            pillow()
        except ImportError as error:
            raise ImportError(
                f"{error}; or let MultimodalWorld describe them in words with render='scene'"
            ) from error

    def grow(self, rng: Random) -> Graph:
        """Draw the graph bottom-up, and what is told by pictures."""
        config = self.config
        births = Births(
            self._born, _irrelevant, config.distractor_fields, config.distractor_documents
        )
        graph = grow_bottom_up(rng, config.shape, config.operators, births, config.weights)
        for node in graph.nodes:
            if (
                node.kind == "rule"
                and BY_NAME[node.content.operator].operand == "number"
                and rng.random() < config.pictured
            ):
                node.note = _PICTURED
            if not node.needed and isinstance(node.content, int):
                node.content, node.note = self._number(rng, node.content)
        return graph

    def _born(self, rng: Random, operator: Operator) -> tuple[Value, str | None]:
        value = operator.child(rng)
        return self._number(rng, value) if isinstance(value, int) else (value, None)

    def _number(self, rng: Random, value: int) -> tuple[int, str | None]:
        """A number, or one to count in its place."""
        return (
            (among(rng, 1, MOST_COUNTED), _PICTURED)
            if rng.random() < self.config.counted
            else (value, None)
        )

    def begin(self, start: Sequence[str]) -> PictureRecords:
        """What a reader of the task knows."""
        return PictureRecords.begin("v0", start, self.config.distractor_documents > 0)

    def read_start(self, task: str) -> Knowledge:
        """What a reader of the task knows."""
        known = cast(Records, super().read_start(task))
        return PictureRecords.begin(known.target, known.order, known.doubting)

    def rules(self) -> str:
        """The system message."""
        return (
            "You look for the value of a variable in a collection of documents, each of which has "
            "an id such as v12%aB or v7%-30. "
            "A document gives values of variables, in words or as the number of things in a "
            "picture, or lists other documents, or "
            "says how to compute the id of another one, in words or by an expression in a picture. "
            "No list of all documents "
            "exists: read those that the task names with read_document and follow what they say "
            "until you find the variable of "
            "the task, whose value is a text of letters. Ids and texts are case-sensitive; a full "
            "stop at the end of a sentence is "
            "no part of a value; some variables are irrelevant.\n"
            f"The things in pictures are {', '.join(f'{shape}s' for shape in SHAPES)} (a diamond "
            "is a square on a corner) in "
            f"{', '.join(COLOURS)}. rotate_image, flip_image and stretch_image show a changed copy "
            "of the picture of a document "
            "that you have read. Changes of one picture add up; reading its document again shows "
            "it as it was.\n"
            "When you know the value, give it with submit, or reply with a last line 'Final "
            "answer: ' and the value. This ends the "
            "task: you succeed if the value is exactly right."
        )

    # Documents.

    def show(self, node: Node) -> str | Content:
        """The document as text, with its picture if it has one."""
        if node.note is None:
            return super().show(node)
        hard = self.config.difficulty == "hard"
        if node.kind == "rule":
            return self._shown(
                _RULE.format(node.number) + (_DISTORTED if hard else ""),
                node,
                self._distortion(node),
                self._draw(node),
            )
        told = _COUNT.format(
            node.number, "{} {}s".format(*self._things(node)[0]) if hard else "objects"
        )
        if node.fields:
            told += f" {write_values(self.style(node), node.fields)}"
        return self._shown(told, node, (), self._draw(node))

    def _shown(self, text: str, node: Node, steps: Sequence[Step], png: bytes) -> str | Content:
        body = (
            self._expression(node)
            if node.kind == "rule"
            else ", ".join(map(str, self._things(node)[1]))
        )
        changes = f" ({', then '.join(map(describe, steps))})" if steps else ""
        alt = f"Picture{changes}: {body}."
        return (
            f"{text}\n{alt}" if self.config.render == "scene" else Content(text, (Image(png, alt),))
        )

    def _draw(self, node: Node) -> bytes:
        """The picture of a document; nothing where pictures are described in words."""
        if self.config.render == "scene":
            return b""
        if node.kind == "rule":
            return draw_expression(self._expression(node), self._distortion(node))
        return draw_scene(self._things(node)[1])

    def _expression(self, node: Node) -> str:
        names = [f"v{self.graph.nodes[uid].number}" for uid in node.content.operands]
        return BY_NAME[node.content.operator].write(node.content.drawn, names)

    def _distortion(self, node: Node) -> tuple[Step, ...]:
        return (
            (draw_distortion(self.style(node)),)
            if node.kind == "rule" and self.config.difficulty == "hard"
            else ()
        )

    def _things(self, node: Node) -> tuple[tuple[str, str], list[Thing]]:
        """What is to be counted in a scene, and all that is in it in a random order."""
        style = self.style(node)
        target = list(COLOURS)[below(style, len(COLOURS))], SHAPES[below(style, len(SHAPES))]
        kinds = [target] * node.content
        if self.config.difficulty == "hard":
            kinds += others(style, target, among(style, *_OTHERS))
        things = scatter(style, kinds)
        style.shuffle(things)
        return target, things

    # Tools.

    @tool
    def read_document(self, file_id: str) -> str | Content:
        """Read a document, with its picture if it has one.

        Args:
            file_id: The id of the document, exactly as it was given or computed.
        """
        shown = super().read_document(file_id)
        self._views.pop(file_id, None)
        return shown

    @tool
    def rotate_image(self, doc_id: str, angle: float) -> str | Content:
        """Turn the picture of a document counter-clockwise; the canvas grows as needed.

        Args:
            doc_id: The id of the document, which must have been read.
            angle: The angle in degrees.
        """
        return self._change(doc_id, Step("rotate", angle % 360.0))

    @tool
    def flip_image(
        self, doc_id: str, flip_type: Literal["horizontal", "vertical"]
    ) -> str | Content:
        """Mirror the picture of a document.

        Args:
            doc_id: The id of the document, which must have been read.
            flip_type: `horizontal` swaps left and right, `vertical` top and bottom.
        """
        return self._change(doc_id, Step(flip_type))

    @tool
    def stretch_image(
        self, doc_id: str, width_factor: float, height_factor: float
    ) -> str | Content:
        """Stretch or shrink the picture of a document.

        Args:
            doc_id: The id of the document, which must have been read.
            width_factor: What the width is multiplied by, in [0.1, 10].
            height_factor: What the height is multiplied by, in [0.1, 10].
        """
        for name, factor in (("width_factor", width_factor), ("height_factor", height_factor)):
            if not 0.1 <= factor <= 10:
                raise ToolError(f"stretch_image: {name} must be in [0.1, 10], got {echo(factor)}")
        return self._change(doc_id, Step("stretch", width_factor, height_factor))

    def _change(self, file: str, step: Step) -> str | Content:
        """The picture of a document after one more change."""
        node = self.graph.node(file)
        if node is None or node.note is None or file not in self.known.read:
            raise ToolError(
                f"no picture of a document {echo(file)} was shown: read it first, if it has one"
            )
        steps, png = self._views.get(file) or ((), self._draw(node))
        if len(steps) == MOST_CHANGES:
            raise ToolError(
                f"the picture of {file} was changed {MOST_CHANGES} times: read the document again "
                "to start afresh"
            )
        if png:
            try:
                png = change(png, step)
            except ValueError as error:
                raise ToolError(str(error)) from None
        self._views[file] = (*steps, step), png
        self._changes[file] += 1
        return self._shown(
            f"The picture of {file}, changed.", node, (*self._distortion(node), *steps, step), png
        )

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]]:
        """The labels of all worlds of LORE; `redundant` too for changes of a picture that had been
        changed three times.
        """
        label, before = super().label_calls(), self._changes.copy()

        def labels(calls: Sequence[ToolCall]) -> list[str]:
            changes, told = before.copy(), list(label(calls))
            for place, call in enumerate(calls):
                if call.name in _TOOLS:
                    changes[call.arguments["doc_id"]] += 1
                    told[place] = (
                        "neutral"
                        if changes[call.arguments["doc_id"]] <= NEUTRAL_CHANGES
                        else "redundant"
                    )
            return told

        return labels


def _irrelevant(rng: Random) -> Value:
    """The value of an irrelevant variable: like that of an operand."""
    return STANDARD[below(rng, len(STANDARD))].child(rng)


register(MultimodalWorld, presets=PRESETS)
