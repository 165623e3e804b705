"""PPO with a value head: collect, advantages, loss, log (Schulman et al.

2017; what the actions are is an option).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field

from agentgym.config import Share
from agentgym.training.rl.batches import Batch, Prediction, batch
from agentgym.training.rl.policy_gradient import (
    Epochs,
    Experience,
    Minibatches,
    PolicyGradient,
    PolicyGradientConfig,
    experience,
    reply_lengths,
    shares,
    spread,
)
from agentgym.training.rl.token_rows import Row, rows
from agentgym.training.rl.trainer import EpisodeCount, LossWeight
from agentgym.training.rollout import Renderer, Trajectory

_TINY = 1e-8
"""Keeps a division by the deviation of equal values finite."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig(PolicyGradientConfig):
    """Options of `PPO`.

    Attributes:
        episodes: Episodes in each step.
        level: The unit of action. `turn`: a reply, with one value at the last token of its prompt
            and one advantage for all its tokens. `token`: each sampled token, with the value before
            it; the reward of a step comes with the last token of its reply, and the next token is
            the first of the next reply, whatever context lies between.
        gamma: The discount of rewards, for each action that they are away.
        gae_lambda: The distance that advantages look ahead before they trust the value: 0 for one
            action, 1 for all.
        bootstrap: Add the value of the next prompt where an episode was truncated. Say no if the
            limit is a part of the task, stated in it and scored: then it ends the episode like any
            other end.
        normalize: Bring the advantages of a step to mean 0 and standard deviation 1.
        value_weight: The weight of the value loss.
        value_clip: The distance that a value may move from what it was before its gradient is cut
            off; 0 for no limit.
    """

    episodes: EpisodeCount = 64
    level: Literal["turn", "token"] = "turn"
    gamma: Share = 1.0
    gae_lambda: Share = 0.95
    bootstrap: bool = True
    normalize: bool = True
    value_weight: LossWeight = 0.1
    value_clip: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    epochs: Epochs = 4
    minibatches: Minibatches = 4


class ValueHead(torch.nn.Module):
    """Value of a state, from the last hidden state of a language model; 0 until it has learned.

    Args:
        width: Of the hidden state.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width))
        self.bias = torch.nn.Parameter(torch.zeros(()))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return values, of the shape of the states without their last axis."""
        return states @ self.weight + self.bias


@dataclass(frozen=True)
class ValuedExperience(Experience):
    """Rows to learn from, with values.

    Attributes:
        values: The value before each sampled token, when it was sampled.
        returns: The targets of the values.
        value_shares: The share of each value in the value loss: they sum to 1, and are 0 where no
            action begins.
    """

    values: torch.Tensor
    returns: torch.Tensor
    value_shares: torch.Tensor


class PPO(PolicyGradient[PPOConfig, ValuedExperience]):
    """Proximal policy optimisation. Model and value head share all but their last layers.

    Takes what `Trainer` takes.

    Attributes:
        value: The value head.
    """

    def extras(self) -> dict[str, torch.nn.Module]:
        """Return the value head, and a reference if there is one."""
        self.value = ValueHead(self.model.config.get_text_config().hidden_size).to(
            self.model.device
        )
        return {**super().extras(), "value": self.value}

    def updates(self) -> Iterator[Iterable[torch.Tensor]]:
        """Collect, give advantages, learn."""
        policy, trajectories = self.sample(self.seeds(self.config.episodes))
        values, ends = self.values_of(trajectories, policy.renderer)
        yield from self.optimise(self.experience(trajectories, values, ends))

    def loss(self, data: ValuedExperience, prediction: Prediction) -> torch.Tensor:
        """Return the clipped objective, and the squared error of the values.

        Args:
            data: Some rows.
            prediction: The output of the model for them, with its states.
        """
        config = self.config
        values: torch.Tensor = self.value(prediction.states)
        error = (values - data.returns) ** 2
        if config.value_clip:  # the larger of the two errors, as in the first implementation (Engstrom et al. 2020, section 3)
            near = data.values + (values - data.values).clamp(-config.value_clip, config.value_clip)
            error = torch.maximum(error, (near - data.returns) ** 2)
        self.records.mean(value_loss=error[data.value_shares > 0])
        return (
            super().loss(data, prediction) + config.value_weight * (data.value_shares * error).sum()
        )

    def predict(self, data: Batch, *, states: bool = True) -> Prediction:
        """Run the model on a batch, and keep the states that the values are read from."""
        return super().predict(data, states=states)

    @torch.no_grad()
    def values_of(
        self, trajectories: Sequence[Trajectory], renderer: Renderer
    ) -> tuple[torch.Tensor, list[float]]:
        """Return the values before all sampled tokens, in order, and the value after the last step
        of each episode.
        """
        prompts = [self._next_prompt(trajectory, renderer) for trajectory in trajectories]
        sampled = [row for trajectory in trajectories for row in rows(trajectory)]
        data = batch([*sampled, *filter(None, prompts)], self.pad)
        values = torch.zeros(data.ids.shape)
        for chunk in data.chunks(self.config.micro_batch):
            part = self.value(self.predict(data.take(chunk, self.model.device)).states).cpu()
            values[chunk, : part.shape[1]] = part
        stream = values[data.sampled]
        tokens = sum(sum(row.sampled) for row in sampled)
        ends = iter(stream[tokens:].tolist())
        return stream[:tokens], [next(ends) if prompt else 0.0 for prompt in prompts]

    def _next_prompt(self, trajectory: Trajectory, renderer: Renderer) -> Row | None:
        """Return the prompt that would have come next, as a row with one more token, before which
        the value is.

        Truncation is not termination: a limit that the model does not know of is no reason to
        expect nothing more. None after a termination, and if the model's context has no room for a
        reply, since the episode could not have gone on.
        """
        if trajectory.terminated or not self.config.bootstrap:
            return None
        ids = renderer.ids(trajectory.last)
        if len(ids) >= getattr(self.model.config, "max_position_embeddings", float("inf")):
            return None
        return Row((*ids, self.pad), (0,) * len(ids) + (1,), (0.0,) * (len(ids) + 1), ())

    def experience(
        self, trajectories: Sequence[Trajectory], values: torch.Tensor, ends: Sequence[float]
    ) -> ValuedExperience:
        """Return episodes as rows to learn from, with advantages and returns.

        Args:
            trajectories: The episodes.
            values: The values before all their sampled tokens, in order.
            ends: The value after the last step of each.
        """
        config = self.config
        streams = torch.split(
            values, [sum(reply_lengths(trajectory)) for trajectory in trajectories]
        )
        episodes = [
            actions(t, v.tolist(), end, config)
            for t, v, end in zip(trajectories, streams, ends, strict=True)
        ]
        stream = [action for episode in episodes for action in episode]
        sizes = [action.tokens for action in stream]
        old = torch.tensor([action.value for action in stream])
        advantages = torch.tensor([action.advantage for action in stream])
        returns = old + advantages
        self.records.mean(value=old, **explained(old, returns))
        if config.normalize:
            advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + _TINY)
        data = experience(trajectories, spread(advantages, sizes), config.weight, self.pad)
        weights = spread(
            shares([len(episode) for episode in episodes], config.weight),
            [len(episode) for episode in episodes],
        )
        begins = [
            weight if k == 0 else 0.0
            for weight, size in zip(weights.tolist(), sizes, strict=True)
            for k in range(size)
        ]
        placed: dict[str, torch.Tensor | list[float]] = {
            "values": spread(old, sizes),
            "returns": spread(returns, sizes),
            "value_shares": begins,
        }
        return ValuedExperience(
            **vars(data), **{name: data.place(stream) for name, stream in placed.items()}
        )


class Action(NamedTuple):
    """Value and advantage of one decision.

    Attributes:
        tokens: The number of its tokens.
        value: The value before it.
        advantage: Its advantage.
    """

    tokens: int
    value: float
    advantage: float


def actions(
    trajectory: Trajectory, values: Sequence[float], end: float, config: PPOConfig
) -> list[Action]:
    """Return the actions of an episode in the order of its steps, however many rows it is cut into.
    Each agent of a team has its own rewards, and its own next action follows on each of its own.

    Args:
        trajectory: The episode.
        values: The value before each of its sampled tokens, in order.
        end: The value after its last step.
        config: The level and the discounts.
    """
    sizes = reply_lengths(trajectory)
    rewards: Sequence[float] = trajectory.own_rewards()
    agents = [trajectory.agent_of(k) for k in range(len(trajectory.steps))]
    if config.level == "token":
        rewards = [
            x
            for reward, size in zip(rewards, sizes, strict=True)
            for x in (*[0.0] * (size - 1), reward)
        ]
        agents = [agent for agent, size in zip(agents, sizes, strict=True) for _ in range(size)]
        sizes = [1] * len(rewards)
    before = [values[start] for start in accumulate(sizes[:-1], initial=0)]
    gains = [0.0] * len(rewards)
    for name in dict.fromkeys(agents):
        own = [k for k, agent in enumerate(agents) if agent == name]
        parts = [rewards[k] for k in own], [before[k] for k in own]
        for k, gain in zip(own, gae(*parts, end, config.gamma, config.gae_lambda), strict=True):
            gains[k] = gain
    return [Action(*action) for action in zip(sizes, before, gains, strict=True)]


def gae(
    rewards: Sequence[float], values: Sequence[float], end: float, gamma: float, gae_lambda: float
) -> list[float]:
    """Return the advantages of one episode (Schulman et al. 2016, eq. 16).

    Args:
        rewards: The reward of each action.
        values: The value before each action.
        end: The value after the last one: 0 if the episode terminated.
        gamma: The discount.
        gae_lambda: The weight of actions further ahead.
    """
    advantages: list[float] = []
    advantage = 0.0
    for reward, value, after in zip(
        reversed(rewards), reversed(values), reversed([*values[1:], end]), strict=True
    ):
        advantage = reward + gamma * after - value + gamma * gae_lambda * advantage
        advantages.append(advantage)
    return advantages[::-1]


def explained(values: torch.Tensor, returns: torch.Tensor) -> dict[str, float]:
    """Return the share of the variance of the returns that the values explain: at best 1, 0 for a
    constant.

    Without variance there is nothing to explain, and no figure.
    """
    variance = returns.var(correction=0).item()
    if variance <= _TINY:
        return {}
    return {"explained_variance": 1 - (returns - values).var(correction=0).item() / variance}
