from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

import agentgym
from agentgym import Chat, Image, Message, Reply, ToolCall
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.training.evaluation import score
from agentgym.training.rollout import Step, Trajectory, replay, rollout
from agentgym.training.rollout.lines import encode_lines, read_chunk, read_chunks, torn_at
from agentgym.training.rollout.storage import append_bytes, cut_torn_line, whole_lines
from agentgym.wrappers import EditMessages

ARMS = [
    (arm, scope, shots)
    for arm in agentgym.ARMS
    for scope in ("persistent", "ephemeral")
    for shots in (0, 1)
]


def play(
    arm: str = "", scope: str = "persistent", shots: int = 0, world: str = "TreeWorld"
) -> Trajectory:
    env = agentgym.make(
        world, oracles=arm, hint_scope=scope, shots=shots, labels=True, budget_slack=6
    )
    labels = {"world": world, "arm": arm, "horizon": 12}
    return rollout(NoisyPolicy(world, 0.3), env, 5, labels)


@pytest.mark.parametrize(("arm", "scope", "shots"), ARMS)
def test_a_line_holds_all_and_can_be_replayed(arm: str, scope: str, shots: int) -> None:
    trajectory = play(arm, scope, shots)
    line = trajectory.to_json()
    again = Trajectory.from_json(line)
    assert "\n" not in line
    details = [step.info["detail"] for step in (*trajectory.steps, *again.steps)]
    assert {type(detail) for detail in details} == {agentgym.StepInfo}, "as in env.step"
    assert all(detail["ended"] == detail.ended for detail in details)
    assert again == trajectory
    assert again.to_json() == line
    assert replay(again) == trajectory
    assert score(again) == score(trajectory)


def test_tokens_images_and_thinking_survive() -> None:
    message = Message(
        "assistant",
        "x",
        "why",
        (ToolCall("f", {"a": [1, None]}, "c"),),
        id="1:0",
        raw="<think>why</think>x",
    )
    chat = Chat((Message("user", "look", images=(Image(b"\x89PNG", "a dot"),), id="0:1"), message))
    trajectory = Trajectory(
        '{"id": "x"}',
        3,
        (Step(chat, Reply("x", (1, 2), (3,), (-0.5,)), 0.5, {}),),
        chat.add(Message("tool", "ok")),
        True,
        False,
    )
    assert Trajectory.from_json(trajectory.to_json()) == trajectory
    assert trajectory.reward == 0.5


def test_replay_notices_another_episode() -> None:
    trajectory = play()
    short = replace(trajectory, steps=trajectory.steps[:1])
    with pytest.raises(ValueError, match="did not end at the last recorded reply"):
        replay(short)
    long = replace(trajectory, steps=(*trajectory.steps, trajectory.steps[-1]))
    with pytest.raises(ValueError, match="episode ended before the last recorded reply"):
        replay(long)
    with pytest.raises(ValueError, match="the recorded episode failed: its worker died"):
        replay(replace(short, failure="its worker died"))


def test_a_spec_that_no_log_can_hold_is_refused_with_the_remedy() -> None:
    env = EditMessages(agentgym.make("ListWorld"), lambda messages: messages)
    with pytest.raises(ValueError, match=r"pass functions as 'package\.module:function'"):
        rollout(OraclePolicy("ListWorld"), env, 0)


def test_score_counts_labels() -> None:
    trajectory = play()
    result, infos = score(trajectory), [step.info for step in trajectory.steps]
    assert (result.steps, result.optimal) == (len(infos), sum(info["optimal"] for info in infos))
    assert result.alive_optimal == sum(info["optimal"] and info["alive"] for info in infos)
    with pytest.raises(ValueError, match="no label 'world'"):
        score(replace(trajectory, labels={}))


LINES = [f"{number} ".encode() * (40 * number) + b"\n" for number in range(1, 6)]
NAMES = ["t.jsonl", "t.jsonl.zst"]


def written(path: Path) -> list[bytes]:
    path.write_bytes(encode_lines(path, LINES))
    return [line for _, line in whole_lines(path)]


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_read_as_they_were_written_and_found_one_by_one(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    assert written(path) == LINES
    chunks = list(read_chunks(path))
    assert [read_chunk(path, chunk.start, chunk.end) for chunk in chunks] == chunks
    assert [chunk.lines for chunk in read_chunks(path, chunks[2].start)] == [
        (line,) for line in LINES[2:]
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_was_cut_anywhere_is_read_and_goes_on(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    written(path)
    whole = path.read_bytes()
    ends = [0, *(chunk.end for chunk in read_chunks(path))]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends) - 1
        assert torn_at(path) == ends[kept]
        cut_torn_line(path)
        append_bytes(path, encode_lines(path, [b"new\n"]))
        assert [line for _, line in whole_lines(path)] == [*LINES[:kept], b"new\n"]


@pytest.mark.parametrize("size", [1, 3])
def test_a_damaged_byte_costs_its_frame_alone(tmp_path: Path, size: int) -> None:
    path = tmp_path / "t.jsonl.zst"
    written(path)
    whole = path.read_bytes()
    chunks = list(read_chunks(path))
    for place in range(len(whole)):
        hit = bytes(byte ^ 0x55 for byte in whole[place : place + size])
        path.write_bytes(whole[:place] + hit + whole[place + size :])
        lines = [line for _, line in whole_lines(path)]
        touched = [c for c in chunks if c.start < place + size and place < c.end]
        # If the flag that marks a frame's last block is damaged, the next frame may be lost too.
        lost = {
            index for chunk in touched for index in (chunks.index(chunk), chunks.index(chunk) + 1)
        }
        assert [line for k, line in enumerate(LINES) if k not in lost] == [
            line for line in lines if line in LINES and LINES.index(line) not in lost
        ]


def test_a_file_that_zstd_has_made_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.zst"
    path.write_bytes(zstandard.compress(b"".join(LINES)))
    assert [line for _, line in whole_lines(path)] == LINES
    append_bytes(path, encode_lines(path, LINES))
    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        assert reader.read() == b"".join(LINES * 2)


def test_what_is_no_frame_is_a_line_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.zst"
    path.write_bytes(b'{"plain": 1}\n' + encode_lines(path, LINES))
    assert [line for _, line in whole_lines(path)] == [b'{"plain": 1}\n', *LINES]
