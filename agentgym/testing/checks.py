"""Laws for every step: the results that an env may return for a reply."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, get_args

import gymnasium

from agentgym.play.env import MAX_ERROR_CHARS
from agentgym.text.messages import Chat, Message, Role
from agentgym.text.tool_results import ERROR_CUT

StepResult = tuple[Any, Any, Any, Any, Any]

_ROLES = frozenset(get_args(Role))
_ERROR = "error: "


def to_jsonable(value: Any) -> Any:
    """Convert a dataclass in `info` to JSON-able data."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def faults_of_result(
    env: gymnasium.Env[Any, Any], before: Chat, result: StepResult
) -> Iterator[str]:
    """Yield the errors in the result of a step; a reset counts as a step with reward 0."""
    chat, reward, terminated, truncated, info = result
    if not env.observation_space.contains(chat):
        yield f"the observation is not in the space: {type(chat).__name__}"
        return
    yield from _faults_of_chat(chat, before)
    over = terminated or truncated
    if not isinstance(terminated, bool) or not isinstance(truncated, bool):
        yield f"terminated and truncated are not bool: {terminated!r}, {truncated!r}"
    elif terminated and truncated:
        yield "the episode is both terminated and truncated"
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        yield f"the reward is not a number: {type(reward).__name__}"
    elif not math.isfinite(reward) or not 0.0 <= reward <= 1.0:
        yield f"the reward is not in [0, 1]: {reward!r}"
    elif reward and not over:
        yield f"the reward is {reward!r} before the end"
    yield from _faults_of_info(info)


def _faults_of_info(info: Any) -> Iterator[str]:
    try:
        json.dumps(info, default=to_jsonable, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        yield f"the info cannot be written as JSON: {error}"
    if not isinstance(info, dict) or not all(isinstance(name, str) for name in info):
        yield "the info is not a dict with string keys"
        return
    score = getattr(info.get("detail"), "score", None)
    if score is not None and not (math.isfinite(score) and 0.0 <= score <= 1.0):
        yield f"the score in the info is not in [0, 1]: {score!r}"


def _faults_of_chat(chat: Chat, before: Chat) -> Iterator[str]:
    for message in chat.messages[chat.shared_prefix(before) :]:
        yield from _faults_of_message(message)
    ids = [message.id for message in chat.messages]
    if len(set(ids)) != len(ids):
        twice = next(each for each in ids if ids.count(each) > 1)
        yield f"two messages have the id {twice!r}"
    open_calls: set[str] = set()
    for message in chat.messages:
        if message.role == "tool":
            if message.call_id not in open_calls:
                yield f"the result {message.id!r} does not answer a call in the chat"
            open_calls.discard(message.call_id)
        elif open_calls:
            yield f"no result answers the call {sorted(open_calls)[0]!r}"
            open_calls = set()
        if message.role == "assistant":
            open_calls = {call.id for call in message.calls}
    if open_calls:
        yield f"no result answers the call {sorted(open_calls)[0]!r}"


def _faults_of_message(message: Message) -> Iterator[str]:
    where = f"message {message.id!r}"
    if message.role not in _ROLES:
        yield f"{where} has the role {message.role!r}"
    texts = (message.text, message.thinking, message.call_id, message.id, message.raw)
    if not all(isinstance(text, str) for text in texts):
        yield f"{where} has a field that is not a string"
        return
    if message.role == "tool" and message.text.startswith(_ERROR):
        first, _, _ = message.text.removeprefix(_ERROR).partition("\n\n<")  # hints may follow
        first, _, _ = first.partition(ERROR_CUT)
        if len(first) > MAX_ERROR_CHARS:
            yield f"{where} is an error of {len(first)} characters"
        if not first.strip():
            yield f"{where} is an empty error message"
    try:
        json.dumps(message.to_dict(), allow_nan=False, ensure_ascii=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        yield f"{where} cannot be written as JSON in UTF-8: {error}"


def is_refused(info: Mapping[str, Any]) -> bool:
    """Return whether none of a reply's calls had any effect."""
    detail = info["detail"]
    return not info["valid"] and detail.errors >= max(1, detail.calls) and not detail.nested


def hash_of(before: Chat, result: StepResult) -> str:
    """Return a hash of the result of a reset or a step."""
    described = describe_result(before, result).encode("utf-8", "backslashreplace")
    return hashlib.sha256(described).hexdigest()[:16]


def parting(one: Sequence[str], two: Sequence[str]) -> str:
    """Return the first step at which two episodes differ, or an empty string."""
    for k, (left, right) in enumerate(zip(one, two, strict=False)):
        if left != right:
            return f"the reply {k}" if k else "the reset"
    return ""


def describe_result(before: Chat, result: StepResult) -> str:
    """Format a step's result as JSON, with only the new messages."""
    chat, reward, terminated, truncated, info = result
    shared = chat.shared_prefix(before)
    new = [message.to_dict() for message in chat.messages[shared:]]
    tools = []
    if chat.tools != before.tools:
        tools = [tool.to_openai() for tool in chat.tools]
    return json.dumps(
        [shared, new, tools, float(reward), terminated, truncated, info], default=repr
    )
