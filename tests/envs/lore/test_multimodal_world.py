"""MultimodalWorld against a solver that sees pixels, and against the intended pictures."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

import agentgym
from agentgym import Content, ToolCall, ToolError, make, tool_env
from agentgym.envs.lore import PAPER
from agentgym.envs.lore.multimodal_world import MultimodalWorld
from agentgym.oracles import NoisyPolicy, RandomPolicy
from agentgym.oracles.reading import ParsedChat
from tests.envs.lore.lore_solver import Solver
from tests.envs.lore.picture_solver import kinds, read_turned
from tests.envs.lore.test_document_world import BOTH, computable, read, reply
from tests.helpers import compare, play, play_optimally, start

LOSSLESS = r"mirrored|by (90|180|270) degrees|^Picture:"


def generated(seed: int, **options: Any) -> MultimodalWorld:
    # Under the paper's rules unless options differ.
    return default(seed, **{**PAPER, "distractor_documents": 0.0, **options})


def default(seed: int, **options: Any) -> MultimodalWorld:
    world = MultimodalWorld(MultimodalWorld.Config(**options), seed)
    world.generate()
    return world


def pictured(world: MultimodalWorld, kind: str) -> list[tuple[Any, Content]]:
    shown = [(node, world.show(node)) for node in world.graph.nodes if node.kind == kind]
    return [(node, content) for node, content in shown if isinstance(content, Content)]


def tools(world: MultimodalWorld, file: str) -> Any:
    def change(name: str, arguments: dict[str, Any]) -> np.ndarray[Any, Any]:
        content = getattr(world, name)(file, **arguments)
        pixels: np.ndarray[Any, Any] = content.images[0].to_array()
        return pixels

    return change


def plain(world: MultimodalWorld, file: str) -> str:
    # Count things in the pixels; read sharp expressions, and take blurred ones from the
    # description.
    shown = world.read_document(file)
    text, _, words = (
        shown.partition("\nPicture")
        if isinstance(shown, str)
        else (shown.text, "", shown.images[0].alt)
    )
    if not words:
        return text
    if counted := re.match(r"(v\d+) is how many (\w+)( \w+)?s? the picture shows\.", text):
        found = (
            kinds(shown.images[0].to_array())
            if isinstance(shown, Content)
            else Counter(re.findall(r"\w+ \w+(?= at)", words))
        )
        wanted = f"{counted[2]}{counted[3] or ''}"
        count = found.total() if wanted == "objects" else found[wanted.removesuffix("s")]
        return f"{counted[1]} = {count}.{text[counted.end() :]}"
    expression: str | None = words.rpartition(": ")[2].removesuffix(".")
    if isinstance(shown, Content) and re.search(LOSSLESS, words):
        told, expression = expression, read_turned(shown.images[0].to_array(), tools(world, file))
        assert expression == told
    prefix = text.split("'")[1].partition("%")[0]
    return (
        f"Open the document called '{prefix}%X' next, where X is the value of {expression}. Thanks."
    )


def solve(seed: int, **options: Any) -> None:
    world = generated(seed, **options)
    solver = Solver(world.task())
    rounds = solver.solve(lambda files: [plain(world, file) for file in files])
    world.submit(str(solver.answer))
    assert world.score() == 1.0
    assert rounds == world.graph.height + 1
    assert solver.read == {node.file for node in world.graph.nodes}, (
        "every document is needed, and read once"
    )
    assert len(world.graph.uids) == len(world.graph.nodes), "ids differ"
    report = world.report()
    assert report["reads"] == report["useful_reads"] == report["needed"] == report["documents"]
    assert (report["guessed_reads"], report["redundant_reads"], report["furthest"]) == (
        0,
        0,
        report["height"],
    )


@pytest.mark.parametrize("render", ["image", "scene"])
@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("operations", [0, 1, 3, 30])
def test_a_solver_that_sees_pictures_solves_in_one_round_more_than_the_height(
    operations: int, difficulty: str, render: str
) -> None:
    for seed in range(1 if operations == 30 else 5):
        solve(seed, operations=operations, difficulty=difficulty, render=render)


@pytest.mark.parametrize("difficulty", BOTH)
def test_large_tasks_are_solved(difficulty: str) -> None:
    solve(1, operations=350, difficulty=difficulty, render="scene")
    solve(2, operations=120, difficulty=difficulty, counted=0.1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("difficulty", BOTH)
@pytest.mark.parametrize("part", range(16))
def test_the_solver_solves_two_thousand_tasks_of_each_difficulty(
    part: int, difficulty: str
) -> None:
    # Larger tasks have fewer pictures per value, so each has about twenty.
    rng = Random(part)
    for seed in range(125 * part, 125 * (part + 1)):
        operations = rng.randint(1, 350)
        share = min(1.0, 10 / operations)
        solve(seed, operations=operations, difficulty=difficulty, counted=share, pictured=share)


@pytest.mark.parametrize("render", ["image", "scene"])
@pytest.mark.parametrize("difficulty", BOTH)
def test_the_frontier_from_what_is_seen_is_the_frontier_of_the_graph(
    difficulty: str, render: str
) -> None:
    for seed in range(3):
        world, rng = (
            generated(seed, operations=8, difficulty=difficulty, render=render),
            Random(seed),
        )
        solver, done = Solver(world.task()), set[int]()
        while world.known.answer is None:
            frontier = {world.graph.nodes[uid].file for uid in computable(world.graph, done)}
            assert (
                frontier
                == solver.frontier
                == set(world.known.unread())
                == set(world.known.useful())
            )
            file = rng.choice(sorted(frontier))
            solver.take(file, plain(world, file))
            done.add(world.graph.uids[file])
        assert solver.answer == world.known.answer


def test_half_of_the_numbers_and_of_their_rules_are_pictures() -> None:
    for options, low, high in (
        ({}, 0.4, 0.6),
        ({"counted": 0.0, "pictured": 0.0}, 0, 0),
        ({"counted": 1.0, "pictured": 1.0}, 1, 1),
    ):
        nodes = [
            node
            for seed in range(6)
            for node in generated(seed, operations=60, **options).graph.nodes
        ]
        numbers = [node for node in nodes if isinstance(node.content, int)]
        rules = [node for node in nodes if node.kind == "rule" and node.content.operator != "join"]
        for group in (numbers, rules):
            assert low <= sum(node.note is not None for node in group) / len(group) <= high


def test_irrelevant_documents_are_pictures_as_often_as_others() -> None:
    nodes = [
        n
        for s in range(6)
        for n in generated(s, operations=40, theta=3, distractor_documents=3.0).graph.nodes
        if not n.needed
    ]
    numbers = [node for node in nodes if isinstance(node.content, int)]
    assert len(numbers) > 100
    assert 0.35 < sum(node.note is not None for node in numbers) / len(numbers) < 0.65


@pytest.mark.rotation
def test_same_seed_same_bytes_in_another_process() -> None:
    code = (
        "import hashlib; from agentgym.envs.lore.multimodal_world import MultimodalWorld as W\n"
        "w = W(W.Config(operations=20, difficulty='hard', distractor_documents=0.5), 7); w.generate()\n"
        "print(hashlib.sha256(repr([w.task(), *((n.file, w.show(n)) for n in w.graph.nodes)]).encode()).hexdigest())"
    )
    world = default(7, operations=20, difficulty="hard", distractor_documents=0.5)
    here = repr([world.task(), *((node.file, world.show(node)) for node in world.graph.nodes)])
    for hash_seed in ("0", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        shown = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert shown.stdout.strip() == hashlib.sha256(here.encode()).hexdigest()


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


@pytest.mark.parametrize("render", ["image", "scene"])
def test_hints_are_functions_of_what_was_shown_in_all_settings(render: str) -> None:
    options: dict[str, Any] = {
        "render": render,
        "operations": 5,
        "difficulty": "hard",
        "distractor_documents": 1.0,
    }
    env = make("MultimodalWorld", **options)
    reader = RandomPolicy("MultimodalWorld")
    for seed in range(3):
        chat, _ = env.reset(seed=seed)
        noisy = NoisyPolicy("MultimodalWorld", 0.2, seed)
        while not tool_env(env).over:
            hidden: Any = tool_env(env).world
            seen: Any = reader.recall(ParsedChat.of(chat))
            compare(hidden, seen)
            chat, *_ = env.step(noisy([chat])[0].text)


def test_texts_that_were_cut_or_have_lost_their_picture_tell_nothing() -> None:
    for difficulty in BOTH:
        world = generated(
            1, operations=8, difficulty=difficulty, render="scene", distractor_fields=0.0
        )
        seen = MultimodalWorld.read_task(world.task())
        before = seen.state()
        for node in world.graph.nodes:
            text = str(world.show(node))
            for cut in (
                "[cleared]",
                "",
                text[:-1],
                text[: len(text) // 2],
                f"{text} And more.",
                *text.split("\n")[: "\n" in text],
            ):
                with pytest.raises(ValueError, match="this is not a document"):
                    seen.read_result(read(node.file), cut)
        assert seen.state() == before
    with pytest.raises(ValueError, match="this is not a task of MultimodalWorld"):
        MultimodalWorld.read_task("Find a way.\nTurn budget: 3")


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
    again = world.read_document(node.file)
    assert again == shown
    assert np.array_equal(change("flip_image", {"flip_type": "horizontal"}), original[:, ::-1])


def test_calls_that_cannot_be_carried_out_are_refused_and_change_nothing() -> None:
    world = generated(0, operations=6)
    start_file = world.known.useful()[0]
    with pytest.raises(
        ToolError,
        match=f'^no picture of a document "{start_file}" was shown: read it first, if it has one$',
    ):
        world.rotate_image(start_file, 90.0)
    for node in world.graph.nodes:
        world.read_document(node.file)
        if node.note is None:
            with pytest.raises(ToolError, match="no picture of a document"):
                world.flip_image(node.file, "vertical")
    file = pictured(world, "value")[0][0].file
    with pytest.raises(
        ToolError, match=r"^stretch_image: height_factor must be in \[0.1, 10\], got -1$"
    ):
        world.stretch_image(file, 1, -1)
    with pytest.raises(
        ToolError, match=r"^stretch_image: width_factor must be in \[0.1, 10\], got 0.0$"
    ):
        world.stretch_image(file, 0.0, 1)
    with pytest.raises(
        ToolError, match=r"^the picture would get 3840 x 384 pixels; both must be in \[16, 2048\]$"
    ):
        world.stretch_image(file, 10, 1)
    world.stretch_image(file, 0.1, 5)
    with pytest.raises(
        ToolError, match=r"^the picture would get 4 x 1920 pixels; both must be in \[16, 2048\]$"
    ):
        world.stretch_image(file, 0.1, 1)
    assert len(world._views[file][0]) == 1
    for _ in range(15):
        world.flip_image(file, "horizontal")
    with pytest.raises(
        ToolError, match="was changed 16 times: read the document again to start afresh"
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
    best = inner.world.optimal_calls()[0]
    info = env.step(reply(turn, flip, best))[4]
    assert (info["labels"], info["optimal"]) == (("neutral", "neutral", "optimal"), True)
    info = env.step(
        reply(read(file), turn, flip, ToolCall("rotate_image", {"doc_id": "v1%no", "angle": 1}))
    )[4]
    assert info["labels"] == ("redundant", "neutral", "redundant", "invalid")
    assert env.step(reply(flip))[4]["labels"] == ("redundant",)


def test_pictures_are_drawn_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> bytes:
        raise AssertionError("drawn too early")

    monkeypatch.setattr("agentgym.envs.lore.multimodal_world.draw_scene", fail)
    monkeypatch.setattr("agentgym.envs.lore.multimodal_world.draw_expression", fail)
    world = generated(0, operations=50)
    assert world.task()
    with pytest.raises(AssertionError, match="drawn too early"):
        pictured(world, "value")


def test_without_pillow_scenes_are_played_and_pictures_ask_for_it() -> None:
    code = (
        "import sys\n"
        "import agentgym\n"
        "print('PIL' in sys.modules)\n"
        "sys.modules['PIL'] = None\n"
        "from agentgym.oracles import OraclePolicy\n"
        "from agentgym.training.rollout import rollout\n"
        "print(rollout(agentgym.make('MultimodalWorld', render='scene'), OraclePolicy('MultimodalWorld'), 0).reward)\n"
        "for act in (lambda: agentgym.make('MultimodalWorld'), agentgym.Image(b'').to_array):\n"
        "    try:\n"
        "        act()\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    otherwise = "or let MultimodalWorld describe the pictures in words with render='scene'"
    why = "pictures need Pillow: pip install 'agentgym[images]'"
    assert shown == [
        "False",
        "1.0",
        f"MultimodalWorld needs PIL: pip install 'agentgym[images]'; {otherwise}",
        why,
    ]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"render": "pixels"}, "render must be one of image, scene, got 'pixels'"),
        ({"counted": 1.5}, "counted must be a number in [0.0, 1.0], got 1.5"),
        ({"pictured": -1}, "pictured must be a number in [0.0, 1.0], got -1"),
        (
            {"weights": {"max": 1.0}, "difficulty": "hard"},
            "weights must be one of add, subtract, join, got 'max'",
        ),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_value_and_its_range(
    options: dict[str, object], why: str
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is compared whole
        make("MultimodalWorld", **options)
    assert str(refused.value) == why
