"""Log lines, decoded only as far as the viewer needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec


class LoggedReply(msgspec.Struct, frozen=True):
    """A policy's reply, without token ids."""

    text: str = ""


class LoggedChat(msgspec.Struct, frozen=True):
    """Difference between a chat and the agent's previous chat."""

    kept: int = 0
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] | None = None


class LoggedStep(LoggedChat, frozen=True, kw_only=True):
    """One step with the chat before it."""

    reply: LoggedReply = LoggedReply()
    reward: float = 0.0
    info: dict[str, Any]


class StepHead(msgspec.Struct, frozen=True):
    """Metrics of a step, without texts."""

    reward: float
    info: dict[str, Any]


class LoggedFacts(msgspec.Struct, frozen=True):
    """Fields of an episode other than its steps."""

    spec: dict[str, Any]
    seed: int
    labels: dict[str, Any]
    terminated: bool
    truncated: bool
    failure: str = ""


class Head(LoggedFacts, frozen=True, kw_only=True):
    """Metrics of an episode, without texts."""

    steps: list[StepHead]


class LoggedEpisode(LoggedFacts, frozen=True, kw_only=True):
    """One line of a trajectory log."""

    steps: list[LoggedStep]
    last: LoggedChat


_Decoded = TypeVar("_Decoded", Head, LoggedEpisode)


def is_trajectory(line: bytes) -> bool:
    """Report whether a line has a trajectory's keys; raise `ValueError` if the line is not JSON."""
    try:
        keys: Any = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        keys = _loads(line)
    return isinstance(keys, dict) and {"spec", "seed", "steps"} <= keys.keys()


def decode(line: bytes, kind: type[_Decoded]) -> _Decoded:
    """Decode a trajectory's line into a record, or raise `ValueError`."""
    try:
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return msgspec.convert(_loads(line), kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"the line must be a trajectory: {error}") from None


def _loads(line: bytes) -> Any:
    """Parse JSON that may contain NaN and lone surrogates."""
    try:
        return json.loads(line)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"the line must be a trajectory in JSON format ({error})") from None


def contains(line: bytes, needle: str) -> bool:
    """Report whether an episode's messages, replies or calls contain a string, ignoring case."""
    needle, lower = needle.lower(), line.lower()
    # ASCII words are not escaped in JSON, so most lines need not be decoded.
    if not all(word.encode() in lower for word in re.findall(r"[a-z0-9_]+", needle)):
        return False
    return any(needle in text.lower() for text in _texts(decode(line, LoggedEpisode)))


def _texts(episode: LoggedEpisode) -> Iterator[str]:
    for chat in (*episode.steps, episode.last):
        for message in chat.messages:
            yield str(message.get("text", ""))
            yield str(message.get("thinking", ""))
            for call in message.get("calls", ()):
                yield _call_text(call)
        if isinstance(chat, LoggedStep):
            yield chat.reply.text


def _call_text(call: Mapping[str, Any]) -> str:
    texts = []
    for name, value in call.get("arguments", {}).items():
        shown = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        texts.append(f"{name}={shown}")
    return f"{call.get('name')}({', '.join(texts)})"


def short_world(spec: Mapping[str, Any]) -> str:
    """Return a world's name without the namespace and version."""
    name = str(spec.get("id", "")).rpartition("/")[2]
    return name.rpartition("-v")[0] or name


def instance_key(spec: Mapping[str, Any], seed: int) -> str:
    """Return a digest shared by all episodes of one instance."""
    text = json.dumps([spec.get("id"), spec.get("kwargs"), seed], sort_keys=True)
    return blake2b(text.encode(), digest_size=6).hexdigest()


def wrapper_names(spec: Mapping[str, Any]) -> list[str]:
    """Return the class names of a spec's wrappers, from inner to outer."""
    return [str(item.get("name", "")) for item in spec.get("additional_wrappers") or ()]


_TOKENS = ("prompt_tokens", "completion_tokens")
_ORACLES = {"PlanOracle": "P", "StateOracle": "S", "HistoryOracle": "H"}


def arm_of(head: Head) -> str:
    """Return an episode's oracle arm, from the label or the wrappers; `none` means no oracles."""
    letters = "".join(_ORACLES.get(name, "") for name in wrapper_names(head.spec))
    return str(head.labels.get("arm", "".join(sorted(letters, key="SPH".index)))) or "none"


def context_of(head: Head) -> str:
    """Return an episode's context strategies, from its label or wrappers."""
    if "context" in head.labels:
        return str(head.labels["context"])
    names = []
    for item in head.spec.get("additional_wrappers") or ():
        own = str(item.get("entry_point", "")).startswith("agentgym.wrappers.")
        if own and item.get("name") != "Trim":
            names.append(str(item.get("name", "")))
    return "+".join(names) or "none"


def model_of(head: Head) -> str:
    """Return the name of the endpoint's model; empty if unknown."""
    facts = head.labels.get("provenance") or {}
    return str(facts.get("model") or "")


def usage_of(head: Head) -> tuple[tuple[int, int] | None, float | None]:
    """Return an episode's recorded prompt tokens, reply tokens and duration in seconds."""
    steps = [step.info["usage"] for step in head.steps if step.info.get("usage")]
    seconds = float(sum(used["seconds"] for used in steps)) if steps else None
    tokens = head.labels.get("tokens")
    if counted := [used for used in steps if "prompt_tokens" in used]:
        tokens = [sum(used[name] for used in counted) for name in _TOKENS]
    if not tokens:
        return None, seconds
    return (int(tokens[0]), int(tokens[1])), seconds
