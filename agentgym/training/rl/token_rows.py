"""Training rows: the sampled tokens of trajectories, each in exactly one row, from the recorded ids alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentgym.policy import Reply
from agentgym.training.rollout.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence of tokens of one episode.

    Attributes:
        ids: Prompts and replies.
        sampled: 1 where the token was sampled by the policy, 0 where it is context.
        logprobs: The log-probability of each token when it was sampled, in nats, and 0 for context; None if any is not known.
        steps: The steps of the episode whose replies it holds.
    """

    ids: tuple[int, ...]
    sampled: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    steps: tuple[int, ...]


def rows(trajectory: Trajectory) -> list[Row]:
    """The rows of an episode.

    Raises:
        ValueError: No reply has token ids, or one has ids and log-probabilities of different number.
    """
    made = join((k, step.reply) for k, step in enumerate(trajectory.steps))
    if not made:
        raise ValueError(f"no reply of seed {trajectory.seed} has token ids: play it with a policy that records them")
    return made


def join(replies: Iterable[tuple[int, Reply]]) -> list[Row]:
    """Replies with their numbers as rows.

    A row goes on as long as each prompt begins with the ids of the prompt before and its reply. A context that was edited, or a
    chat template that writes a reply differently from how it was sampled, starts a new one. Replies without ids are left out.

    Raises:
        ValueError: A reply has ids and log-probabilities of different number.
    """
    made: list[Row] = []
    goes_on = False
    for number, reply in replies:
        if reply.logprobs and len(reply.logprobs) != len(reply.ids):
            raise ValueError(f"step {number} has {len(reply.ids)} ids and {len(reply.logprobs)} logprobs; record one for each id")
        goes_on = goes_on and reply.prompt_ids[: len(made[-1].ids)] == made[-1].ids
        if not reply.ids:
            continue
        last = made.pop() if goes_on else Row((), (), (), ())
        goes_on = True
        new = len(reply.prompt_ids) - len(last.ids)
        known = last.logprobs is not None and bool(reply.logprobs)
        logprobs = (last.logprobs or ()) + (0.0,) * new + reply.logprobs if known else None
        sampled = last.sampled + (0,) * new + (1,) * len(reply.ids)
        made.append(Row(reply.prompt_ids + reply.ids, sampled, logprobs, (*last.steps, number)))
    return made
