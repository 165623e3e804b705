"""Training rows: the sampled tokens of trajectories, each in exactly one row, from the recorded ids
alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agentgym.policy import Reply
from agentgym.training.rollout import Trajectory


@dataclass(frozen=True, slots=True)
class Row:
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


def rows(trajectory: Trajectory) -> list[Row]:
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


def join(replies: Iterable[tuple[int, Reply]]) -> list[Row]:
    """Join replies, with their numbers, into rows.

    A row goes on as long as each prompt begins with the ids of the prompt before and its reply. A
    context that was edited, or a chat template that writes a reply differently from how it was
    sampled, starts a new one. Replies without ids are left out.

    Raises:
        ValueError: A reply has ids and log-probabilities of different number.
    """
    joined: list[Row] = []
    continues = False
    for number, reply in replies:
        if reply.logprobs and len(reply.logprobs) != len(reply.ids):
            raise ValueError(
                f"step {number} has {len(reply.ids)} ids and {len(reply.logprobs)} logprobs; "
                "record one for each id"
            )
        continues = continues and reply.prompt_ids[: len(joined[-1].ids)] == joined[-1].ids
        if not reply.ids:
            continue
        last = joined.pop() if continues else Row((), (), (), ())
        continues = True
        new = len(reply.prompt_ids) - len(last.ids)
        complete = last.logprobs is not None and bool(reply.logprobs)
        logprobs = (last.logprobs or ()) + (0.0,) * new + reply.logprobs if complete else None
        sampled = last.sampled + (0,) * new + (1,) * len(reply.ids)
        joined.append(Row(reply.prompt_ids + reply.ids, sampled, logprobs, (*last.steps, number)))
    return joined
