"""Pictures as a policy sees them: counting, reading and undoing changes without the package."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

NAMES = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink", "brown", "gray")
WHITE = 0xFFFFFF


@functools.cache
def name(colour: int) -> str:
    """Return the name of the nearest web colour."""
    rgb = [colour >> shift & 255 for shift in (16, 8, 0)]
    return min(
        NAMES,
        key=lambda each: sum(
            (a - b) ** 2 for a, b in zip(ImageColor.getrgb(each), rgb, strict=True)
        ),
    )


def components(pixels: np.ndarray[Any, Any]) -> list[tuple[int, list[tuple[int, int, int]]]]:
    """Return the 4-connected areas except white: colour, and runs of (row, first column, end
    column).
    """
    codes = pixels.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    begins = np.concatenate((np.ones((len(codes), 1), bool), np.diff(codes, axis=1) != 0), axis=1)
    starts = np.flatnonzero(begins)
    lengths, colours = np.diff(starts, append=codes.size), codes.ravel()[starts]
    inked = colours != WHITE
    found: list[tuple[int, list[tuple[int, int, int]]]] = []
    above: list[list[int]] = []  # first column, end column, index in found
    here: list[list[int]] = []
    last = -1
    for start, length, colour in zip(
        starts[inked].tolist(), lengths[inked].tolist(), colours[inked].tolist(), strict=True
    ):
        row, first = divmod(start, codes.shape[1])
        if row != last:
            above, here, last = here if row == last + 1 else [], [], row
        touched = sorted(
            {k for a, b, k in above if a < first + length and first < b and found[k][0] == colour}
        )
        place = touched[0] if touched else len(found)
        if not touched:
            found.append((colour, []))
        for other in touched[1:]:
            found[place][1].extend(found[other][1])
            found[other][1].clear()
            for run in (*above, *here):
                run[2] = place if run[2] == other else run[2]
        found[place][1].append((row, first, first + length))
        here.append([first, first + length, place])
    return [(colour, runs) for colour, runs in found if runs]


def box(runs: list[tuple[int, int, int]]) -> tuple[int, int, int, int]:
    """Return first row, end row, first column, end column."""
    rows, firsts, afters = zip(*runs, strict=True)
    return min(rows), max(rows) + 1, min(firsts), max(afters)


def shape(runs: list[tuple[int, int, int]]) -> str:
    """Classify by the filled share of the bounding box, and by its upper half's share of that."""
    top, bottom, left, right = box(runs)
    area = sum(after - first for _, first, after in runs)
    filled = area / ((bottom - top) * (right - left))
    if filled > 0.66:
        return "square" if filled > 0.93 else "circle"
    upper = sum(after - first for row, first, after in runs if row < (top + bottom) // 2)
    return "triangle" if upper / area < 0.38 else "diamond"


def kinds(pixels: np.ndarray[Any, Any]) -> Counter[str]:
    return Counter(f"{name(colour)} {shape(runs)}" for colour, runs in components(pixels))


def crop(ink: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rows, columns = np.flatnonzero((ink < 255).any(1)), np.flatnonzero((ink < 255).any(0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


@functools.cache
def glyphs() -> dict[bytes, str]:
    """Return the characters' pixels, which differ slightly between even and odd positions."""
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
    """Return the parts between white rows (axis 0) or columns (axis 1)."""
    used = np.concatenate(([0], (ink < 255).any(1 - axis).astype(int), [0]))
    edges = np.flatnonzero(np.diff(used))
    parts = zip(edges[::2], edges[1::2], strict=True)
    return [ink[first:after] if axis == 0 else ink[:, first:after] for first, after in parts]


def read(pixels: np.ndarray[Any, Any]) -> str | None:
    """Read an upright expression whose characters match the font exactly."""
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
    """Rotate and mirror a picture with the tools until it is readable."""
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
    # The inverse of shearing by k, ((1, -k), (0, 1)) with y down, is rotate, stretch, rotate.
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
    """Return the common share of the ink, cropped and scaled to one size."""
    dark, wanted = (
        crop(np.where(each[:, :, 0] < 128, 0, 255).astype(np.uint8)) for each in (pixels, clean)
    )
    size = (wanted.shape[1], wanted.shape[0])
    fitted = np.asarray(Image.fromarray(dark).resize(size)) < 128
    return float((fitted & (wanted < 128)).sum() / (fitted | (wanted < 128)).sum())
