"""Training of a small model on reward alone, without results: what it earns is what a world gives
away.

Groups of episodes start from one instance. Episodes that did better than their group did on average
are reinforced by how much they did (reward-weighted regression), now and again later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from agentgym.env import ToolEnv
from agentgym.messages import ToolCall
from agentgym.training.audit.masked_policy import TURNS, Choice, MaskedPolicy
from agentgym.training.audit.playing import play, start
from agentgym.training.audit.transcripts import Transcript

_GROUP = 24
"""Episodes of an instance: with forty choices of an answer, about every second group has a success."""
_EXPLORE = 0.1  # so that a habit that was learnt early does not end the search
_REPLAYED = 12  # groups of before that are learnt from again with each new one: play is what costs
_STEP = 0.03
"""The same for all features, so that those that recur in many instances outgrow those of one; a choice
has about sixty.
"""

Success = Sequence[tuple[float, Choice]]
"""Choices of the episodes of a group that did better than it did on average, with their weights."""


def optimise(
    env: ToolEnv,
    seeds: Iterable[int],
    on_progress: Callable[[float], None] = lambda reward: None,
) -> MaskedPolicy:
    """Train a policy that sees no result on the rewards of a world.

    Args:
        env: The env to train in.
        seeds: The seeds of its instances; each is played once by a group.
        on_progress: Called with the mean reward of each group.
    """
    policy, successes = MaskedPolicy(), list[Success]()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        begun = start(env, seed)
        played = [_play(begun.clone(), policy, rng) for _ in range(_GROUP)]
        rewards = np.array([reward for reward, _ in played])
        on_progress(float(rewards.mean()))
        gains = np.maximum(rewards - rewards.mean(), 0)
        if gains.any():
            pairs = zip((gains / gains.sum()).tolist(), (made for _, made in played), strict=True)
            # By its length, since calls that do no harm would make an episode go on for ever.
            successes.append([(g / len(made), each) for g, made in pairs if g for each in made])
        replayed = rng.permutation(len(successes))[:_REPLAYED].tolist()
        for place in [len(successes) - 1, *replayed] if successes else ():
            _reinforce(policy, successes[place])
    return policy


def _play(
    env: ToolEnv, policy: MaskedPolicy, rng: np.random.Generator
) -> tuple[float, list[Choice]]:
    """Play an episode; return its score and the choices."""
    choices: list[Choice] = []

    def act(seen: Transcript) -> Sequence[ToolCall]:
        if len(seen.turns) >= TURNS:
            return ()
        call, made = policy.choose(seen, rng, _EXPLORE)
        choices.extend(made)
        return [call]

    score, _ = play(env, act)
    return score, choices


def _reinforce(policy: MaskedPolicy, success: Success) -> None:
    """Make choices likelier, by a step along the gradient of their weighted log-likelihood."""
    slopes = []
    for weight, choice in success:
        share = -policy.odds(choice.rows, choice.features)
        share[choice.chosen] += 1
        slopes.append(_STEP * weight * share[choice.rows])
    features = np.concatenate([choice.features for _, choice in success])
    np.add.at(policy.weights, features, np.concatenate(slopes))
