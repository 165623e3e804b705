"""Token usage of episodes and replies: of the context, as its wrappers recorded it (LOCA-bench,
section 4.2 and table 2), and of an endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from agentgym.training.rollout.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one episode.

    Attributes:
        counter: The token counter.
        trajectory_tokens: The trajectory length: every text once, what edits have removed added
            back and what they have put in its place left out.
        prompt_tokens: Of all prompts together.
        reusable_prompt_tokens: Of these, the tokens that a prompt has in common with the beginning
            of the one before it.
        peak_tokens: Of the longest prompt.
        policy_tokens: Of the replies, thinking and summaries included.
        summary_tokens: Of the summaries and the requests for them.
        tool_output_tokens: Of the tool results that were shown.
        hidden_tool_tokens: Of the results of calls made by code, which were not shown.
        edits: The number of times that a strategy edited the context.
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
        """Of all prompts together, what a cache of the prompts before does not spare."""
        return self.prompt_tokens - self.reusable_prompt_tokens


def usage(trajectory: Trajectory) -> Usage | None:
    """Return the tokens of an episode; None if it was played without a context wrapper, or has no
    steps.
    """
    records = [step.info["context"] for step in trajectory.steps if "context" in step.info]
    if not records:
        return None
    prompts = [prompt_tokens(record) for record in records]

    def total(name: str) -> int:
        return sum(record[name] for record in records)

    return Usage(
        counter=records[-1]["counter"],
        trajectory_tokens=sum(map(_length, _contexts(trajectory))),
        prompt_tokens=sum(prompts),
        reusable_prompt_tokens=sum(
            record["reused"] for context in _contexts(trajectory) for record in context[:-1]
        ),
        peak_tokens=max(prompts),
        policy_tokens=total("reply"),
        summary_tokens=total("summary"),
        tool_output_tokens=total("tool_output"),
        hidden_tool_tokens=total("hidden"),
        edits=sum(len(record["edits"]) for record in records),
    )


@dataclass(frozen=True, slots=True)
class EndpointUsage:
    """Usage of an endpoint by replies; two can be added.

    Tokens are as the server counts them: cached ones are part of the prompt's, reasoning ones of
    the completion's. Of the requests, `retries` were sent again; `cut` replies ended at the limit
    of tokens; `seconds` leave out failed requests and waits for a slot. `unmetered` replies came
    without readable counts, and are not in them.
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

    def __add__(self, other: EndpointUsage) -> EndpointUsage:
        return EndpointUsage(
            *(getattr(self, item.name) + getattr(other, item.name) for item in fields(self))
        )


def prompt_tokens(record: Mapping[str, Any]) -> int:
    """Return the tokens of the prompt before a step, by the record in its `info["context"]`."""
    return int(record["tokens"] - record["appended"] + record["removed"] - record["inserted"])


def _contexts(trajectory: Trajectory) -> list[list[Mapping[str, Any]]]:
    """The records of each context: one for an agent, and for each sub-task that began with a clean
    one.
    """
    contexts: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    for step in trajectory.steps:
        if "context" in step.info:
            contexts.setdefault((step.info.get("agent"), step.info.get("task")), []).append(
                step.info["context"]
            )
    return list(contexts.values())


def _length(records: Sequence[Mapping[str, Any]]) -> int:
    """The first prompt, and all that was appended; what an agent of a team was sent between two
    replies made its prompt grow.
    """
    grown = sum(
        max(0, prompt_tokens(later) - record["tokens"]) for record, later in pairwise(records)
    )
    return int(prompt_tokens(records[0]) + sum(record["appended"] for record in records) + grown)
