"""PPO: advantages and returns from their definitions, losses and gradients by hand, and known
answers on an identity world.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
import torch

from agentgym import Chat, Message
from agentgym.training.evaluation import evaluate
from agentgym.training.rl import PPO, PPOConfig, rows
from agentgym.training.rl.batches import Prediction
from agentgym.training.rl.ppo import ValuedExperience, actions, explained, gae
from agentgym.training.rollout import LocalPolicy, Trajectory, collect
from agentgym.training.rollout.models import TEMPLATE
from tests.training.rl.echo_trainers import (
    episode,
    gradients,
    have_the_same_gradients,
    small_model,
    wavering_model,
)
from tests.training.rl.echo_world import make_env


@pytest.fixture(scope="module")
def wavering(tokenizer: Any) -> Any:
    return wavering_model(tokenizer, turns=2)


def two_turns() -> Any:
    return make_env(2)


def start(tokenizer: Any, **options: Any) -> PPO:
    """A trainer whose value head says something."""
    made = PPO(
        small_model(tokenizer),
        tokenizer,
        two_turns,
        PPOConfig(**{"max_new_tokens": 3, "episodes": 6, **options}),
    )
    with torch.no_grad():
        made.value.weight.copy_(torch.randn(32, generator=torch.Generator().manual_seed(0)))
        made.value.bias.fill_(0.5)
    return made


def played(trainer: PPO, episodes: int = 6) -> tuple[list[Trajectory], LocalPolicy]:
    policy = LocalPolicy(trainer.model, trainer.tokenizer, max_new_tokens=3)
    return list(collect(policy, trainer.env, range(episodes))), policy


@pytest.mark.rotation(level=["turn", "token"])
def test_ppo_mends_by_reward_alone_what_was_cloned_wrongly(
    tokenizer: Any, wavering: Any, level: str
) -> None:
    config = PPOConfig(
        steps=12,
        learning_rate=5e-4,
        warmup=3,
        episodes=32,
        epochs=3,
        minibatches=2,
        level=level,
        max_new_tokens=4,
    )
    trainer = PPO(copy.deepcopy(wavering), tokenizer, two_turns, config)
    found: list[Any] = []
    trainer.train(lambda step, metrics: found.append(metrics))
    assert fmean(metrics["reward"] for metrics in found[:3]) < 0.75
    assert fmean(metrics["reward"] for metrics in found[-3:]) > 0.85
    assert evaluate(LocalPolicy(trainer.model, tokenizer, 0, 4), two_turns, 100) == 1.0
    assert max(metrics["sampler_drift"] for metrics in found) < 1e-4
    assert found[0]["value"] == 0.0, "a new head knows nothing"
    assert 0.4 < found[-1]["value"] < 1, "and comes to expect what is to be had"
    assert max(metrics["ratio_max"] for metrics in found) > 1.05


def by_definition(
    rewards: Sequence[float], values: Sequence[float], end: float, gamma: float, lam: float
) -> list[float]:
    """The advantage of each action as the weighted mean of its n-step estimates (Schulman et al.

    2016, eq. 11 to 16).
    """
    count = len(rewards)
    after = [*values, end]

    def estimate(t: int, n: int) -> float:
        return (
            sum(gamma**k * rewards[t + k] for k in range(n)) + gamma**n * after[t + n] - values[t]
        )

    found = []
    for t in range(count):
        last = count - t
        inner = sum((1 - lam) * lam ** (n - 1) * estimate(t, n) for n in range(1, last))
        found.append(inner + lam ** (last - 1) * estimate(t, last))
    return found


def test_advantages_are_those_of_the_definition() -> None:
    draw = random.Random(0)
    for count in (1, 1, 2, 3, 7, 20):
        rewards, values = ([draw.uniform(-1, 1) for _ in range(count)] for _ in range(2))
        for end in (0.0, draw.uniform(-1, 1)):
            for gamma, lam in [(1.0, 1.0), (0.9, 0.0), (0.99, 0.95), (1.0, 0.5)]:
                assert gae(rewards, values, end, gamma, lam) == pytest.approx(
                    by_definition(rewards, values, end, gamma, lam)
                )


def test_advantages_by_hand() -> None:
    """Two steps with rewards 0 and 1 and values 0.5 and 0.25."""
    assert gae([0, 1], [0.5, 0.25], 0.0, 1.0, 1.0) == [0.5, 0.75], "the return, less the value"
    assert gae([0, 1], [0.5, 0.25], 0.0, 1.0, 0.0) == [-0.25, 0.75], "one step ahead"
    assert gae([0, 1], [0.5, 0.25], 2.0, 0.5, 1.0) == [0.5, 1.75], (
        "0.5 * 1 + 0.25 * 2 - 0.5 and 1 + 0.5 * 2 - 0.25"
    )


def test_actions_of_turns_and_of_tokens() -> None:
    """Replies of 2, 1 and 3 tokens; the context between them has no part in it."""
    trajectory = episode(1, [0.5, 0.0, 2.0], (2, 1, 3))
    values = [1.0, 10.0, 2.0, 3.0, 20.0, 30.0]
    for level, sizes, rewards, before in [
        ("turn", [2, 1, 3], [0.5, 0.0, 2.0], [1.0, 2.0, 3.0]),
        ("token", [1] * 6, [0.0, 0.5, 0.0, 0.0, 0.0, 2.0], values),
    ]:
        config = PPOConfig(level=level, gamma=0.9, gae_lambda=0.7)
        for end in (0.0, 5.0):
            found = actions(trajectory, values, end, config)
            assert [action.tokens for action in found] == sizes
            assert [action.value for action in found] == before
            assert [action.advantage for action in found] == pytest.approx(
                by_definition(rewards, before, end, 0.9, 0.7)
            )


@pytest.mark.parametrize("level", ["turn", "token"])
@pytest.mark.parametrize("weight", ["episode", "token"])
def test_cuts_of_the_context_change_nothing_but_the_rows(
    tokenizer: Any, level: str, weight: str
) -> None:
    """Every token of an edited episode has what it has in the same episode in one row, at its
    own place.
    """
    draw = random.Random(3)
    trainer = start(tokenizer, level=level, weight=weight, gamma=0.9, normalize=False)
    for cuts in [(1,), (1, 2, 3), (3,)]:
        shapes = [([0.0, 1.0, 0.0, 0.5], (2, 1, 3, 2)), ([1.0], (3,))]
        whole = [
            episode(k, *shape, truncated=k == 0, fresh=100 * k) for k, shape in enumerate(shapes)
        ]
        cut = [
            episode(k, *shape, cuts, truncated=k == 0, fresh=100 * k)
            for k, shape in enumerate(shapes)
        ]
        values = torch.tensor([draw.uniform(-1, 1) for _ in range(11)])
        one, many = (trainer.experience(episodes, values, [0.7, 0.0]) for episodes in (whole, cut))
        assert len(one.ids) == 2
        assert len(many.ids) == 2 + len(cuts)
        table = [
            expected(t, v, end, trainer.config)
            for t, v, end in zip(cut, values.split([8, 3]), [0.7, 0.0], strict=True)
        ]  # type: ignore[no-untyped-call]
        share = [
            1 / 2 / len(part) if weight == "episode" else 1 / sum(map(len, table)) for part in table
        ]
        flat = [(*row, s) for part, s in zip(table, share, strict=True) for row in part]
        for data in (one, many):
            assert data.ids[data.sampled].tolist() == [
                i for t in whole for step in t.steps for i in step.reply.ids
            ]
            begins = data.value_shares[data.sampled] > 0
            names = ("values", "advantages", "returns", "value_shares")
            found = torch.stack(
                [getattr(data, name)[data.sampled][begins] for name in names], -1
            ).tolist()
            assert len(found) == len(flat)
            for got, want in zip(found, flat, strict=True):
                assert got == pytest.approx(want, abs=1e-6)
            assert data.shares.sum().item() == pytest.approx(1.0)
            assert data.value_shares.sum().item() == pytest.approx(1.0)
        assert torch.equal(one.advantages[one.sampled], many.advantages[many.sampled])


def expected(
    trajectory: Trajectory, values: torch.Tensor, end: float, config: PPOConfig
) -> list[tuple[float, float, float]]:
    """Value, advantage and return of each action, by definition, from the steps alone."""
    stream, before, rewards = values.tolist(), [], []
    for step in trajectory.steps:
        for k in range(len(step.reply.ids)):
            value = stream.pop(0)
            if config.level == "token" or k == 0:
                before.append(value)
                rewards.append(0.0)
        rewards[-1] = step.reward
    advantages = by_definition(rewards, before, end, config.gamma, config.gae_lambda)
    return [(v, a, v + a) for v, a in zip(before, advantages, strict=True)]


def test_all_tokens_of_a_reply_have_its_advantage(tokenizer: Any) -> None:
    trainer = start(tokenizer, gamma=0.5, gae_lambda=0.0, normalize=False)
    data = trainer.experience(
        [episode(1, [1.0, 3.0], (2, 3))], torch.tensor([1.0, 9.0, 2.0, 9.0, 9.0]), [0.0]
    )
    assert data.advantages[data.sampled].tolist() == [1.0, 1.0, 1.0, 1.0, 1.0], (
        "1 + 0.5 * 2 - 1 and 3 - 2"
    )
    assert data.value_shares[data.sampled].tolist() == [0.5, 0.0, 0.5, 0.0, 0.0]
    assert trainer.records.figures()["explained_variance"] == 1.0, "returns 2 and 3, values 1 and 2"


def test_advantages_are_normalised_over_actions(tokenizer: Any) -> None:
    trainer = start(tokenizer, gae_lambda=0.0)
    made = [
        episode(k, [reward], (1 + k,), fresh=10 * k) for k, reward in enumerate([0.0, 1.0, 2.0])
    ]
    data = trainer.experience(made, torch.zeros(6), [0.0] * 3)
    high = math.sqrt(1.5)
    assert data.advantages[data.sampled].tolist() == pytest.approx(
        [-high, 0.0, 0.0, high, high, high]
    )
    assert data.returns[data.sampled].tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 2.0], "returns are not"
    alone = trainer.experience(made[:1], torch.zeros(1), [0.0])
    assert alone.advantages[alone.sampled].tolist() == [0.0]


@torch.no_grad()
def value_after(trainer: PPO, ids: Sequence[int]) -> float:
    """The value of a prompt, from the trunk of the model alone."""
    trunk: Any = trainer.model.base_model
    state = trunk(torch.tensor([ids])).last_hidden_state[0, -1]
    return float(state @ trainer.value.weight + trainer.value.bias)


@pytest.mark.parametrize(("micro_batch", "edited"), [(0, False), (2, False), (0, True), (3, True)])
def test_values_are_those_before_each_token(
    tokenizer: Any, micro_batch: int, *, edited: bool
) -> None:
    """Also where the chat template shortens what was said before, so that each turn is a row of
    its own.
    """
    tokenizer = copy.deepcopy(tokenizer)
    if edited:
        tokenizer.chat_template = TEMPLATE.replace(
            "message.content", "(message.content if loop.last else message.content[:1])"
        )
    trainer = start(tokenizer, micro_batch=micro_batch)
    episodes, policy = played(trainer)
    assert {len(rows(trajectory)) for trajectory in episodes} == {2 if edited else 1}
    values, ends = trainer.values_of(episodes, policy.renderer)
    replies = [step.reply for trajectory in episodes for step in trajectory.steps]
    expected = [
        value_after(trainer, reply.prompt_ids + reply.ids[:k])
        for reply in replies
        for k in range(len(reply.ids))
    ]
    assert values.tolist() == pytest.approx(expected, abs=1e-5)
    assert ends == [0.0] * 6, "all have terminated"
    assert values.std() > 0.1


def test_truncation_is_not_termination(tokenizer: Any) -> None:
    trainer = start(tokenizer)
    episodes, policy = played(trainer, 4)
    last = policy.renderer.ids(episodes[2].last)
    assert (
        last[: len(episodes[2].steps[-1].reply.prompt_ids)]
        == episodes[2].steps[-1].reply.prompt_ids
    )
    changed = [replace(t, terminated=k != 2, truncated=k >= 2) for k, t in enumerate(episodes)]
    _, ends = trainer.values_of(changed, policy.renderer)
    assert ends == pytest.approx([0.0, 0.0, value_after(trainer, last), 0.0], abs=1e-5), (
        "what has terminated too is over"
    )
    assert abs(ends[2]) > 1e-3
    for tokens, has_room in ((63, True), (64, False), (90, False)):
        chat = Chat().add(Message("user", "one " * (tokens - 3)))
        ids = policy.renderer.ids(chat)
        assert len(ids) == tokens
        (end,) = trainer.values_of([replace(changed[2], last=chat)], policy.renderer)[1]
        assert end == pytest.approx(value_after(trainer, ids) if has_room else 0.0), (
            "the context of the model has 64 tokens"
        )
    assert start(tokenizer, bootstrap=False).values_of(changed, policy.renderer)[1] == [0.0] * 4


def tiny(advantage: float, ratio: float, old: float, target: float) -> ValuedExperience:
    """One row: a token of context and one that was sampled, which had another probability then."""
    row = torch.tensor([[0.0, 1.0]])
    then = math.log(0.75) - math.log(ratio)
    numbers = {
        "shares": 1.0,
        "advantages": advantage,
        "values": old,
        "returns": target,
        "value_shares": 1.0,
        "replies": 0.0,
    }
    ids, attended, sampled = (
        torch.tensor([[5, 0]]),
        torch.tensor([[1, 1]]),
        torch.tensor([[False, True]]),
    )
    return ValuedExperience(
        ids, attended, sampled, row * then, **{name: row * value for name, value in numbers.items()}
    )


def by_hand(
    trainer: PPO, data: ValuedExperience, state: float
) -> tuple[float, torch.Tensor, float]:
    """The loss of a model with two logits, log 3 and 0, that has sampled the first; the
    gradients of logits and of the head.
    """
    logits = torch.tensor([math.log(3.0), 0.0], requires_grad=True)
    logprobs = logits.log_softmax(-1)
    states = torch.zeros(1, 2, 32)
    states[0, 1, 0] = state
    nothing = torch.zeros(1, 1)
    chosen = torch.cat([nothing, logprobs[:1, None]], 1)
    entropies = torch.cat([nothing, -(logprobs.exp() * logprobs).sum()[None, None]], 1)
    trainer.optimizer.zero_grad()
    loss = trainer.loss(data, Prediction(chosen, entropies, states))
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert trainer.value.weight.grad is not None
    return loss.item(), logits.grad, trainer.value.weight.grad[0].item()


@pytest.mark.parametrize(
    ("advantage", "ratio", "gain", "flows"),
    [
        (2.0, 1.1, 2.2, True),
        (2.0, 1.5, 2.4, False),
        (2.0, 0.5, 1.0, True),
        (-2.0, 1.5, -3.0, True),
        (-2.0, 0.5, -1.6, False),
    ],
)
def test_the_policy_gradient_by_hand(
    tokenizer: Any, advantage: float, ratio: float, gain: float, *, flows: bool
) -> None:
    """With p = (3/4, 1/4), the gradient of log p of the first is (1/4, -1/4); times ratio and
    advantage, unless it is clipped.
    """
    trainer = start(tokenizer, value_weight=0.0)
    loss, gradient, _ = by_hand(trainer, tiny(advantage, ratio, 0.0, 0.0), 0.0)
    assert loss == pytest.approx(-gain, rel=1e-5)
    slope = -ratio * advantage / 4 if flows else 0.0
    assert gradient.tolist() == pytest.approx([slope, -slope], abs=1e-6)


def test_the_entropy_gradient_by_hand(tokenizer: Any) -> None:
    """With p = 3/4 and z the difference of the logits, H' = -z p (1 - p), and z = log 3."""
    loss, gradient, _ = by_hand(
        start(tokenizer, value_weight=0.0, entropy=0.1), tiny(0.0, 1.0, 0.0, 0.0), 0.0
    )
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert loss == pytest.approx(-0.1 * entropy, rel=1e-5)
    slope = 0.1 * math.log(3) * 0.75 * 0.25
    assert gradient.tolist() == pytest.approx([slope, -slope], rel=1e-4)


@pytest.mark.parametrize(
    ("clip", "old", "error", "slope"),
    [
        (
            0.0,
            0.0,
            1.0,
            -2.0,
        ),  # value 2 for 3, without a limit: (2 - 3)^2, and twice the difference
        (0.5, 1.8, 1.0, -2.0),  # 2 is within 0.5 of the old value
        (0.5, 1.0, 2.25, 0.0),  # held at 1.5, whose error is larger: no gradient
        (0.5, 3.4, 1.0, -2.0),  # held at 2.9, whose error is smaller: the plain one counts
    ],
)
def test_the_value_gradient_by_hand(
    tokenizer: Any, clip: float, old: float, error: float, slope: float
) -> None:
    """The head has weight w on the only state, 4; so its value is 2 with w = 0.375 and bias 0.5."""
    trainer = start(tokenizer, value_weight=0.25, value_clip=clip)
    with torch.no_grad():
        trainer.value.weight[0] = 0.375
    loss, logits, weight = by_hand(trainer, tiny(0.0, 1.0, old, 3.0), 4.0)
    assert loss == pytest.approx(0.25 * error, rel=1e-5)
    assert weight == pytest.approx(0.25 * slope * 4.0, rel=1e-5)
    assert logits.abs().max() == 0
    assert trainer.records.figures()["value_loss"] == pytest.approx(error, rel=1e-5)


def test_the_value_loss_reaches_the_model(tokenizer: Any) -> None:
    trainer = start(tokenizer, value_weight=1.0)
    episodes, policy = played(trainer)
    data = trainer.experience(episodes, *trainer.values_of(episodes, policy.renderer))
    still = replace(data, advantages=torch.zeros_like(data.advantages))
    gradients(trainer, [trainer.loss(still, trainer.predict(still))])
    embeddings: Any = trainer.model.get_input_embeddings()
    assert embeddings.weight.grad.abs().max() > 1e-4


@pytest.mark.parametrize("level", ["turn", "token"])
def test_micro_batches_change_no_gradient(tokenizer: Any, level: str) -> None:
    options: dict[str, Any] = {
        "epochs": 2,
        "minibatches": 2,
        "kl": 0.5,
        "entropy": 0.3,
        "value_clip": 0.1,
        "level": level,
    }
    have_the_same_gradients(
        (start(tokenizer, micro_batch=size, **options) for size in (0, 1, 2)), updates=4
    )


def test_bf16_stays_near(tokenizer: Any) -> None:
    figures = []
    for precision in ("fp32", "bf16"):
        trainer = start(tokenizer, steps=2, precision=precision)
        trainer.train(lambda step, metrics: figures.append(metrics))
        assert {p.dtype for p in trainer._trained} == {torch.float32}
    first, near = figures[0], figures[2]
    assert near["value"] == pytest.approx(first["value"], rel=0.05)
    assert near["value_loss"] == pytest.approx(first["value_loss"], rel=0.05)
    assert near["entropy"] == pytest.approx(first["entropy"], rel=0.05)
    assert near["value"] != first["value"]
    assert near["sampler_drift"] < 0.1


def test_the_head_is_trained_and_saved(tokenizer: Any) -> None:
    trainer = start(tokenizer, steps=1, kl=0.1)
    before = trainer.value.weight.clone()
    trainer.train()
    assert not torch.equal(trainer.value.weight, before)
    other = start(tokenizer, steps=1, kl=0.1)
    other.load(trainer.state())
    assert torch.equal(other.value.weight, trainer.value.weight)
    in_optimizer = len(trainer.optimizer.param_groups[0]["params"])
    assert in_optimizer == len(list(trainer.model.parameters())) + 2, (
        "model and head, not the reference"
    )


def test_explained_variance_by_hand() -> None:
    returns = torch.tensor([0.0, 2.0])
    assert explained(returns + 5, returns) == {"explained_variance": 1.0}
    assert explained(torch.tensor([3.0, 3.0]), returns) == {"explained_variance": 0.0}
    assert explained(torch.tensor([2.0, 0.0]), returns) == {"explained_variance": -3.0}
    assert explained(returns, torch.tensor([1.0, 1.0])) == {}


def test_every_step_needs_tokens(tokenizer: Any) -> None:
    bare = episode(4, [0.0, 1.0], (2, 0))
    with pytest.raises(
        ValueError,
        match="step 1 of seed 4 has no token ids: play it with a policy that records them",
    ):
        start(tokenizer).experience([bare], torch.zeros(2), [0.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "episode"}, "level must be one of turn, token"),
        ({"gamma": 1.5}, r"gamma must be a number in \[0.0, 1.0\]"),
        ({"gae_lambda": -1}, "gae_lambda must be a number in"),
        ({"normalize": 1}, "normalize must be True or False"),
        ({"bootstrap": "no"}, "bootstrap must be True or False"),
        ({"episodes": 0}, "episodes must be an integer in"),
        ({"value_clip": -0.1}, "value_clip must be a number in"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PPOConfig(**options)


def test_agents_of_a_team_learn_from_their_own_rewards() -> None:
    """Two agents take turns; the first one's part of the score is 1, the other's is 0."""
    played = episode(0, [0.0, 0.0, 0.0, 1.0], (1, 2, 1, 1))
    detail = {"score": 1.0, "report": {"team": {"rewards": {"a": 1.0, "b": 0.0}}}}
    steps = [
        replace(step, info={"agent": "ab"[k % 2], "detail": detail})
        for k, step in enumerate(played.steps)
    ]
    played = replace(played, steps=tuple(steps))
    assert played.own_rewards() == (0.0, 0.0, 1.0, 0.0)
    config = PPOConfig(level="turn", gamma=0.5, gae_lambda=1.0)
    made = actions(played, [0.0] * 5, 0.0, config)
    assert [action.advantage for action in made] == [0.5, 0.0, 1.0, 0.0]
    by_token = actions(played, [0.0] * 5, 0.0, replace(config, level="token"))
    assert [action.advantage for action in by_token] == [0.5, 0.0, 0.0, 1.0, 0.0]
