"""Training rows, which contain each sampled token of a trajectory exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from agentgym.play.policy import Reply
from agentgym.training.rollout import Trajectory
from agentgym.training.rollout.engines.deltas import continued


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """Token sequence from one episode.

    Attributes:
        sampled: 1 for tokens sampled by the policy, 0 for context.
        logprobs: Log-probabilities in nats at sampling time, 0 for context; None if any is unknown.
        steps: The steps whose replies the row contains.
        agent: The team agent that wrote the replies; empty without a team.
    """

    ids: tuple[int, ...]
    sampled: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    steps: tuple[int, ...]
    agent: str = ""


def rows(trajectory: Trajectory) -> list[TrainingRow]:
    """Return an episode's rows in step order, each with replies of one agent.

    Replies without token ids, such as replies from frozen seats, are used only as context.

    Raises:
        ValueError: No reply has token ids, or a reply's ids and log-probabilities differ in number.
    """
    sampled = [(k, step.reply) for k, step in enumerate(trajectory.steps) if step.reply.ids]
    if not sampled:
        raise ValueError(
            f"no reply of seed {trajectory.seed} has token ids; use a policy that records token ids"
        )
    joined: list[TrainingRow] = []
    # Two agents may have equal prompts, because a template may omit the system message.
    for agent, own in groupby(sampled, key=lambda numbered: trajectory.agent_of(numbered[0])):
        joined += [replace(row, agent=agent) for row in join(own)]
    return joined


def join(replies: Iterable[tuple[int, Reply]]) -> list[TrainingRow]:
    """Join numbered replies into rows; replies without ids are omitted.

    A row continues while each prompt starts with the ids of the previous prompt and its reply.
    """
    groups: list[dict[int, Reply]] = []
    before: Reply | None = None  # the previous reply of the current row, if any
    for number, reply in replies:
        if reply.logprobs and len(reply.logprobs) != len(reply.ids):
            raise ValueError(
                f"step {number} has {len(reply.ids)} ids and {len(reply.logprobs)} logprobs; "
                "record one for each id"
            )
        if before and continued(reply, before) < len(before.prompt_ids) + len(before.ids):
            before = None
        if not reply.ids:
            continue
        if before is None:
            groups.append({})
        groups[-1][number] = before = reply
    return list(map(_row, groups))


def _row(replies: dict[int, Reply]) -> TrainingRow:
    *_, last = replies.values()
    ids = (*last.prompt_ids, *last.ids)
    sampled, logprobs = [0] * len(ids), [0.0] * len(ids)
    for reply in replies.values():
        start = len(reply.prompt_ids)
        place = slice(start, start + len(reply.ids))
        sampled[place] = [1] * len(reply.ids)
        logprobs[place] = reply.logprobs or [0.0] * len(reply.ids)
    known = all(reply.logprobs for reply in replies.values())
    return TrainingRow(ids, tuple(sampled), tuple(logprobs) if known else None, tuple(replies))
