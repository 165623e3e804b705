"""Training rows: the sampled tokens of trajectories, each in exactly one row, from the recorded ids
alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agentgym.play.policy import Reply
from agentgym.training.rollout import Trajectory
from agentgym.training.rollout.engines.deltas import continued


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A sequence of tokens of one episode.

    Attributes:
        ids: Prompts and replies.
        sampled: 1 where the token was sampled by the policy, 0 where it is context.
        logprobs: The log-probability of each token when it was sampled, in nats, and 0 for context;
            None if any is not known.
        steps: The steps of the episode whose replies it holds.
        agent: The agent of a team that wrote them; empty without a team.
    """

    ids: tuple[int, ...]
    sampled: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    steps: tuple[int, ...]
    agent: str = ""


def rows(trajectory: Trajectory) -> list[TrainingRow]:
    """Return the rows of an episode.

    Raises:
        ValueError: No reply has token ids, or one has ids and log-probabilities of different
            number.
    """
    joined = join((k, step.reply) for k, step in enumerate(trajectory.steps))
    if not joined:
        raise ValueError(
            f"no reply of seed {trajectory.seed} has token ids: play it with a policy that records "
            "them"
        )
    return [replace(row, agent=trajectory.agent_of(row.steps[0])) for row in joined]


def join(replies: Iterable[tuple[int, Reply]]) -> list[TrainingRow]:
    """Join replies, with their numbers, into rows.

    A row goes on as long as each prompt begins with the ids of the prompt before and its reply. A
    context that was edited, or a chat template that writes a reply differently from how it was
    sampled, starts a new one. Replies without ids are left out.

    Raises:
        ValueError: A reply has ids and log-probabilities of different number.
    """
    open_rows: list[_OpenRow] = []
    before: Reply | None = None  # the reply that the newest row ends with, if it may go on
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
    """A row that may go on: lists, to which a reply is added in proportion to what is new."""

    ids: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    complete: bool = True

    def add(self, number: int, reply: Reply) -> None:
        """Add the rest of a prompt that begins with this row, and its reply."""
        context = reply.prompt_ids[len(self.ids) :]
        self.ids += (*context, *reply.ids)
        self.sampled += [0] * len(context) + [1] * len(reply.ids)
        self.logprobs += (*[0.0] * len(context), *reply.logprobs)
        self.steps.append(number)
        self.complete = self.complete and bool(reply.logprobs)

    def closed(self) -> TrainingRow:
        """Return the row as it stands."""
        return TrainingRow(
            tuple(self.ids),
            tuple(self.sampled),
            tuple(self.logprobs) if self.complete else None,
            tuple(self.steps),
        )
