"""MultimodalWorld: read documents with pictures (TaskWeaver, section 3, appendix B.2)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import ClassVar, Literal

from agentgym.envs.lore.document_world import DocumentConfig, DocumentWorld
from agentgym.envs.lore.graph import Graph, Node, Operator, Value, among, below
from agentgym.envs.lore.growth import BottomUp
from agentgym.envs.lore.operators import BY_NAME, STANDARD
from agentgym.envs.lore.pictures import (
    COLOURS,
    SHAPES,
    ImageEdit,
    SceneObject,
    change,
    describe,
    draw_distortion,
    draw_expression,
    draw_scene,
    others,
    scatter,
)
from agentgym.envs.lore.records import Facts, Records, read_document, write_values
from agentgym.envs.lore.world import TEXTS
from agentgym.text.messages import Content, Image, ToolCall
from agentgym.text.tools import ToolError, echo, tool
from agentgym.world.config import Share

# The maximum number of objects to count in a picture.
MOST_COUNTED = 12
# Three changes suffice to undo a shear; further changes are redundant.
NEUTRAL_CHANGES = 3
# Limit the changes per picture, because each change makes the picture blurrier.
MOST_CHANGES = 16

_PICTURED = "picture"
# The minimum and maximum number of distracting objects in a picture.
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
    """Records that can also parse picture descriptions."""

    def facts(self, text: str) -> Facts:
        if match := _READ.fullmatch(text):
            return Facts(rule=(match[1], match[2]))
        if match := _COUNTED.fullmatch(text):
            kinds = re.findall(_KIND, match[4])
            facts = read_document(match[3]) if match[3] else Facts()
            count = len(kinds) if match[2] == "object" else kinds.count(match[2])
            return Facts({match[1]: count, **facts.values})
        return read_document(text)


@dataclass(frozen=True, kw_only=True)
class MultimodalConfig(DocumentConfig):
    """Options of MultimodalWorld.

    Attributes:
        render: `image` to show pictures as images, or `scene` to describe them in words for
            text-only models.
        counted: The share of numbers that are shown as objects to count in a picture.
        pictured: The share of numeric rules that show the expression in a picture.
    """

    operators_of: ClassVar[Mapping[str, Sequence[Operator]]] = {
        "standard": STANDARD,
        "hard": STANDARD,  # in this domain, "hard" only affects the pictures
    }

    render: Literal["image", "scene"] = "image"
    counted: Share = 0.5
    pictured: Share = 0.5


class MultimodalWorld(DocumentWorld):
    """Find the value of a variable in documents with pictures, which show objects to count or
    expressions to read.

    Hints and scripted policies use the description of each picture (`Image.alt`), which models do
    not receive. The turn budget allows for all reads and one change per distorted picture.
    """

    Config = MultimodalConfig
    records = PictureRecords
    config: MultimodalConfig

    @classmethod
    def requirements(cls, config: MultimodalConfig) -> Mapping[str, str]:
        if config.render == "scene":
            return {}
        return {"images": "let MultimodalWorld describe the pictures in words with render='scene'"}

    def generate(self) -> None:
        self._views: dict[str, tuple[tuple[ImageEdit, ...], bytes]] = {}
        self._changes: Counter[str] = Counter()
        super().generate()

    def grow(self, rng: Random) -> Graph:
        graph = BottomUp(rng, self.config, self._operand, _irrelevant).grow()
        for node in graph.nodes:
            numeric = node.kind == "rule" and BY_NAME[node.content.operator].operand == "number"
            if numeric and rng.random() < self.config.pictured:
                node.note = _PICTURED
            if not node.needed:
                node.content, node.note = self._pictured(rng, node.content)
        return graph

    def _operand(self, rng: Random, operator: Operator) -> tuple[Value, str | None]:
        return self._pictured(rng, operator.child(rng))

    def _pictured(self, rng: Random, value: Value) -> tuple[Value, str | None]:
        if isinstance(value, int) and rng.random() < self.config.counted:
            return among(rng, 1, MOST_COUNTED), _PICTURED
        return value, None

    def turns(self) -> int:
        """Count the reading turns, plus the turns for one change per distorted picture."""
        hard = self.config.difficulty == "hard"
        distorted = sum(hard and n.kind == "rule" and n.note is not None for n in self.graph.nodes)
        return super().turns() + ceil(distorted / self.config.max_calls_per_turn)

    def may_reread(self, file: str) -> bool:
        return file in self._views or super().may_reread(file)

    def rules(self) -> str:
        shapes = ", ".join(f"{shape}s" for shape in SHAPES)
        rules = TEXTS["multimodal"]["rules"].format(shapes=shapes, colours=", ".join(COLOURS))
        return f"{rules}\n{self.texts['answer']}"

    def show(self, node: Node) -> str | Content:
        if node.note is None:
            return super().show(node)
        hard = self.config.difficulty == "hard"
        if node.kind == "rule":
            text = _RULE.format(node.number)
            if hard:
                text += _DISTORTED
        else:
            kind = "objects"
            if hard:
                kind = "{} {}s".format(*self._scene(node)[0])
            text = _COUNT.format(node.number, kind)
            if node.fields:
                text += f" {write_values(self.style(node), node.fields)}"
        return self._with_picture(text, node, self._distortion(node), self._draw(node))

    def _with_picture(
        self, text: str, node: Node, edits: Sequence[ImageEdit], png: bytes
    ) -> str | Content:
        if node.kind == "rule":
            body = self._expression(node)
        else:
            body = ", ".join(map(str, self._scene(node)[1]))
        changes = f" ({', then '.join(map(describe, edits))})" if edits else ""
        alt = f"Picture{changes}: {body}."
        if self.config.render == "scene":
            return f"{text}\n{alt}"
        return Content(text, (Image(png, alt),))

    def _draw(self, node: Node) -> bytes:
        if self.config.render == "scene":
            return b""
        if node.kind == "rule":
            return draw_expression(self._expression(node), self._distortion(node))
        return draw_scene(self._scene(node)[1])

    def _distortion(self, node: Node) -> tuple[ImageEdit, ...]:
        if node.kind == "rule" and self.config.difficulty == "hard":
            return (draw_distortion(self.style(node)),)
        return ()

    def _scene(self, node: Node) -> tuple[tuple[str, str], list[SceneObject]]:
        style = self.style(node)
        colour = list(COLOURS)[below(style, len(COLOURS))]
        target = colour, SHAPES[below(style, len(SHAPES))]
        kinds = [target] * node.content
        if self.config.difficulty == "hard":
            kinds += others(style, target, among(style, *_OTHERS))
        objects = scatter(style, kinds)
        # Shuffle the objects, because the objects to count would otherwise come first.
        style.shuffle(objects)
        return target, objects

    @tool
    def read_document(self, file_id: str) -> str | Content:
        """Read a document, with its picture if it has one.

        Args:
            file_id: The id of the document, exactly as it was given or computed.
        """
        content = super().read_document(file_id)
        self._views.pop(file_id, None)
        return content

    @tool
    def rotate_image(self, doc_id: str, angle: float) -> str | Content:
        """Turn the picture of a document counter-clockwise; the canvas grows as needed.

        Args:
            doc_id: The id of the document, which must have been read.
            angle: The angle in degrees.
        """
        return self._change(doc_id, ImageEdit("rotate", angle % 360.0))

    @tool
    def flip_image(
        self, doc_id: str, flip_type: Literal["horizontal", "vertical"]
    ) -> str | Content:
        """Mirror the picture of a document.

        Args:
            doc_id: The id of the document, which must have been read.
            flip_type: `horizontal` swaps left and right, `vertical` top and bottom.
        """
        return self._change(doc_id, ImageEdit(flip_type))

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
        return self._change(doc_id, ImageEdit("stretch", width_factor, height_factor))

    def _change(self, file: str, edit: ImageEdit) -> str | Content:
        node = self.graph.node(file)
        if node is None or node.note is None or file not in self.known.read:
            raise ToolError(
                f"no picture of document {echo(file)} has been shown; read the document first, if "
                "the document has a picture"
            )
        edits, png = self._views.get(file) or ((), self._draw(node))
        if len(edits) == MOST_CHANGES:
            raise ToolError(
                f"the picture of {file} has been changed {MOST_CHANGES} times; read the document "
                "again to restore the picture"
            )
        if png:
            try:
                png = change(png, edit)
            except ValueError as error:
                raise ToolError(str(error)) from None
        self._views[file] = (*edits, edit), png
        self._changes[file] += 1
        return self._with_picture(
            f"The picture of {file}, changed.", node, (*self._distortion(node), *edits, edit), png
        )

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]]:
        """Label calls; after three changes to a picture, further changes are `redundant`."""
        label, before = super().label_calls(), self._changes.copy()

        def labels(calls: Sequence[ToolCall]) -> list[str]:
            changes, results = before.copy(), list(label(calls))
            for place, call in enumerate(calls):
                if call.name in _TOOLS:
                    file = call.arguments["doc_id"]
                    changes[file] += 1
                    few = changes[file] <= NEUTRAL_CHANGES
                    results[place] = "neutral" if few else "redundant"
            return results

        return labels


def _irrelevant(rng: Random) -> Value:
    return STANDARD[below(rng, len(STANDARD))].child(rng)
