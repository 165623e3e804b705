from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from agentgym import Chat, Reply
from agentgym.training.rl import GRPO, GRPOConfig
from agentgym.training.rl.batches import (
    Experience,
    corrected,
    experience,
)
from agentgym.training.rollout import Step, Trajectory
from tests.training.rl.echo_trainers import gradients, small_model
from tests.training.rl.echo_world import make_env

PROMPT = (5, 6, 7)


def every_token(tokenizer: Any, old: Any) -> tuple[Experience, torch.Tensor]:
    """Return all one-token replies to a prompt, with log-probabilities under the old policy."""
    count = len(tokenizer)
    with torch.no_grad():
        logits = old(input_ids=torch.tensor([PROMPT])).logits[0, -1]
    logprobs = logits.log_softmax(-1)
    advantages = torch.randn(count, generator=torch.Generator().manual_seed(0))
    played = [
        Trajectory(
            "{}",
            token,
            (Step(Chat(), Reply("", PROMPT, (token,), (logprobs[token].item(),)), 0.0, {}),),
            Chat(),
            True,
            False,
        )
        for token in range(count)
    ]
    data = experience(played, advantages, "token", 0)
    return replace(data, shares=data.place(logprobs.exp())), advantages


def shaken(model: Any) -> Any:
    other = copy.deepcopy(model)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
    return other


def trainer_of(tokenizer: Any, model: Any, **options: Any) -> GRPO:
    return GRPO(model, tokenizer, make_env, GRPOConfig(**options))


def test_correction_removes_the_bias_of_an_older_sampler(tokenizer: Any) -> None:
    """The expectation over all replies equals the policy gradient only with the correction."""
    old = small_model(tokenizer)
    model = shaken(old)
    data, advantages = every_token(tokenizer, old)
    trainer = trainer_of(tokenizer, model)
    logits = model(input_ids=torch.tensor([PROMPT])).logits[0, -1]
    exact = gradients(trainer, [-(logits.softmax(-1) * advantages).sum()])
    as_sampled = gradients(trainer, trainer._losses(data, 1.0, fresh=True))
    found = gradients(trainer, trainer._losses(trainer._corrected(data, 1e6), 1.0, fresh=True))
    assert (found - exact).norm() < 1e-4 * exact.norm()
    assert (as_sampled - exact).norm() > 0.1 * exact.norm()
    figures = trainer.records.figures()
    weights = (trainer.predict(data).logprobs - data.logprobs)[data.sampled].exp()
    assert figures["importance"] == pytest.approx(weights.mean().item(), rel=1e-4)


def test_a_correction_does_not_hide_the_drift_of_the_sampler(tokenizer: Any) -> None:
    old = small_model(tokenizer)
    trainer = trainer_of(tokenizer, shaken(old))
    data, _ = every_token(tokenizer, old)
    drift = (trainer.predict(data).logprobs - data.logprobs)[data.sampled].abs().max().item()
    assert drift > 0.1
    gradients(trainer, trainer._losses(trainer._corrected(data, 2.0), 1.0, fresh=True))
    assert trainer.records.figures()["sampler_drift"] == pytest.approx(drift, rel=1e-4)


def test_ratios_are_truncated(tokenizer: Any) -> None:
    data, advantages = every_token(tokenizer, small_model(tokenizer))
    shift = torch.linspace(-1.0, 1.0, len(advantages))
    now = data.logprobs + data.place(shift)
    found = corrected(data, now, 1.5)
    expected = advantages * shift.exp().clamp(max=1.5)
    assert torch.allclose(found.advantages[found.sampled], expected, rtol=1e-5)
    assert torch.equal(found.logprobs, now)
    assert found.advantages[~found.sampled].abs().max() == 0
