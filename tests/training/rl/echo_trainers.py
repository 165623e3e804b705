"""What the tests of the trainers share: teachers and small models for the identity world, and
episodes made by hand.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from agentgym import Chat, Reply
from agentgym.training.rl import Cloning, CloningConfig, Trainer
from agentgym.training.rollout import Step, Trajectory, make_model, make_tokenizer
from tests.training.rl.echo_world import WORDS, make_env


class Echo:
    """Says the right word."""

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(self.say(chat.messages[1].text)) for chat in chats]

    def say(self, word: str) -> str:
        return word


class Wavering(Echo):
    """Says the right word or, as often, the next one of the list."""

    def __init__(self) -> None:
        self.random = random.Random(0)

    def say(self, word: str) -> str:
        return WORDS[(WORDS.index(word) + self.random.randrange(2)) % 4]


def make_words_tokenizer() -> Any:
    return make_tokenizer([" ".join(WORDS)], 320)


def small_model(tokenizer: Any, width: int = 32) -> Any:
    return make_model(tokenizer, width=width, layers=2, heads=2, context=64)


def wavering_model(tokenizer: Any, turns: int) -> Any:
    """A model that is right in half of the cases, for reinforcement to mend."""
    model = small_model(tokenizer, 64)
    config = CloningConfig(steps=80, learning_rate=1e-2, episodes=16, warmup=5)
    Cloning(Wavering(), model, tokenizer, lambda: make_env(turns), config).train()
    return model


def parameters(trained: Trainer[Any]) -> torch.Tensor:
    """All that is trained or saved, in one vector."""
    return torch.cat(
        [p.detach().flatten() for module in trained.modules.values() for p in module.parameters()]
    )


def gradients(trained: Trainer[Any], losses: Any) -> torch.Tensor:
    """The gradient of the sum of losses, in one vector."""
    trained.optimizer.zero_grad()
    for loss in losses:
        loss.backward()
    found = [
        p.grad
        for module in trained.modules.values()
        for p in module.parameters()
        if p.grad is not None
    ]
    return torch.cat([gradient.flatten() for gradient in found])


def have_the_same_gradients(trainers: Iterable[Trainer[Any]], updates: int) -> None:
    """Check that trainers that differ in how they divide a batch have the same gradient at each
    of so many updates.
    """
    first, *others = (
        [gradients(trained, losses) for losses in trained.updates()] for trained in trainers
    )
    assert len(first) == updates
    assert min(gradient.abs().max() for gradient in first) > 1e-3
    for other in others:
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(first, other, strict=True))


def episode(
    seed: int,
    rewards: Sequence[float],
    lengths: Sequence[int] | None = None,
    cuts: Sequence[int] = (),
    *,
    truncated: bool = False,
    fresh: int = 0,
) -> Trajectory:
    """An episode made by hand.

    Args:
        seed: Its seed.
        rewards: The reward of each step.
        lengths: The sampled tokens of each step; 1 if not given.
        cuts: Steps at which the context is edited: their prompt does not begin with what came
            before.
        truncated: Whether it was truncated instead of terminated.
        fresh: The first id; no id occurs twice.
    """
    steps = []
    context: tuple[int, ...] = ()
    for k, (reward, length) in enumerate(zip(rewards, lengths or [1] * len(rewards), strict=True)):
        prompt = (*(() if k in cuts else context), fresh, fresh + 1)
        ids = tuple(range(fresh + 2, fresh + 2 + length))
        fresh += 2 + length
        steps.append(
            Step(
                Chat(),
                Reply("", prompt, ids, tuple(-0.01 * i for i in ids)),
                reward,
                {"success": reward >= 1},
            )
        )
        context = prompt + ids
    return Trajectory("{}", seed, tuple(steps), Chat(), not truncated, truncated)


def stop_at(step: int) -> Any:
    """Ends a training, as a kill would, when this step has been logged and not yet saved."""

    def stop(now: int, metrics: Any) -> None:
        if now == step:
            raise KeyboardInterrupt

    return stop
