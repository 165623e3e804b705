"""Behaviour cloning: a model learns a scripted policy's replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from typing_extensions import override

from agentgym.play.policy import PolicyError, Reply
from agentgym.text.messages import Chat
from agentgym.training.rl.batches import Batch, batch, logprobs_of
from agentgym.training.rl.episodes import reseed
from agentgym.training.rl.token_rows import rows
from agentgym.training.rl.trainer import Trainer
from agentgym.training.rl.trainer_config import EpisodeCount, TrainerConfig
from agentgym.training.rollout import PolicyLike, Renderer
from agentgym.training.rollout.seat_policies import adapt
from agentgym.training.rollout.user_policy import PolicyRequest, UserPolicy


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
        reseed(self.teacher.teacher, self.draw_seed(self.step))
        played = self.source.play(self.teacher, seeds, self.step)
        self.record(played)
        kept = [t for t in played.episodes if minimum is None or t.reward >= minimum]
        if played.episodes:  # opponents may forfeit all episodes
            self.records.mean(kept=len(kept) / len(played.episodes))
        # The teacher may have ended an episode without a reply.
        written = [t for t in kept if any(step.reply.ids for step in t.steps)]
        if written:
            items = [row for trajectory in written for row in rows(trajectory)]
            yield self._losses(batch(items, self.renderer.pad))

    def _losses(self, data: Batch) -> Iterator[torch.Tensor]:
        tokens = int(data.sampled.sum())
        for _, part in self.passes(data):
            yield -logprobs_of(self.model, part, precision=self.config.precision).sum() / tokens


class Tokenized(UserPolicy):
    """Policy that adds to each reply the tokens that a model would have sampled."""

    def __init__(self, policy: PolicyLike, renderer: Renderer) -> None:
        teacher = self.teacher = adapt(policy)
        self.renderer, self.policy, self.name = renderer, teacher.policy, teacher.name
        self._is_async, self._reset, self.last_fault = teacher._is_async, teacher._reset, None

    @override
    def check(self, agents: Sequence[str]) -> None:
        self.teacher.check(agents)

    @property
    @override
    def awaitable(self) -> bool:
        return self.teacher.awaitable

    @property
    @override
    def serial(self) -> bool:
        return self.teacher.serial

    @override
    async def areply(self, request: PolicyRequest) -> Reply:
        return self._with_ids(request.chat, await self.teacher.areply(request))

    @override
    async def _begin(self, request: PolicyRequest) -> PolicyError | None:
        return await self.teacher._begin(request)

    @override
    async def _ask(self, requests: Sequence[PolicyRequest]) -> list[Reply | PolicyError]:
        outcomes = await self.teacher._ask(requests)
        for k, (request, outcome) in enumerate(zip(requests, outcomes, strict=True)):
            if isinstance(outcome, Reply):
                outcomes[k] = self._with_ids(request.chat, outcome)
        return outcomes

    def _with_ids(self, chat: Chat, reply: Reply) -> Reply:
        if reply.ended:  # the teacher wrote nothing
            return reply
        ids = self.renderer.encode_reply(reply.text)
        prompt = self.renderer.ids(chat)
        reply = replace(reply, prompt_ids=prompt, ids=ids, logprobs=(0.0,) * len(ids))
        self.renderer.remember(chat, reply)
        return reply
