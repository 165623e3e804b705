"""Count shapes, read expressions and undo distortions in pictures, without package code."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont
from scipy import ndimage

WHITE = 0xFFFFFF
NAMES = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink", "brown", "gray")


@functools.cache
def name(colour: int) -> str:
    rgb = colour >> 16, colour >> 8 & 255, colour & 255
    return min(NAMES, key=lambda each: math.dist(ImageColor.getrgb(each), rgb))


class Area(NamedTuple):
    """A connected area of one colour, with the bounding box and the pixels inside the box."""

    colour: int
    rows: slice
    columns: slice
    filled: np.ndarray[Any, Any]

    @property
    def shape(self) -> str:
        """Classify the shape by how much of its box is filled, and how much lies in the upper half."""
        share = self.filled.mean()
        if share > 0.66:
            return "square" if share > 0.93 else "circle"
        upper = self.filled[: len(self.filled) // 2].sum() / self.filled.sum()
        return "triangle" if upper < 0.38 else "diamond"


def areas(pixels: np.ndarray[Any, Any]) -> list[Area]:
    codes = pixels.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    found = []
    for colour in set(np.unique(codes).tolist()) - {WHITE}:
        labels, _ = ndimage.label(codes == colour)
        for number, (rows, columns) in enumerate(ndimage.find_objects(labels), 1):
            found.append(Area(colour, rows, columns, labels[rows, columns] == number))
    return found


def kinds(pixels: np.ndarray[Any, Any]) -> Counter[str]:
    return Counter(f"{name(area.colour)} {area.shape}" for area in areas(pixels))


# Reading expressions.


def crop(ink: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rows, columns = np.flatnonzero((ink < 255).any(1)), np.flatnonzero((ink < 255).any(0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


@functools.cache
def glyphs() -> dict[bytes, str]:
    """Map pixels to characters, which are drawn slightly differently at even and odd positions."""
    font, known = ImageFont.load_default(72), {}
    for char in "v0123456789+-":
        for shift in (0, 1):
            picture = Image.new("L", (160, 160), 255)
            ImageDraw.Draw(picture).text((20 + shift, 20), char, fill=0, font=font)
            known[_key(np.asarray(picture.reduce(2)))] = char
    return known


def _key(ink: np.ndarray[Any, Any]) -> bytes:
    inner = crop(ink)
    return bytes(inner.shape) + inner.tobytes()


def pieces(ink: np.ndarray[Any, Any], axis: int) -> list[np.ndarray[Any, Any]]:
    """Split a picture at white rows (axis 0) or columns (axis 1)."""
    used = np.concatenate(([0], (ink < 255).any(1 - axis).astype(int), [0]))
    edges = np.flatnonzero(np.diff(used))
    parts = zip(edges[::2], edges[1::2], strict=True)
    return [ink[first:after] if axis == 0 else ink[:, first:after] for first, after in parts]


def read(pixels: np.ndarray[Any, Any]) -> str | None:
    """Return the expression in a picture as a string, or None if the picture is distorted."""
    ink = pixels[:, :, 0]
    text = ""
    for line in pieces(ink, 0):
        for piece in pieces(line, 1):
            char = glyphs().get(_key(piece))
            if char is None:
                return None
            text += char
    return re.sub("([+-])", r" \1 ", text) if re.fullmatch(r"v\d+([+-]v\d+)+", text) else None


Tools = Callable[[str, dict[str, Any]], np.ndarray[Any, Any]]


def read_turned(pixels: np.ndarray[Any, Any], change: Tools) -> str | None:
    for name, arguments in [
        ("", {}),
        *[("rotate_image", {"angle": 90.0})] * 3,
        ("flip_image", {"flip_type": "horizontal"}),
        *[("rotate_image", {"angle": -90.0})] * 3,
    ]:
        pixels = change(name, arguments) if name else pixels
        if text := read(pixels):
            return text
    return None


def undoing(alt: str) -> list[tuple[str, dict[str, Any]]]:
    numbers = [
        float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?= |\))", alt.partition(":")[0])
    ]
    if "turned" in alt:
        return [("rotate_image", {"angle": -numbers[0]})]
    if "mirrored" in alt:
        return [
            ("flip_image", {"flip_type": "horizontal" if "left to right" in alt else "vertical"})
        ]
    if "stretched" in alt:
        return [
            ("stretch_image", {"width_factor": 1 / numbers[0], "height_factor": 1 / numbers[1]})
        ]
    # The inverse of a shear is a rotation, a stretch and another rotation.
    left, scales, right = np.linalg.svd(np.array([[1.0, numbers[0]], [0.0, 1.0]]))
    if np.linalg.det(left) < 0:
        left, right = left @ np.diag([1, -1]), np.diag([1, -1]) @ right
    first, last = (float(np.degrees(np.arctan2(turn[0, 1], turn[0, 0]))) for turn in (right, left))
    stretch = {"width_factor": float(scales[0]), "height_factor": float(scales[1])}
    return [
        ("rotate_image", {"angle": first}),
        ("stretch_image", stretch),
        ("rotate_image", {"angle": last}),
    ]


def agreement(pixels: np.ndarray[Any, Any], clean: np.ndarray[Any, Any]) -> float:
    """Return the Jaccard index of the dark pixels, after cropping and scaling to one size."""
    dark, wanted = (
        crop(np.where(each[:, :, 0] < 128, 0, 255).astype(np.uint8)) for each in (pixels, clean)
    )
    size = (wanted.shape[1], wanted.shape[0])
    fitted = np.asarray(Image.fromarray(dark).resize(size)) < 128
    return float((fitted & (wanted < 128)).sum() / (fitted | (wanted < 128)).sum())
