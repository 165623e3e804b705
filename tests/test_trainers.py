"""The trainers: known answers on an identity world, gradients and advantages computed a second way, and exact resumption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym import Chat, Reply
from agentgym.training.batches import batch, logprobs_of
from agentgym.training.cloning import Cloning, CloningConfig
from agentgym.training.grpo import GRPO, GRPOConfig, advantages, weigh
from agentgym.training.models import LocalPolicy, make_model, make_tokenizer
from agentgym.training.rollouts import collect
from agentgym.training.trainer import TRAIN_SEED, Trainer, evaluate
from agentgym.training.trajectories import Step, Trajectory
from tests.echo_world import WORDS, make_env


class Echo:
    """Says the right word, or with every other word a wrong one."""

    def __init__(self, wrong: Sequence[str] = ()) -> None:
        self.wrong = wrong

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(self.say(chat.messages[1].text, len(chat.messages))) for chat in chats]

    def say(self, word: str, turn: int) -> str:
        return WORDS[(WORDS.index(word) + turn) % 4] if word in self.wrong else word


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer([" ".join(WORDS)], 320)


def model(tokenizer: Any, seed: int = 0) -> Any:
    return make_model(tokenizer, width=64, layers=2, heads=2, seed=seed)


def parameters(trained: Trainer[Any]) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trained.model.parameters()])


def test_cloning_learns_the_identity(tokenizer: Any) -> None:
    trainer = Cloning(Echo(), model(tokenizer), tokenizer, make_env, CloningConfig(steps=60, learning_rate=1e-2, episodes=16))
    before = evaluate(LocalPolicy(trainer.model, tokenizer, 0, 4), make_env, 40)
    losses: list[float] = []
    trainer.train(lambda step, metrics: losses.append(metrics["loss"]))
    assert before < 0.3
    assert losses[-1] < 0.01 < losses[0]
    assert evaluate(LocalPolicy(trainer.model, tokenizer, 0, 4), make_env, 40) == 1.0


@pytest.mark.parametrize("baseline", ["grpo", "rloo", "reinforce"])
def test_grpo_corrects_what_was_cloned_wrongly(tokenizer: Any, baseline: str) -> None:
    """Cloned from a teacher that is wrong in half of the cases, with some right ones among them, and mended by reward alone."""

    class Wavering(Echo):
        def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
            self.count = getattr(self, "count", 0) + 1
            return [Reply(self.say(c.messages[1].text, k + self.count)) for k, c in enumerate(chats)]

    teacher = Wavering(["three", "four"])
    cloned = Cloning(teacher, model(tokenizer), tokenizer, make_env, CloningConfig(steps=60, learning_rate=1e-2, episodes=16))
    cloned.train()
    config = GRPOConfig(steps=70, learning_rate=2e-3, group_size=16, epochs=2, baseline=baseline, max_new_tokens=4)
    trainer = GRPO(cloned.model, tokenizer, make_env, config)
    rewards: list[float] = []
    drifts: list[float] = []
    trainer.train(lambda step, metrics: (rewards.append(metrics["reward"]), drifts.append(metrics["sampler_drift"])))  # type: ignore[func-returns-value]
    assert sum(rewards[:10]) / 10 < 0.8
    assert sum(rewards[-10:]) / 10 > 0.9
    assert evaluate(LocalPolicy(trainer.model, tokenizer, 0, 4), make_env, 100) == 1.0
    assert max(drifts) < 1e-4, "the trainer gives the log-probabilities that the sampler had"


def played(seed: int, reward: float, lengths: Sequence[int] = (2,), fresh: int = 0) -> Trajectory:
    """An episode of replies, each in a row of its own."""
    steps = []
    for k, length in enumerate(lengths):
        ids = tuple(range(fresh + 10 * k, fresh + 10 * k + length))
        last = reward if k == len(lengths) - 1 else 0.0
        steps.append(Step(Chat(), Reply("", (300 + k,), ids, (0.0,) * length), last, {}))
    return Trajectory("{}", seed, tuple(steps), Chat(), True, False)


def test_advantages_by_hand() -> None:
    group = [played(1, 1.0), played(2, 0.5), played(1, 0.0), played(1, 0.0), played(2, 0.5), played(1, 1.0)]
    assert advantages(group, "grpo") == pytest.approx([1.0, 0.0, -1.0, -1.0, 0.0, 1.0], abs=1e-5)
    assert advantages(group, "rloo") == pytest.approx([2 / 3, 0.0, -2 / 3, -2 / 3, 0.0, 2 / 3])
    assert advantages(group, "reinforce") == pytest.approx([0.5, 0.0, -0.5, -0.5, 0.0, 0.5])


def test_an_episode_counts_the_same_however_it_is_cut() -> None:
    whole, cut = played(1, 1.0, (6,)), played(1, 1.0, (1, 3, 2))
    weighted = weigh([whole, cut], [2.0, 2.0])
    assert [len(row.ids) - sum(row.sampled) for row, _ in weighted] == [1, 1, 1, 1]
    per_episode = [sum(weight * sum(row.sampled) for row, weight in part) for part in (weighted[:1], weighted[1:])]
    assert per_episode == pytest.approx([1.0, 1.0])


def test_the_gradient_is_the_one_of_the_formula(tokenizer: Any) -> None:
    """At the first update the clipped objective is the plain policy gradient: a weighted sum over log-probabilities."""
    config = GRPOConfig(groups=2, group_size=2, max_new_tokens=3)
    trainer = GRPO(model(tokenizer), tokenizer, make_env, config)
    policy = LocalPolicy(trainer.model, tokenizer, max_new_tokens=3)
    episodes = list(collect(policy, make_env, [1, 1, 2, 2]))
    values = [1.0, -1.0, 0.5, -0.25]
    weighted = weigh(episodes, values)
    data = batch([row for row, _ in weighted], 0)
    loss, _ = trainer._loss(data, torch.tensor([w for _, w in weighted])[:, None] * data.sampled)
    loss.backward()  # type: ignore[no-untyped-call]
    found = torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])
    trainer.model.zero_grad()
    for trajectory, value in zip(episodes, values, strict=True):
        (step,) = trajectory.steps
        ids = torch.tensor([step.reply.prompt_ids + step.reply.ids])
        logits = trainer.model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        chosen = logits[torch.arange(ids.shape[1] - 1), ids[0, 1:]][-len(step.reply.ids) :]
        (-value * chosen.sum() / len(step.reply.ids) / len(episodes)).backward()
    expected = torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])
    assert torch.allclose(found, expected, atol=1e-6)
    assert found.abs().max() > 1e-4


def test_the_ratio_is_clipped_where_it_would_go_on_gaining(tokenizer: Any) -> None:
    trainer = GRPO(model(tokenizer), tokenizer, make_env, GRPOConfig(clip=0.2))
    episodes = list(collect(LocalPolicy(trainer.model, tokenizer, max_new_tokens=2), make_env, [1]))
    ((row, _),) = weigh(episodes, [1.0])
    for shift, weight, flows in ((-1.0, 1.0, False), (-1.0, -1.0, True), (1.0, 1.0, True), (1.0, -1.0, False)):
        shifted = replace(row, logprobs=tuple(x + shift * s for x, s in zip(row.logprobs or (), row.sampled, strict=True)))
        data = batch([shifted], 0)
        trainer.model.zero_grad()
        loss, metrics = trainer._loss(data, weight * data.sampled)
        loss.backward()  # type: ignore[no-untyped-call]
        grown = max(p.grad.abs().max().item() for p in trainer.model.parameters() if p.grad is not None)
        assert (grown > 0) == flows, (shift, weight)
        assert metrics["drift"] == pytest.approx(1.0, abs=1e-4)


def test_the_divergence_is_zero_at_the_start_and_its_gradient_leads_back(tokenizer: Any) -> None:
    trainer = GRPO(model(tokenizer), tokenizer, make_env, GRPOConfig(kl=1.0))
    episodes = list(collect(LocalPolicy(trainer.model, tokenizer, max_new_tokens=3), make_env, range(8)))
    data = batch([row for row, _ in weigh(episodes, [0.0] * 8)], 0)
    nothing = torch.zeros_like(data.sampled)
    assert trainer._loss(data, nothing)[1]["kl"] == 0.0
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
    apart = []
    for _ in range(20):
        loss, metrics = trainer._loss(data, nothing)
        apart.append(metrics["kl"])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert apart[0] > 2 * apart[-1] >= 0


@pytest.mark.parametrize("kind", ["cloning", "grpo"])
def test_a_run_that_was_stopped_goes_on_exactly(tokenizer: Any, kind: str, tmp_path: Path) -> None:
    def start(out: Path) -> Trainer[Any]:
        common: dict[str, Any] = {"steps": 6, "save_every": 3, "num_envs": 4}
        if kind == "cloning":
            return Cloning(Echo(), model(tokenizer), tokenizer, make_env, CloningConfig(episodes=4, **common), out)
        config = GRPOConfig(groups=2, group_size=2, max_new_tokens=2, kl=0.1, **common)
        return GRPO(model(tokenizer), tokenizer, make_env, config, out)

    whole = start(tmp_path / "whole")
    whole.train()

    def stop(step: int, metrics: Any) -> None:
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(tmp_path / "cut").train(stop)
    resumed = start(tmp_path / "cut")
    assert resumed.step == 3
    resumed.train()
    assert torch.equal(parameters(resumed), parameters(whole))
    assert (tmp_path / "whole" / "metrics.jsonl").read_text().count("\n") == 6
    assert whole.seeds(1)[0] >= TRAIN_SEED, "evaluation has the seeds from 0 on"


def test_the_second_epoch_has_other_probabilities(tokenizer: Any) -> None:
    trainer = GRPO(model(tokenizer), tokenizer, make_env, GRPOConfig(steps=1, epochs=3, groups=2, group_size=8, learning_rate=1e-2))
    cloned = Cloning(Echo(["one"]), trainer.model, tokenizer, make_env, CloningConfig(steps=20, learning_rate=1e-2, episodes=8))
    cloned.train()
    drifts: list[float] = []
    for loss, metrics in trainer.updates():
        drifts.append(metrics["drift"])
        trainer._update(loss)
    assert drifts[0] < 1e-4
    assert len(drifts) == 3


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (GRPOConfig, {"group_size": 1}, "group_size must be an integer in"),
        (GRPOConfig, {"baseline": "mean"}, "baseline must be one of grpo, rloo, reinforce"),
        (CloningConfig, {"steps": 0}, "steps must be an integer in"),
        (CloningConfig, {"learning_rate": -1}, "learning_rate must be a number in"),
    ],
)
def test_wrong_settings_are_named(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_logprobs_of_a_prompt_are_not_trained(tokenizer: Any) -> None:
    trainer = Cloning(Echo(), model(tokenizer), tokenizer, make_env, CloningConfig(episodes=4))
    ((loss, metrics),) = list(trainer.updates())
    episodes = list(collect(trainer.teacher, make_env, range(TRAIN_SEED, TRAIN_SEED + 4)))
    assert metrics["tokens"] == sum(len(step.reply.ids) for t in episodes for step in t.steps)
    data = batch([row for t in episodes for row, _ in weigh([t], [1.0])], int(tokenizer.pad_token_id))
    assert loss.item() == pytest.approx(-(logprobs_of(trainer.model, data) * data.sampled).sum().item() / metrics["tokens"])
