"""Teachers, small models and hand-made episodes for the trainer tests."""

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
    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(self.say(chat.messages[1].text)) for chat in chats]

    def say(self, word: str) -> str:
        return word


class Wavering(Echo):
    """Teacher that says the right word or, equally often, the next word in the list."""

    def __init__(self) -> None:
        self.random = random.Random(0)

    def say(self, word: str) -> str:
        return WORDS[(WORDS.index(word) + self.random.randrange(2)) % 4]


def make_words_tokenizer() -> Any:
    return make_tokenizer([" ".join(WORDS)], 320)


def small_model(tokenizer: Any, width: int = 32) -> Any:
    return make_model(tokenizer, width=width, layers=2, heads=2, context=64)


def wavering_model(tokenizer: Any, turns: int) -> Any:
    """Return a model that is right half of the time."""
    model = small_model(tokenizer, 64)
    config = CloningConfig(steps=80, learning_rate=1e-2, episodes=16, warmup=5)
    Cloning(Wavering(), model, tokenizer, lambda: make_env(turns), config).train()
    return model


def parameters(trained: Trainer[Any]) -> torch.Tensor:
    return torch.cat(
        [p.detach().flatten() for module in trained.modules.values() for p in module.parameters()]
    )


def gradients(trained: Trainer[Any], losses: Any) -> torch.Tensor:
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
    """Return a hand-made episode with unique ids.

    `lengths` are the numbers of sampled tokens per step. At the steps in `cuts`, the prompt does
    not extend the previous prompt.
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
    return Trajectory('{"id": "echo"}', seed, tuple(steps), Chat(), not truncated, truncated)


def stop_at(step: int) -> Any:
    """Return a callback that stops training after a step is logged and before the checkpoint."""

    def stop(now: int, metrics: Any) -> None:
        if now == step:
            raise KeyboardInterrupt

    return stop
