"""Trajectories as chat rows for fine-tuning, and token rows with sampled ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from agentgym.assemble.registry import make
from agentgym.oracles import OraclePolicy
from agentgym.text.messages import Chat, Message
from agentgym.text.parsing import parse
from agentgym.text.validation import check_choice
from agentgym.training.rl.token_rows import TrainingRow, join
from agentgym.training.rollout import Step, Trajectory, rollout
from agentgym.training.rollout.storage import replacing

Format = Literal["jsonl", "parquet"]
# Rows per Arrow batch, limited because long chats must fit into memory.
_BATCH = 256


class EpisodeFacts(TypedDict):
    """Fields that chat rows and token rows share; see `ChatRow`."""

    reward: float
    group_id: str
    episode_id: str
    seed: int
    terminated: bool
    truncated: bool
    failure: str


class ChatRow(EpisodeFacts):
    """A segment of an episode as chat-completions messages.

    `tools` and `labels` are JSON strings, because Arrow would merge the schemas of all tools;
    pass `json.loads(row["tools"])` to chat templates. To train on replies exactly as written, put
    `{"role": "assistant", "content": reply}` at the positions in `trainable`.

    Attributes:
        messages: The last prompt and its reply.
        trainable: The positions of this segment's `replies` in `messages`. Other assistant messages
            are summaries, examples or replies of earlier segments.
        reward: The agent's reward for the whole episode.
        group_id: The id of the GRPO group, shared by all episodes of one spec and seed in every
            process.
        episode_id: An id that all rows of an episode share, unique within the export.
        terminated: Whether the episode ended by itself, so that no value is bootstrapped.
        truncated: Whether a limit ended the episode, so that a value may be bootstrapped.
        failure: The reason why the episode does not measure the policy, such as a dead worker;
            otherwise empty.
    """

    messages: list[dict[str, Any]]
    trainable: list[int]
    replies: list[str]
    tools: str
    agent: str
    episode: int
    segment: int
    is_last: bool
    labels: str


class TokenRow(TypedDict):
    """Consecutive steps in which each prompt extends the previous prompt and reply.

    Attributes:
        input_ids: The token ids of the last prompt and its reply.
        loss_mask: 1 for ids sampled in the row's steps, 0 elsewhere.
        logprobs: The sampler's log-probabilities in nats, 0.0 for other ids; None if a reply
            has no log-probabilities.
        prompt_length: The number of ids before the first sampled id.
        advantage: None, to be filled by the trainer.
        segment: The index in `Trajectory.segments`.
    """

    input_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float] | None
    prompt_length: int
    reward: float
    agent: str
    advantage: float | None
    segment: int
    steps: list[int]
    is_last: bool


class TrainingDict(EpisodeFacts):
    """An episode as token rows; for the other fields, see `ChatRow`.

    docs/training.md maps the fields to other trainers' names.
    """

    rows: list[TokenRow]
    labels: Mapping[str, Any]


def group_id(trajectory: Trajectory) -> str:
    """Return the id shared by all episodes of one spec and seed."""
    return group_of(trajectory.spec, trajectory.seed)


def group_of(spec: str, seed: int) -> str:
    """Return the `group_id` of episodes with this spec (JSON text, keys in any order)."""
    ordered = json.dumps(json.loads(spec), sort_keys=True)
    return f"{hashlib.sha256(ordered.encode()).hexdigest()[:12]}-{seed}"


def to_chat_rows(trajectory: Trajectory, episode: int = 0) -> list[ChatRow]:
    """Return one row per segment; every reply is trainable in exactly one row. A step in which the
    policy ended the episode without a reply (`Step.ended`) is omitted.
    """
    dialect = json.loads(trajectory.spec).get("kwargs", {}).get("dialect", "auto")
    rows: list[ChatRow] = []
    segments: list[list[int]] = []
    for part in trajectory.segments():
        segments.append([k for k in part if not trajectory.steps[k].ended])
    segments, group = list(filter(None, segments)), group_id(trajectory)
    for number, segment in enumerate(segments):
        steps = [trajectory.steps[k] for k in segment]
        reply = _as_message(steps[-1], _after(trajectory, segment[-1]), dialect)
        chat = steps[-1].chat.add(reply)
        messages, tools = chat.to_openai(), [tool.to_openai() for tool in chat.tools]
        agent = trajectory.agent_of(segment[0])
        rows.append(
            ChatRow(
                messages=messages,
                trainable=_positions(chat, messages, {len(step.chat.messages) for step in steps}),
                replies=[step.reply.text for step in steps],
                tools=json.dumps(tools, ensure_ascii=False),
                reward=trajectory.reward_of(agent),
                agent=agent,
                group_id=group,
                episode_id=f"{group}-{episode}",
                seed=trajectory.seed,
                episode=episode,
                segment=number,
                is_last=number == len(segments) - 1,
                terminated=trajectory.terminated,
                truncated=trajectory.truncated,
                failure=trajectory.failure,
                labels=json.dumps(dict(trajectory.labels), ensure_ascii=False),
            )
        )
    return rows


def _after(trajectory: Trajectory, step: int) -> Chat:
    agent = trajectory.steps[step].info.get("agent")
    for later in trajectory.steps[step + 1 :]:
        if later.info.get("agent") == agent:
            return later.chat
    return trajectory.last


def _as_message(step: Step, after: Chat, dialect: Any) -> Message:
    for message in reversed(after.messages):
        if message.role == "assistant" and message.raw == step.reply.text:
            return message
    number = int(step.info.get("turn", 0))
    if "agent" in step.info:
        # In a team, `turn` does not count one agent's replies, so derive ids from the chat length.
        number = len(step.chat.messages)
    return parse(step.reply.text, dialect, step.chat.tools, number)


def _positions(chat: Chat, messages: list[dict[str, Any]], replied: set[int]) -> list[int]:
    reply_places = [k for k, message in enumerate(messages) if message["role"] == "assistant"]
    replies = [k for k, message in enumerate(chat.messages) if message.role == "assistant"]
    return [there for there, here in zip(reply_places, replies, strict=True) if here in replied]


def to_training_dict(trajectory: Trajectory, episode: int = 0) -> TrainingDict:
    """Return the episode as rows of the recorded token ids; nothing is tokenised again.

    A new row starts with each segment, and whenever a prompt does not extend the ids of the
    previous prompt and reply. Every sampled id is thus trained once, with its original context.
    Replies without ids are omitted.

    Raises:
        ValueError: No reply has ids although the episode did not fail, or a reply's ids and
            log-probabilities differ in number.
    """
    rows: list[TokenRow] = []
    for k, segment in enumerate(trajectory.segments()):
        replies = [(step, trajectory.steps[step].reply) for step in segment]
        rows += [_token_row(trajectory, row, k) for row in join(replies)]
    if not rows and not trajectory.failure:
        raise ValueError(
            "no reply of this trajectory has token ids; use a policy that records them, "
            "or use to_chat_rows"
        )
    if rows:
        rows[-1]["is_last"] = True
    return TrainingDict(
        rows=rows,
        reward=trajectory.reward,
        group_id=group_id(trajectory),
        episode_id=f"{group_id(trajectory)}-{episode}",
        seed=trajectory.seed,
        terminated=trajectory.terminated,
        truncated=trajectory.truncated,
        failure=trajectory.failure,
        labels=dict(trajectory.labels),
    )


def _token_row(trajectory: Trajectory, row: TrainingRow, segment: int) -> TokenRow:
    agent = trajectory.agent_of(row.steps[0])
    return TokenRow(
        reward=trajectory.reward_of(agent),
        agent=agent,
        input_ids=list(row.ids),
        loss_mask=list(row.sampled),
        logprobs=None if row.logprobs is None else list(row.logprobs),
        prompt_length=row.sampled.index(1),
        advantage=None,
        segment=segment,
        steps=list(row.steps),
        is_last=False,
    )


def demonstrations(env_id: str, seeds: Iterable[int], **options: Any) -> Iterator[ChatRow]:
    """Yield the oracle policy's rows, one episode per seed."""
    env = make(env_id, **options)
    policy = OraclePolicy(env_id, dialect=options.get("dialect", "auto"))
    for episode, seed in enumerate(seeds):
        yield from to_chat_rows(rollout(policy, env, seed, {"policy": "oracle"}), episode)


def export(trajectories: Iterable[Trajectory], path: Path, format: Format = "jsonl") -> int:
    """Write the chat rows of all episodes that did not fail; see `write_rows`."""

    def rows() -> Iterator[ChatRow]:
        for episode, trajectory in enumerate(trajectories):
            if not trajectory.failure:
                yield from to_chat_rows(trajectory, episode)

    return write_rows(rows(), path, format)


def write_rows(rows: Iterable[ChatRow], path: Path, format: Format = "jsonl") -> int:
    """Write rows as `jsonl` or `parquet`, atomically, and return their number."""
    check_choice("format", format, get_args(Format))
    return _write_jsonl(rows, path) if format == "jsonl" else _write_parquet(rows, path)


def _write_jsonl(rows: Iterable[ChatRow], path: Path) -> int:
    count = 0
    with replacing(path) as file:
        for row in rows:
            file.write(f"{json.dumps(row, ensure_ascii=False)}\n".encode())
            count += 1
    return count


def _write_parquet(rows: Iterable[ChatRow], path: Path) -> int:
    import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415 - JSON lines need no Arrow
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    schema = _arrow_schema()
    count, remaining = 0, iter(rows)
    with replacing(path) as whole, pq.ParquetWriter(whole, schema) as file:
        while batch := list(islice(remaining, _BATCH)):
            for row in batch:
                if any(not isinstance(message["content"], str) for message in row["messages"]):
                    raise ValueError(
                        f"episode {row['episode']} contains images, which require the format "
                        "'jsonl'"
                    )
            file.write_table(pa.Table.from_pylist(batch, schema))
            count += len(batch)
    return count


def _arrow_schema() -> Any:
    """Return an explicit schema, so that columns do not depend on the first rows."""
    import pyarrow as pa  # noqa: PLC0415 - JSON lines need no Arrow

    text = pa.string()
    function = pa.struct({"name": text, "arguments": text})
    call = pa.struct({"id": text, "type": text, "function": function})
    names = ("role", "content", "reasoning_content", "tool_call_id")
    message = pa.struct({**dict.fromkeys(names, text), "tool_calls": pa.list_(call)})
    return pa.schema(
        {
            "messages": pa.list_(message),
            "trainable": pa.list_(pa.int64()),
            "replies": pa.list_(text),
            "tools": text,
            "reward": pa.float64(),
            "agent": text,
            **dict.fromkeys(("group_id", "episode_id"), text),
            **dict.fromkeys(("seed", "episode", "segment"), pa.int64()),
            **dict.fromkeys(("is_last", "terminated", "truncated"), pa.bool_()),
            **dict.fromkeys(("failure", "labels"), text),
        }
    )
