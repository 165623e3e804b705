"""MultimodalWorld's pictures: their pixels, and undoing changes."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import numpy as np
import pytest

from agentgym import Image
from agentgym.envs.lore import pictures
from agentgym.text.tokens import image_tokens
from tests.envs.lore.games import BOTH, LOSSLESS, pictured, tools
from tests.envs.lore.picture_solver import agreement, areas, kinds, read, undoing
from tests.envs.lore.test_multimodal_world import generated


@pytest.mark.parametrize("difficulty", BOTH)
def test_pixels_show_each_kind_as_often_as_the_words_say_and_the_target_as_often_as_the_value(
    difficulty: str,
) -> None:
    seen, shares = Counter[str](), Counter[int]()
    for seed in range(3):
        for node, shown in pictured(generated(seed, operations=30, difficulty=difficulty), "value"):
            (image,) = shown.images
            pixels = image.to_array()
            assert (pixels.shape, pixels.dtype) == ((384, 384, 3), np.dtype(np.uint8))
            counted, wanted = (
                kinds(pixels),
                re.findall(r"how many (.+?)s the picture", shown.text)[0],
            )
            assert counted == Counter(re.findall(r"\w+ \w+(?= at)", image.alt))
            assert (counted.total() if wanted == "object" else counted[wanted]) == node.content
            assert 1 <= node.content <= 12
            seen.update(counted)
            if difficulty == "standard":
                assert (wanted, len(counted)) == ("object", 1)
                continue
            alike = Counter(
                len({*kind.split()} & {*wanted.split()})
                for kind in counted.elements()
                if kind != wanted
            )
            assert 6 <= alike.total() <= 18
            assert alike[1] == alike.total() // 2, (
                "half of the others share its colour or its shape, the rest neither"
            )
            shares.update(alike)
    assert len({kind.split()[0] for kind in seen}) == 10
    assert len({kind.split()[1] for kind in seen}) == 4
    assert set(shares) <= {0, 1}


def test_nothing_touches_another_thing_or_the_border() -> None:
    for _, shown in pictured(generated(5, operations=20, difficulty="hard"), "value"):
        boxes = areas(shown.images[0].to_array())
        assert len(boxes) == shown.images[0].alt.count(" at ")
        for k, (_, rows, columns, _) in enumerate(boxes):
            assert min(rows.start, columns.start, 384 - rows.stop, 384 - columns.stop) >= 5
            for _, other_rows, other_columns, _ in boxes[:k]:
                assert max(gap(rows, other_rows), gap(columns, other_columns)) >= 5


def gap(one: slice, other: slice) -> int:
    return int(max(one.start - other.stop, other.start - one.stop))


def test_things_are_placed_quickly_where_they_are_most() -> None:
    for seed in range(200):
        kind = ("red", "circle")
        assert len(pictures.scatter(Random(seed), [kind] * 30)) == 30


def test_colours_are_told_apart() -> None:
    colours = [(255, 255, 255), *pictures.COLOURS.values()]
    distances = [
        np.linalg.norm(np.subtract(a, b)) for k, a in enumerate(colours) for b in colours[:k]
    ]
    assert min(distances) > 100


def test_expressions_are_read_from_the_pixels() -> None:
    for options in ({}, {"max_arity": 10, "min_arity": 6}):
        shown = pictured(generated(1, operations=50, **options), "rule")
        assert len(shown) > 4
        for _, content in shown:
            assert content.images[0].alt == f"Picture: {read(content.images[0].to_array())}."


@pytest.mark.rotation
def test_a_distorted_expression_can_be_undone_with_the_tools() -> None:
    """Exactly if nothing was lost, otherwise with most of the ink in place."""
    agreements: dict[str, list[float]] = {}
    for seed in range(4):
        world = generated(seed, operations=25, difficulty="hard", pictured=1.0)
        for node, content in pictured(world, "rule"):
            (image,) = content.images
            world.read_document(node.file)
            change, pixels = tools(world, node.file), image.to_array()
            for name, arguments in undoing(image.alt):
                pixels = change(name, arguments)
            clean = Image(pictures.draw_expression(image.alt.rpartition(": ")[2][:-1])).to_array()
            if re.search(LOSSLESS, image.alt):
                assert np.array_equal(pixels, clean)
            else:
                agreements.setdefault(re.findall(r"\((\w+)", image.alt)[0], []).append(
                    agreement(pixels, clean)
                )
    assert set(agreements) == {"turned", "stretched", "sheared"}
    assert min(map(len, agreements.values())) >= 4
    assert min(map(min, agreements.values())) >= 0.6, agreements


def test_tokens_of_a_picture_go_by_its_size() -> None:
    """The first two are examples from the vision models' documentation."""
    for (width, height), tokens in {
        (1024, 1024): 765,
        (2048, 4096): 1105,
        (384, 384): 255,
        (513, 80): 425,
        (0, 9): 765,
    }.items():
        head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4) + height.to_bytes(4)
        assert image_tokens(head) == tokens
    assert image_tokens(b"x") == 765
    (_, shown), *_ = pictured(generated(5, operations=20), "value")
    assert image_tokens(shown.images[0].png) == 255
