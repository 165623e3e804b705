from __future__ import annotations

import re
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

import agentgym
from agentgym import Image, ToolCall, ToolError, make, tool_env
from agentgym.envs.lore import pictures
from agentgym.text.tokens import image_tokens
from tests.envs.lore import picture_solver
from tests.envs.lore.games import BOTH, LOSSLESS, pictured, read, reply, tools
from tests.envs.lore.games import generated as drawn
from tests.envs.lore.picture_solver import agreement, areas, kinds, undoing
from tests.helpers import play, play_optimally, start


def generated(seed: int, **options: Any) -> Any:
    return drawn("MultimodalWorld", seed, **options)


@pytest.mark.parametrize(
    ("options", "needed", "low", "high"),
    [
        ({}, True, 0.4, 0.6),
        ({"counted": 0.0, "pictured": 0.0}, True, 0, 0),
        ({"counted": 1.0, "pictured": 1.0}, True, 1, 1),
        ({"theta": 3, "distractor_documents": 3.0}, False, 0.35, 0.65),
    ],
)
def test_numbers_and_rules_are_pictures_as_often_as_asked_for(
    options: dict[str, Any], needed: bool, low: float, high: float
) -> None:
    worlds = [generated(seed, operations=60, **options) for seed in range(6)]
    nodes = [node for world in worlds for node in world.graph.nodes if node.needed is needed]
    numbers = [node for node in nodes if isinstance(node.content, int)]
    rules = [node for node in nodes if node.kind == "rule" and node.content.operator != "join"]
    assert len(numbers) > 100
    for group in (numbers, rules if needed else numbers):
        assert low <= sum(node.note is not None for node in group) / len(group) <= high


# In the chat.


def first_pictured(env: Any, kind: str = "value") -> str:
    while True:
        call = env.world.optimal_calls()[0]
        play(env, call)
        node = env.world.graph.node(call.arguments["file_id"])
        if node.note and node.kind == kind:
            return str(node.file)


def test_pictures_come_as_parts_of_the_chat() -> None:
    env = start("MultimodalWorld-paper", operations=4)
    file = first_pictured(env)
    message = env.chat.messages[-1]
    (image,) = message.images
    assert image.png.startswith(b"\x89PNG")
    assert len(image.png) < 5_000
    *_, result, pictures_after = env.chat.to_openai()
    assert (result["role"], result["content"]) == ("tool", message.text)
    assert pictures_after == {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": image.to_data_url()}}],
    }
    assert image.alt not in str(env.chat.to_openai())
    assert agentgym.Chat.from_openai(env.chat.to_openai()).messages[-1].images[0].png == image.png
    play(env, ToolCall("rotate_image", {"doc_id": file, "angle": 90}))
    assert np.array_equal(env.chat.messages[-1].images[0].to_array(), np.rot90(image.to_array()))
    assert play_optimally(env).reward == 1.0


def test_in_scenes_no_picture_is_sent_and_all_is_told() -> None:
    env = start("MultimodalWorld-paper", operations=4, render="scene", difficulty="hard")
    image = start("MultimodalWorld-paper", operations=4, difficulty="hard")
    file = first_pictured(env, "rule")
    assert file == first_pictured(image, "rule")
    same = image.chat.messages[-1]
    assert env.chat.messages[-1].text == f"{same.text}\n{same.images[0].alt}"
    outcome = play(env, ToolCall("flip_image", {"doc_id": file, "flip_type": "vertical"}))
    assert re.match(
        rf"The picture of {file}, changed\.\nPicture \(.+, then mirrored top to bottom\): v",
        outcome.text,
    )
    assert not any(message.images for message in env.chat.messages)
    assert play_optimally(env).reward == 1.0


# The tools.


def test_changes_add_up_until_the_document_is_read_again() -> None:
    world = generated(0, operations=6)
    node, shown = next((n, s) for n, s in pictured(world, "rule") if not n.children)
    world.read_document(node.file)
    original, change = shown.images[0].to_array(), tools(world, node.file)
    assert np.array_equal(change("rotate_image", {"angle": 450.0}), np.rot90(original))
    assert np.array_equal(change("flip_image", {"flip_type": "vertical"}), np.rot90(original)[::-1])
    assert np.array_equal(change("rotate_image", {"angle": 90}), np.rot90(np.rot90(original)[::-1]))
    height, width = original.shape[:2]
    assert change("stretch_image", {"width_factor": 2, "height_factor": 0.5}).shape == (
        round(height / 2),
        2 * width,
        3,
    )
    assert world.read_document(node.file) == shown
    assert np.array_equal(change("flip_image", {"flip_type": "horizontal"}), original[:, ::-1])


def test_calls_that_cannot_be_carried_out_are_refused_and_change_nothing() -> None:
    world = generated(0, operations=6)
    start_file = world.known.useful()[0]
    with pytest.raises(
        ToolError,
        match=f'^no picture of document "{start_file}" has been shown; read the document first, ',
    ):
        world.rotate_image(start_file, 90.0)
    for node in world.graph.nodes:
        world.read_document(node.file)
        if node.note is None:
            with pytest.raises(ToolError, match="no picture of document"):
                world.flip_image(node.file, "vertical")
    file = pictured(world, "value")[0][0].file
    world.stretch_image(file, 0.1, 5)
    for width, height, why in (
        (1, -1, r"stretch_image: height_factor must be in \[0.1, 10\], got -1"),
        (0.0, 1, r"stretch_image: width_factor must be in \[0.1, 10\], got 0.0"),
        (10, 10, r"width and height of the picture must be in \[16, 2048\], got 380 x 19200"),
        (0.1, 1, r"width and height of the picture must be in \[16, 2048\], got 4 x 1920"),
    ):
        with pytest.raises(ToolError, match=f"^{why}$"):
            world.stretch_image(file, width, height)
    assert len(world._views[file][0]) == 1
    for _ in range(15):
        world.flip_image(file, "horizontal")
    with pytest.raises(
        ToolError, match="has been changed 16 times; read the document again to restore the picture"
    ):
        world.flip_image(file, "horizontal")
    env = start("MultimodalWorld-paper")
    outcome = play(env, ToolCall("flip_image", {"doc_id": file, "flip_type": "diagonal"}))
    assert outcome.text == (
        "error: flip_image: argument 'flip_type': input should be 'horizontal' or 'vertical', got \"diagonal\""
    )


def test_the_first_three_changes_of_a_picture_are_neutral() -> None:
    env = make("MultimodalWorld-paper", labels=True)
    env.reset(seed=0)
    inner: Any = tool_env(env)
    while True:
        call = inner.world.optimal_calls()[0]
        env.step(agentgym.render(call))
        if inner.world.graph.node(call.arguments["file_id"]).note:
            break
    file = call.arguments["file_id"]
    turn, flip = (
        ToolCall("rotate_image", {"doc_id": file, "angle": 5.5}),
        ToolCall("flip_image", {"doc_id": file, "flip_type": "vertical"}),
    )
    info = env.step(reply(turn, flip, inner.world.optimal_calls()[0]))[4]
    assert (info["labels"], info["optimal"]) == (("neutral", "neutral", "optimal"), True)
    info = env.step(
        reply(read(file), turn, flip, ToolCall("rotate_image", {"doc_id": "v1%no", "angle": 1}))
    )[4]
    assert info["labels"] == ("redundant", "neutral", "redundant", "invalid")
    assert env.step(reply(flip))[4]["labels"] == ("redundant",)


# Without Pillow.


def test_pictures_are_drawn_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> bytes:
        raise AssertionError("drawn too early")

    monkeypatch.setattr("agentgym.envs.lore.multimodal_world.draw_scene", fail)
    monkeypatch.setattr("agentgym.envs.lore.multimodal_world.draw_expression", fail)
    world = generated(0, operations=50)
    assert world.task()
    with pytest.raises(AssertionError, match="drawn too early"):
        pictured(world, "value")


# Pixels.


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
            assert (
                content.images[0].alt
                == f"Picture: {picture_solver.read(content.images[0].to_array())}."
            )


@pytest.mark.rotation
def test_a_distorted_expression_can_be_undone_with_the_tools() -> None:
    """Lossless changes can be undone exactly; after other changes, most dark pixels match."""
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
    """The first two cases are examples from the documentation of vision models."""
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
