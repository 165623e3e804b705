from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import STRATEGIES, Chat, Image, Message, Reply, ToolCall, make, render
from agentgym.oracles import NoisyPolicy
from agentgym.training.integrations import (
    ChatRow,
    demonstrations,
    export,
    group_id,
    to_chat_rows,
    to_training_dict,
    write_rows,
)
from agentgym.training.integrations.datasets import group_of
from agentgym.training.rollout import Episode, Step, Trajectory, replay, rollout
from agentgym.wrappers.compaction import SUMMARY_FOLLOWS

CONTEXTS = ("none", *STRATEGIES, "clear_results+memory", "+".join(STRATEGIES))


def play(
    context: str = "none",
    window: int = 1_500,
    seed: int = 2,
    world: str = "TreeWorld",
    **options: Any,
) -> Trajectory:
    env = make(
        world,
        context=context,
        window=window,
        **({"nodes": 60} if world == "TreeWorld" else {}),
        **options,
    )
    return rollout(NoisyPolicy(world, 0.1), env, seed, {"context": context})


class Tokens:
    """Policy with token ids: each character is an id, and a prompt is the messages' text."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [
            self._reply(chat, reply) for chat, reply in zip(chats, self.policy(chats), strict=True)
        ]

    def _reply(self, chat: Chat, reply: Reply) -> Reply:
        said = "".join(f"<{m.role}>{m.raw or m.text}" for m in chat.messages) + "<assistant>"
        ids = tuple(map(ord, reply.text))
        return Reply(reply.text, tuple(map(ord, said)), ids, tuple(-k / 1_000 for k in ids))


@pytest.mark.parametrize("scope", ["persistent", "ephemeral"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_each_reply_is_trainable_in_one_row(context: str, scope: str) -> None:
    trajectory = play(context, 4_000, oracles="SP", hint_scope=scope)
    rows = to_chat_rows(trajectory, 7)
    assert [text for row in rows for text in row["replies"]] == [
        step.reply.text for step in trajectory.steps
    ]
    for number, (row, segment) in enumerate(zip(rows, trajectory.segments(), strict=True)):
        shown = trajectory.steps[segment[-1]].chat
        assert row["messages"][:-1] == shown.to_openai()
        assert row["trainable"][-1] == len(row["messages"]) - 1
        assert len(row["trainable"]) == len(row["replies"]) == len(segment)
        for place, k in zip(row["trainable"], segment, strict=True):
            assert row["messages"][:place] == trajectory.steps[k].chat.to_openai(), (
                "a reply stands after what it answered"
            )
            assert row["messages"][place]["role"] == "assistant"
        facts = {"episode": 7, "segment": number, "seed": 2, "reward": trajectory.reward}
        facts |= {"terminated": trajectory.terminated, "truncated": trajectory.truncated}
        facts |= {"group_id": group_id(trajectory), "episode_id": f"{group_id(trajectory)}-7"}
        facts |= {"is_last": number == len(rows) - 1, "failure": ""}
        assert facts.items() <= row.items()
        assert json.loads(row["tools"]) == [tool.to_openai() for tool in shown.tools]
        assert json.loads(row["labels"]) == {"context": context}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["ListWorld", "TreeWorld", "GridWorld"]),
    st.sampled_from(CONTEXTS),
    st.integers(1_200, 4_000),
    st.integers(0, 50),
    st.sampled_from(["", "S", "SP"]),
)
def test_every_sampled_id_is_trained_once(
    world: str, context: str, window: int, seed: int, oracles: str
) -> None:
    env = make(world, context=context, window=window, oracles=oracles)
    trajectory = rollout(Tokens(NoisyPolicy(world, 0.2)), env, seed)
    rows = to_training_dict(trajectory)["rows"]
    assert [k for row in rows for k in row["steps"]] == [
        k for k, step in enumerate(trajectory.steps) if step.reply.ids
    ]
    for row in rows:
        assert len(row["input_ids"]) == len(row["loss_mask"])
        masked = 0
        for k in row["steps"]:
            reply = trajectory.steps[k].reply
            start, end = len(reply.prompt_ids), len(reply.prompt_ids) + len(reply.ids)
            assert tuple(row["input_ids"][:end]) == reply.prompt_ids + reply.ids
            assert row["loss_mask"][start:end] == [1] * len(reply.ids)
            if row["logprobs"] is not None:
                assert tuple(row["logprobs"][start:end]) == reply.logprobs
            masked += len(reply.ids)
        assert sum(row["loss_mask"]) == masked


def test_the_last_reply_of_a_segment_is_as_the_env_took_it() -> None:
    trajectory = play("clear_results", window=1_200, seed=4)
    assert len(trajectory.segments()) > 1
    for row, segment in zip(to_chat_rows(trajectory), trajectory.segments(), strict=True):
        step = trajectory.steps[segment[-1]]
        call = row["messages"][-1]["tool_calls"][0]
        assert call["function"]["name"] in step.reply.text
        assert call["id"] == f"call_{segment[-1] + 1}_0"


def test_calls_that_the_env_did_not_take_are_in_the_text_only() -> None:
    two = render(ToolCall("pop", {"id": 0})) + render(ToolCall("done", {}))
    trajectory = rollout(lambda chats: [Reply(two) for _ in chats], make("ListWorld"), 0)
    (row,) = to_chat_rows(trajectory)
    assert set(row["replies"]) == {two}
    assert not [k for k in row["trainable"] if "tool_calls" in row["messages"][k]]


def test_a_summary_is_trained_in_the_row_that_asks_for_it() -> None:
    rows = to_chat_rows(play("compaction", window=1_200, seed=4))
    summaries = [row for row in rows if row["replies"][-1].startswith("<state>")]
    assert len(summaries) == len(rows) - 1 > 0
    for row in summaries:
        assert "reply with a summary" in row["messages"][-2]["content"]
        assert row["messages"][-1] == {"role": "assistant", "content": row["replies"][-1]}
    after = rows[1]["messages"]
    place = next(
        k for k, message in enumerate(after) if message["content"].startswith(SUMMARY_FOLLOWS)
    )
    assert after[place - 1]["role"] == "assistant"
    assert place - 1 not in rows[1]["trainable"], "the summary was trained before"


@pytest.mark.parametrize("ended", ["left", "over_window", "of its own"])
@pytest.mark.parametrize("replies", [0, 2])
def test_an_end_without_a_reply_is_not_trained(ended: str, replies: int) -> None:
    episode = Episode(make("ListWorld"), 0)
    for _ in range(replies):
        episode.play(Reply("a"))
    episode.play(Reply("", ended=ended))
    recorded = [episode.trajectory()]
    if ended != "of its own":
        recorded.append(Trajectory.from_json(recorded[0].to_json()))
    for trajectory in recorded:
        rows = to_chat_rows(trajectory)
        assert [reply for row in rows for reply in row["replies"]] == ["a"] * replies
        assert [k for row in rows for k in row["trainable"]] == [2, 4][:replies]
        assert replay(trajectory) == trajectory


def test_examples_are_not_trained() -> None:
    trajectory = play("none", window=100_000, shots=1)
    (row,) = to_chat_rows(trajectory)
    said = [k for k, message in enumerate(row["messages"]) if message["role"] == "assistant"]
    assert len(said) > len(trajectory.steps) == len(row["trainable"])
    assert row["trainable"] == said[-len(trajectory.steps) :]


def drawn() -> Trajectory:
    chat = Chat((Message("system", "s", id="0:0"), Message("user", "t", id="0:1")))
    reply = Message("assistant", "a", calls=(ToolCall("f", {}, "c"),), id="1:0", raw="A")
    after = chat.add(reply, Message("tool", "seen", call_id="c", images=(Image(b"x"),), id="1:1"))
    steps = Step(chat, Reply("A"), 0.0, {}), Step(after, Reply("B"), 1.0, {})
    return Trajectory(
        '{"id": "x"}', 0, steps, after.add(Message("assistant", "B", raw="B")), True, False
    )


def test_pictures_move_the_positions(tmp_path: Path) -> None:
    (row,) = to_chat_rows(drawn())
    roles = "system user assistant tool user assistant"
    assert [message["role"] for message in row["messages"]] == roles.split()
    assert row["trainable"] == [2, 5]
    assert export([drawn()], tmp_path / "rows.jsonl") == 1
    with pytest.raises(
        ValueError, match="episode 0 contains images, which require the format 'jsonl'"
    ):
        export([drawn()], tmp_path / "rows.parquet", "parquet")


def test_the_id_of_a_group_is_a_digest_of_the_sorted_spec() -> None:
    expected = hashlib.sha256(b'{"a": {}, "b": [1]}').hexdigest()[:12]
    assert group_of('{"b": [1], "a": {}}', 7) == f"{expected}-7"


def test_failed_episodes_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    failed = replace(tokens(ONE, TWO), failure="the worker died")
    assert export([tokens(ONE), failed, tokens(ONE, AFRESH)], path) == 2
    assert [json.loads(line)["episode"] for line in path.read_text().splitlines()] == [0, 2]
    assert to_training_dict(replace(tokens(), failure="the worker died"))["rows"] == []


def tokens(*replies: Reply, broken: Sequence[int] = ()) -> Trajectory:
    """Return a trajectory with these replies; the chat is edited before each reply in `broken`."""
    chat = Chat((Message("user", "t", id="0:1"),))
    steps = []
    for k, reply in enumerate(replies):
        chat = Chat((Message("user", f"edited {k}", id="0:1"),)) if k in broken else chat
        steps.append(Step(chat, reply, 1.0, {"turn": k + 1}))
        chat = chat.add(
            Message("assistant", reply.text, id=f"{k + 1}:0", raw=reply.text),
            Message("user", "next"),
        )
    return Trajectory('{"id": "x"}', 3, tuple(steps), chat, True, False, {"arm": "S"})


ONE = Reply("one", (1, 2), (3, 4), (-0.1, -0.2))
TWO = Reply("two", (1, 2, 3, 4, 5), (6,), (-0.3,))
AFRESH = Reply("two", (1, 2, 9), (6,), (-0.3,))


def test_masks_by_hand() -> None:
    made = to_training_dict(tokens(ONE, TWO))
    row = {
        "input_ids": [1, 2, 3, 4, 5, 6],
        "loss_mask": [0, 0, 1, 1, 0, 1],
        "logprobs": [0.0, 0.0, -0.1, -0.2, 0.0, -0.3],
        "prompt_length": 2,
        "reward": 2.0,
        "agent": "",
        "advantage": None,
        "segment": 0,
        "steps": [0, 1],
        "is_last": True,
    }
    group = group_id(tokens(ONE))
    facts = {"reward": 2.0, "seed": 3, "labels": {"arm": "S"}, "rows": [row]}
    facts |= {"terminated": True, "truncated": False, "failure": ""}
    assert made == {**facts, "group_id": group, "episode_id": f"{group}-0"}
    assert to_training_dict(tokens(ONE), 5)["episode_id"] == f"{group}-5"


@pytest.mark.parametrize(("second", "broken", "segment"), [(AFRESH, [], 0), (TWO, [1], 1)])
def test_other_ids_or_an_edit_begin_a_row(second: Reply, broken: list[int], segment: int) -> None:
    rows = to_training_dict(tokens(ONE, second, broken=broken))["rows"]
    length = len(second.prompt_ids)
    assert [(row["input_ids"], row["loss_mask"], row["steps"]) for row in rows] == [
        ([1, 2, 3, 4], [0, 0, 1, 1], [0]),
        ([*second.prompt_ids, 6], [*[0] * length, 1], [1]),
    ]
    assert [(row["segment"], row["prompt_length"], row["is_last"]) for row in rows] == [
        (0, 2, False),
        (segment, length, True),
    ]


def test_replies_without_ids_are_left_out_and_missing_logprobs_are_said() -> None:
    (row,) = to_training_dict(tokens(ONE, replace(TWO, logprobs=())))["rows"]
    assert (row["logprobs"], row["loss_mask"]) == (None, [0, 0, 1, 1, 0, 1])
    rows = to_training_dict(tokens(ONE, Reply("scripted"), TWO))["rows"]
    assert [row["steps"] for row in rows] == [[0], [2]]
    assert rows[1]["loss_mask"] == [0, 0, 0, 0, 0, 1]
    silent = to_training_dict(
        tokens(ONE, Reply("", (1, 2, 3, 4, 5)), Reply("x", (1, 2, 3, 4, 5, 6), (7,), (-1.0,)))
    )["rows"]
    assert [(row["steps"], row["loss_mask"]) for row in silent] == [([0, 2], [0, 0, 1, 1, 0, 0, 1])]
    with pytest.raises(ValueError, match="no reply of this trajectory has token ids; use a policy"):
        to_training_dict(tokens(Reply("scripted")))
    with pytest.raises(ValueError, match="step 1 has 1 ids and 2 logprobs; record one for each id"):
        to_training_dict(tokens(ONE, replace(TWO, logprobs=(-1.0, -2.0))))


@pytest.fixture(scope="module")
def played() -> list[Trajectory]:
    return [
        play(context, 2_500, seed, oracles="S")
        for context in ("compaction+memory", "none", "clear_thinking")
        for seed in (0, 1)
    ]


def plain(row: Any) -> Any:
    return {
        **row,
        "messages": [
            {key: value for key, value in message.items() if value is not None}
            for message in row["messages"]
        ],
    }


READERS: dict[str, Callable[[Path], Any]] = {
    "jsonl": lambda path: map(json.loads, path.read_text(encoding="utf-8").splitlines()),
    "parquet": lambda path: pq.read_table(path).to_pylist(),
}


@pytest.mark.parametrize("format", READERS)
def test_files_are_read_back(format: Any, played: list[Trajectory], tmp_path: Path) -> None:
    path = tmp_path / "rows"
    expected = [row for k, each in enumerate(played) for row in to_chat_rows(each, k)]
    assert export(iter(played), path, format) == len(expected)
    assert [plain(row) for row in READERS[format](path)] == expected
    loader = "json" if format == "jsonl" else format
    options = {"cache_dir": str(tmp_path / "cache"), "split": "train"}
    loaded = datasets.load_dataset(loader, data_files=str(path), **options)
    assert [plain(row) for row in loaded] == expected


@pytest.mark.parametrize("format", READERS)
def test_no_rows_make_a_file_too(format: Any, tmp_path: Path) -> None:
    assert write_rows([], tmp_path / "rows", format) == 0
    assert (tmp_path / "rows").exists()


def test_rows_are_written_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    (row,) = to_chat_rows(drawn())
    big = 1_000

    def rows() -> Iterator[ChatRow]:
        for k in range(big):
            yield row
            assert k < big - 1 or path.with_name("rows.jsonl.new").stat().st_size > 0

    assert write_rows(rows(), path) == big


@pytest.mark.parametrize("dialect", ["json", "python"])
def test_demonstrations_solve_the_task(dialect: str, tmp_path: Path) -> None:
    rows = list(demonstrations("TreeWorld", range(5, 8), dialect=dialect, nodes=20))
    assert [row["seed"] for row in rows] == [5, 6, 7]
    assert [row["episode"] for row in rows] == [0, 1, 2]
    assert {row["reward"] for row in rows} == {1.0}
    assert all(
        reply.startswith("```python" if dialect == "python" else "<tool_call>")
        for row in rows
        for reply in row["replies"]
    )
    assert all(row["messages"][k]["tool_calls"] for row in rows for k in row["trainable"])
    assert json.loads(rows[0]["labels"]) == {"policy": "oracle"}
    assert write_rows(rows, tmp_path / "rows.parquet", "parquet") == 3


@pytest.mark.parametrize("format", READERS)
def test_an_export_that_breaks_leaves_what_was_there(
    format: Any, played: list[Trajectory], tmp_path: Path
) -> None:
    path = tmp_path / "rows"
    export(played, path, format)
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}

    def breaking() -> Iterator[Trajectory]:
        yield played[0]
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        export(breaking(), path, format)
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == before
