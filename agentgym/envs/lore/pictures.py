"""Draw and edit pictures of objects and expressions (TaskWeaver, section 3, appendix B.2).

The optional dependency Pillow is imported when the first picture is drawn. Pictures are
deterministic: equal arguments give equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from math import ceil, cos, radians, sin
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from agentgym.envs.lore.graph import among, below

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

SIZE = 384
"""Width and height of a scene in pixels: one tile of common vision encoders (336 to 512)."""
COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (220, 20, 30),
    "orange": (255, 120, 0),
    "yellow": (255, 230, 0),
    "green": (0, 140, 50),
    "cyan": (0, 205, 215),
    "blue": (20, 60, 220),
    "purple": (130, 30, 160),
    "pink": (255, 130, 200),
    "brown": (120, 70, 20),
    "gray": (130, 130, 130),
}
"""Flat object colours, at least 100 apart from each other and from white in RGB."""
SHAPES = ("circle", "square", "triangle", "diamond")
RADII = (11, 17)
"""Object radii in pixels; 30 of the largest fit without touching."""
GAP = 5
"""Minimum white pixels between objects (bounding squares) and to the border, so objects stay
separate when a model scales the picture down.
"""

SMALLEST, LARGEST = 16, 2048
"""Side limits of a changed picture in pixels: smaller is unreadable, larger could exhaust memory.
"""

_FONT, _SPACING, _MARGIN, _LINE = 72, 4, 32, 96  # pixels, before the picture is halved in size
_OPERANDS = 4  # models scale down pictures with more operands per line
_SCALES = (0.6, 0.7, 1.0, 1.5, 2.0)  # smaller factors would make characters merge


class ImageEdit(NamedTuple):
    """An edit of a picture.

    Attributes:
        kind: `rotate` (counter-clockwise by x degrees), `stretch` (width by the factor x, height by
            y), `shear` (move the top edge right by x times the height), or `horizontal` or
            `vertical` (mirror left to right or top to bottom).
    """

    kind: str
    x: float = 0.0
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class SceneObject:
    """An object in a scene, with centre and radius in pixels."""

    colour: str
    shape: str
    x: int
    y: int
    radius: int

    def __str__(self) -> str:
        return f"{self.colour} {self.shape} at ({self.x}, {self.y})"


def scatter(rng: Random, kinds: Sequence[tuple[str, str]]) -> list[SceneObject]:
    """Place objects of the given colours and shapes without overlaps, fully inside the scene."""
    objects: list[SceneObject] = []
    for colour, shape in kinds:
        while True:
            radius = among(rng, *RADII)
            first, last = radius + GAP, SIZE - 1 - radius - GAP
            x = among(rng, first, last)
            y = among(rng, first, last)
            if all(
                max(abs(x - other.x), abs(y - other.y)) > radius + other.radius + GAP
                for other in objects
            ):
                break
        objects.append(SceneObject(colour, shape, x, y, radius))
    return objects


def others(rng: Random, target: tuple[str, str], count: int) -> list[tuple[str, str]]:
    """Draw other kinds of objects; half of the kinds share the colour or shape of the target."""
    colours = [colour for colour in COLOURS if colour != target[0]]
    shapes = [shape for shape in SHAPES if shape != target[1]]
    kinds = []
    for place in range(count):
        colour = colours[below(rng, len(colours))]
        shape = shapes[below(rng, len(shapes))]
        if place % 2:
            if below(rng, 2):
                colour = target[0]
            else:
                shape = target[1]
        kinds.append((colour, shape))
    return kinds


def draw_scene(objects: Sequence[SceneObject]) -> bytes:
    """Draw a scene as a PNG image in exact colours, without antialiasing."""
    from PIL import Image, ImageDraw  # noqa: PLC0415 - an extra

    picture = Image.new("P", (SIZE, SIZE), 0)
    picture.putpalette([255, 255, 255, *chain(*COLOURS.values())])
    draw = ImageDraw.Draw(picture)
    fills = {colour: place for place, colour in enumerate(COLOURS, 1)}
    for each in objects:
        x, y, fill = each.x, each.y, fills[each.colour]
        left, right = x - each.radius, x + each.radius
        top, bottom = y - each.radius, y + each.radius
        if each.shape == "circle":
            draw.ellipse((left, top, right, bottom), fill)
        elif each.shape == "square":
            draw.rectangle((left, top, right, bottom), fill)
        elif each.shape == "triangle":
            draw.polygon(((x, top), (right, bottom), (left, bottom)), fill)
        else:
            draw.polygon(((x, top), (right, y), (x, bottom), (left, y)), fill)
    return _png(picture)


def draw_expression(expression: str, distortion: Sequence[ImageEdit] = ()) -> bytes:
    """Draw a sum or difference as a PNG image with up to four operands per line."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - an extra

    font = ImageFont.load_default(_FONT)
    words = expression.split(" ")
    per_line = 2 * _OPERANDS
    lines = [" ".join(words[k : k + per_line]) for k in range(0, len(words), per_line)]
    places = []
    for row, line in enumerate(lines):
        x: float = _MARGIN
        # Place characters individually, because text layout depends on the font library.
        for char in line:
            places.append((char, x, _MARGIN + row * _LINE))
            x += font.getlength(char) + _SPACING
    right = max(x + font.getlength(char) for char, x, _ in places)
    width = 2 * ceil((right + _MARGIN) / 2)
    picture = Image.new("L", (width, 2 * _MARGIN + len(lines) * _LINE), 255)
    draw = ImageDraw.Draw(picture)
    for char, x, y in places:
        draw.text((round(x), y), char, fill=0, font=font)
    for edit in distortion:
        picture = _apply(picture, edit)
    # Halve the size after the distortion, so that distorted expressions are equally sharp.
    return _png(picture.reduce(2))


def draw_distortion(rng: Random) -> ImageEdit:
    """Sample an edit that makes an expression harder to read but that tool calls can undo."""
    kind = below(rng, 5)
    if kind == 0:
        return ImageEdit("rotate", 90.0 * among(rng, 1, 3))
    if kind == 1:
        return ImageEdit(("horizontal", "vertical")[below(rng, 2)])
    if kind == 2:
        width = _SCALES[below(rng, len(_SCALES))]
        heights = [scale for scale in _SCALES if scale != width]
        return ImageEdit("stretch", width, heights[below(rng, len(heights))])
    if kind == 3:
        return ImageEdit("rotate", 90.0 * below(rng, 4) + among(rng, 20, 70))
    return ImageEdit("shear", (1 - 2 * below(rng, 2)) * among(rng, 2, 5) / 10)


_WORDS = {
    "rotate": "turned counter-clockwise by {:g} degrees",
    "horizontal": "mirrored left to right",
    "vertical": "mirrored top to bottom",
    "stretch": "stretched by {:g} in width and {:g} in height",
    "shear": "sheared sideways by {:g}",
}


def describe(edit: ImageEdit) -> str:
    """Describe an edit in words."""
    return _WORDS[edit.kind].format(edit.x, edit.y)


def change(png: bytes, edit: ImageEdit) -> bytes:
    """Edit a picture; mirroring and rotating by multiples of 90 degrees are lossless.

    Raise ValueError if a side would have fewer than 16 or more than 2048 pixels.
    """
    from PIL import Image  # noqa: PLC0415 - an extra

    picture = Image.open(BytesIO(png))
    width, height = _size_after(picture.size, edit)
    if min(width, height) < SMALLEST or max(width, height) > LARGEST:
        raise ValueError(
            f"width and height of the picture must be in [{SMALLEST}, {LARGEST}], got "
            f"{width} x {height}"
        )
    return _png(_apply(picture.convert("L" if picture.mode == "L" else "RGB"), edit))


def _size_after(size: tuple[int, int], edit: ImageEdit) -> tuple[int, int]:
    width, height = size
    if edit.kind == "stretch":
        return round(width * edit.x), round(height * edit.y)
    if edit.kind == "rotate":
        c = abs(cos(radians(edit.x)))
        s = abs(sin(radians(edit.x)))
        return ceil(width * c + height * s), ceil(width * s + height * c)
    return size


def _apply(picture: Picture, edit: ImageEdit) -> Picture:
    from PIL.Image import Resampling, Transform, Transpose  # noqa: PLC0415 - an extra

    white = 255 if picture.mode == "L" else (255, 255, 255)
    if edit.kind == "rotate":
        return picture.rotate(edit.x, Resampling.BICUBIC, expand=True, fillcolor=white)
    if edit.kind == "horizontal":
        return picture.transpose(Transpose.FLIP_LEFT_RIGHT)
    if edit.kind == "vertical":
        return picture.transpose(Transpose.FLIP_TOP_BOTTOM)
    if edit.kind == "stretch":
        return picture.resize(_size_after(picture.size, edit), Resampling.BICUBIC)
    width, height = picture.size
    wider = ceil(abs(edit.x) * height)
    rows = (1, edit.x, -wider if edit.x > 0 else 0, 0, 1, 0)
    return picture.transform(
        (width + wider, height), Transform.AFFINE, rows, Resampling.BICUBIC, fillcolor=white
    )


def _png(picture: Picture) -> bytes:
    file = BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
