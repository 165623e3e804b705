"""Training rows: each sampled token of a trajectory in exactly one row, by its recorded id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agentgym.play.policy import Reply
from agentgym.training.rollout import Trajectory
from agentgym.training.rollout.engines.deltas import continued


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """Token sequence from one episode.

    Attributes:
        ids: Prompts and replies.
        sampled: 1 for tokens sampled by the policy, 0 for context.
        logprobs: In nats, at sampling time; 0 for context; None if any is unknown.
        steps: The steps whose replies it contains.
        agent: The team agent that wrote them; empty without a team.
    """

    ids: tuple[int, ...]
    sampled: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    steps: tuple[int, ...]
    agent: str = ""


def rows(trajectory: Trajectory) -> list[TrainingRow]:
    """Return an episode's rows.

    Raises:
        ValueError: No reply has token ids, or a reply's ids and log-probabilities differ in number.
    """
    joined = join((k, step.reply) for k, step in enumerate(trajectory.steps))
    if not joined:
        raise ValueError(
            f"no reply of seed {trajectory.seed} has token ids: play it with a policy that records "
            "them"
        )
    return [replace(row, agent=trajectory.agent_of(row.steps[0])) for row in joined]


def join(replies: Iterable[tuple[int, Reply]]) -> list[TrainingRow]:
    """Join numbered replies into rows; replies without ids are omitted.

    A row continues while each prompt starts with the ids of the previous prompt and its reply. An
    edited context, or a template that renders a reply differently from its sampled ids, starts a
    new row.
    """
    open_rows: list[_OpenRow] = []
    before: Reply | None = None  # the last reply of the newest row, if the row may continue
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
            open_rows.append(_OpenRow())
        open_rows[-1].add(number, reply)
        before = reply
    return [row.closed() for row in open_rows]


@dataclass(slots=True)
class _OpenRow:
    """Row as lists; adding a reply costs time proportional to its length."""

    ids: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    complete: bool = True

    def add(self, number: int, reply: Reply) -> None:
        context = reply.prompt_ids[len(self.ids) :]
        self.ids += (*context, *reply.ids)
        self.sampled += [0] * len(context) + [1] * len(reply.ids)
        self.logprobs += (*[0.0] * len(context), *reply.logprobs)
        self.steps.append(number)
        self.complete = self.complete and bool(reply.logprobs)

    def closed(self) -> TrainingRow:
        return TrainingRow(
            tuple(self.ids),
            tuple(self.sampled),
            tuple(self.logprobs) if self.complete else None,
            tuple(self.steps),
        )
