"""Token usage of episodes (LOCA-bench, section 4.2 and table 2) and of endpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import chain, pairwise
from typing import Any

from agentgym.training.rollout.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one episode.

    Attributes:
        trajectory_tokens: Tokens of the whole episode, each counted once, including tokens that a
            wrapper removed but not tokens that a wrapper inserted.
        reusable_prompt_tokens: Tokens of the prefix shared with the previous prompt.
        policy_tokens: Reply tokens, including thinking and summaries.
        summary_tokens: Tokens used by summaries and summary requests.
        hidden_tool_tokens: Tokens of tool results that the policy's code received but the chat
            does not show.
    """

    counter: str
    trajectory_tokens: int
    prompt_tokens: int
    reusable_prompt_tokens: int
    peak_tokens: int
    policy_tokens: int
    summary_tokens: int
    tool_output_tokens: int
    hidden_tool_tokens: int
    edits: int

    @property
    def missed_prompt_tokens(self) -> int:
        """Prompt tokens outside the prefix shared with the previous prompt."""
        return self.prompt_tokens - self.reusable_prompt_tokens


def usage(trajectory: Trajectory) -> Usage | None:
    """Return an episode's token usage, or None if the episode has no context records."""
    records = [step.info["context"] for step in trajectory.steps if "context" in step.info]
    if not records:
        return None
    prompts = [prompt_tokens(record) for record in records]
    contexts = _contexts(trajectory)
    resent = chain.from_iterable(context[:-1] for context in contexts)

    def total(name: str) -> int:
        return sum(record[name] for record in records)

    return Usage(
        counter=records[-1]["counter"],
        trajectory_tokens=sum(map(_length, contexts)),
        prompt_tokens=sum(prompts),
        reusable_prompt_tokens=sum(record["reused"] for record in resent),
        peak_tokens=max(prompts),
        policy_tokens=total("reply"),
        summary_tokens=total("summary"),
        tool_output_tokens=total("tool_output"),
        hidden_tool_tokens=total("hidden"),
        edits=sum(len(record["edits"]) for record in records),
    )


@dataclass(frozen=True, slots=True)
class EndpointUsage:
    """Usage of an endpoint, as counted by the server. Instances support addition.

    Prompt tokens include cached tokens; completion tokens include reasoning. `cut` counts replies
    that the server cut short; `seconds` includes retries but not the wait before a request is sent.
    `unmetered` counts replies without readable token counts. `cached_replies` counts replies from
    the cache on disk.
    """

    replies: int = 0
    cut: int = 0
    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    seconds: float = 0.0
    unmetered: int = 0
    cached_replies: int = 0

    def __add__(self, other: EndpointUsage) -> EndpointUsage:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return EndpointUsage(*(one + two for one, two in pairs))


def prompt_tokens(record: Mapping[str, Any]) -> int:
    """Return the number of prompt tokens before a step, given the step's `info["context"]`."""
    return int(record["tokens"] - record["appended"] + record["removed"] - record["inserted"])


def _contexts(trajectory: Trajectory) -> list[list[Mapping[str, Any]]]:
    contexts: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    for step in trajectory.steps:
        if "context" in step.info:
            key = step.info.get("agent"), step.info.get("task")
            contexts.setdefault(key, []).append(step.info["context"])
    return list(contexts.values())


def _length(records: Sequence[Mapping[str, Any]]) -> int:
    # In a team, messages that arrive between two replies of an agent lengthen its prompt.
    grown = sum(
        max(0, prompt_tokens(later) - record["tokens"]) for record, later in pairwise(records)
    )
    return int(prompt_tokens(records[0]) + sum(record["appended"] for record in records) + grown)
