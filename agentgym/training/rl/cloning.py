"""Behaviour cloning: a model learns a scripted policy's replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.training.rl.batches import Batch, batch, logprobs_of
from agentgym.training.rl.episodes import reseed
from agentgym.training.rl.token_rows import rows
from agentgym.training.rl.trainer import Trainer
from agentgym.training.rl.trainer_config import EpisodeCount, TrainerConfig
from agentgym.training.rollout import PolicyLike, Renderer
from agentgym.training.rollout.seat_policies import adapt


@dataclass(frozen=True, kw_only=True)
class CloningConfig(TrainerConfig):
    """Options of `Cloning`.

    Attributes:
        episodes: Demonstrations per step; each is used once.
        min_reward: Minimum reward of the demonstrations to clone; None to clone all. If the
            teacher is a model, filtering by reward is rejection fine-tuning.
    """

    episodes: EpisodeCount = 64
    min_reward: float | None = None


class Cloning(Trainer[CloningConfig]):
    """Trainer that maximises the likelihood of a teacher's replies on new instances at every step.
    The teacher need not produce tokens.
    """

    def __init__(self, teacher: PolicyLike, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.teacher = Tokenized(teacher, self.renderer)

    def updates(self) -> Iterator[Iterable[torch.Tensor]]:
        minimum = self.config.min_reward
        seeds = self.source.seeds(self.config.episodes)
        reseed(self.teacher.policy, self.draw_seed(self.step))
        played = self.source.play(self.teacher, seeds, self.step)
        self.record(played)
        kept = [t for t in played.episodes if minimum is None or t.reward >= minimum]
        if played.episodes:  # opponents may forfeit all episodes
            self.records.mean(kept=len(kept) / len(played.episodes))
        if kept:
            items = [row for trajectory in kept for row in rows(trajectory)]
            yield self._losses(batch(items, self.renderer.pad))

    def _losses(self, data: Batch) -> Iterator[torch.Tensor]:
        tokens = int(data.sampled.sum())
        for _, part in self.passes(data):
            yield -logprobs_of(self.model, part, precision=self.config.precision).sum() / tokens


class Tokenized:
    """Policy that adds to each reply the tokens that a model would have sampled."""

    def __init__(self, policy: PolicyLike, renderer: Renderer) -> None:
        self.policy, self.renderer = adapt(policy), renderer

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Reply to each chat."""
        replies = []
        for chat, reply in zip(chats, self.policy(chats), strict=True):
            replies.append(self._with_ids(chat, reply.text))
        return replies

    def _with_ids(self, chat: Chat, text: str) -> Reply:
        ids = self.renderer.encode_reply(text)
        reply = Reply(text, self.renderer.ids(chat), ids, (0.0,) * len(ids))
        self.renderer.remember(chat, reply)
        return reply
