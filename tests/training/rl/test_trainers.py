from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch

from agentgym.training.evaluation import evaluate
from agentgym.training.rl import GRPO, TRAIN_SEED, Cloning, CloningConfig, GRPOConfig, rows
from agentgym.training.rl.batches import (
    Experience,
    batch,
    experience,
    logprobs_of,
    reply_lengths,
    spread,
)
from agentgym.training.rl.episodes import EpisodeBatch, EpisodeSource
from agentgym.training.rl.grpo import advantages
from agentgym.training.rl.trainer import Recorder
from agentgym.training.rollout import LocalPolicy, Trajectory, collect
from tests.training.rl.echo_trainers import (
    Echo,
    Wavering,
    episode,
    gradients,
    have_the_same_gradients,
    small_model,
    wavering_model,
)
from tests.training.rl.echo_world import make_env


@pytest.fixture(scope="module")
def wavering(tokenizer: Any) -> Any:
    return wavering_model(tokenizer, turns=1)


def weighted(played: list[Trajectory], values: list[float], weight: str = "episode") -> Experience:
    tokens = [sum(reply_lengths(trajectory)) for trajectory in played]
    return experience(played, spread(values, tokens), weight, 0)


@pytest.mark.rotation
@pytest.mark.parametrize(("teacher", "minimum"), [(Echo(), None), (Wavering(), 1.0)])
def test_cloning_learns_the_identity_from_what_the_teacher_does_right(
    tokenizer: Any, teacher: Echo, minimum: float | None
) -> None:
    config = CloningConfig(steps=60, learning_rate=1e-2, episodes=16, min_reward=minimum)
    trainer = Cloning(teacher, small_model(tokenizer, 64), tokenizer, make_env, config)
    before = evaluate(LocalPolicy(trainer.model, tokenizer, 0, 4), make_env, 40)
    losses: list[float] = []
    kept: list[float] = []

    def note(step: int, metrics: Mapping[str, float]) -> None:
        losses.append(metrics["loss"])
        kept.append(metrics["kept"])

    trainer.train(note)
    assert fmean(kept) == (1.0 if minimum is None else pytest.approx(0.5, abs=0.1))
    assert before < 0.3
    assert losses[-1] < 0.02 < losses[0]
    assert evaluate(LocalPolicy(trainer.model, tokenizer, 0, 4), make_env, 40) == 1.0


@pytest.mark.rotation(advantage=[("grpo", "episode"), ("rloo", "turn"), ("reinforce", "episode")])
def test_grpo_mends_by_reward_alone_what_was_cloned_wrongly(
    tokenizer: Any, wavering: Any, advantage: tuple[str, str]
) -> None:
    baseline, level = advantage
    options: dict[str, Any] = {"baseline": baseline, "level": level, "max_new_tokens": 4}
    config = GRPOConfig(steps=16, learning_rate=2e-3, warmup=3, epochs=2, **options)
    trainer = GRPO(copy.deepcopy(wavering), tokenizer, make_env, config)
    found: list[Any] = []
    trainer.train(lambda step, metrics: found.append(metrics))
    assert fmean(metrics["reward"] for metrics in found[:3]) < 0.75
    assert fmean(metrics["reward"] for metrics in found[-3:]) > 0.9
    assert evaluate(LocalPolicy(trainer.model, tokenizer, 0, 4), make_env, 100) == 1.0
    drifts = [metrics["sampler_drift"] for metrics in found if metrics["informative"]]
    assert max(drifts) < 1e-4, "trainer and sampler have the same log-probabilities"
    assert all(
        metrics["turns"] == 1 and metrics["success"] == metrics["reward"] for metrics in found
    )


def test_advantages_by_hand() -> None:
    group = [
        episode(seed, [reward])
        for seed, reward in [(1, 1.0), (2, 0.5), (1, 0.0), (1, 0.0), (2, 0.5), (1, 1.0)]
    ]
    expected = {
        "grpo": [1.0, 0.0, -1.0, -1.0, 0.0, 1.0],
        "mean": [0.5, 0.0, -0.5, -0.5, 0.0, 0.5],
        "rloo": [2 / 3, 0.0, -2 / 3, -2 / 3, 0.0, 2 / 3],
        "reinforce": [0.5, 0.0, -0.5, -0.5, 0.0, 0.5],
    }
    for baseline, values in expected.items():
        for level in ("episode", "turn"):
            assert [steps[0] for steps in advantages(group, baseline, level)] == pytest.approx(
                values, abs=1e-5
            )
    alone = [episode(1, [1.0]), episode(2, [0.0])]
    assert advantages(alone, "grpo") == advantages(alone, "rloo") == [(0.0,), (0.0,)], (
        "nothing to compare with is no news"
    )


@pytest.mark.parametrize("baseline", ["grpo", "mean", "rloo", "reinforce"])
def test_equal_rewards_give_no_advantage_despite_rounding(baseline: str) -> None:
    for size in range(2, 20):
        for reward in (0.1, 0.3, 1 / 3, 0.7):
            group = [episode(1, [reward])] * size
            assert set(advantages(group, baseline)) == {(0.0,)}


def brute_force(
    played: list[Trajectory], baseline: str, gamma: float
) -> Iterator[tuple[float, ...]]:
    """Yield turn advantages computed from the definition."""

    def to_go(t: Trajectory, k: int) -> float:
        return sum(gamma ** (j - k) * t.steps[j].reward for j in range(k, len(t.steps)))

    for t in played:
        found = []
        for k in range(len(t.steps)):
            alike = [
                o
                for o in played
                if len(o.steps) > k and (o.seed == t.seed or baseline == "reinforce")
            ]
            values = [to_go(o, k) for o in alike]
            others = [to_go(o, k) for o in alike if o is not t]
            base = fmean(others or values) if baseline == "rloo" else fmean(values)
            scale = pstdev(values) if baseline == "grpo" and pstdev(values) > 1e-6 else 1.0
            found.append((to_go(t, k) - base) / scale)
        yield tuple(found)


@pytest.mark.parametrize("baseline", ["grpo", "rloo", "reinforce"])
def test_advantages_of_turns_are_those_of_the_definition(baseline: str) -> None:
    draw = random.Random(1)
    for _ in range(20):
        lengths = [draw.randint(1, 5) for _ in range(9)]
        played = [
            episode(draw.randint(0, 2), [draw.choice([0.0, 0.5, 1.0]) for _ in range(n)])
            for n in lengths
        ]
        gamma = draw.choice([1.0, 0.9, 0.0])
        for found, expected in zip(
            advantages(played, baseline, "turn", gamma),
            brute_force(played, baseline, gamma),
            strict=True,
        ):
            assert found == pytest.approx(expected, abs=1e-4)


def test_what_belongs_to_a_step_is_at_its_tokens() -> None:
    # Ids are unique, so a dict from ids to values gives the expected values.
    draw = random.Random(2)
    for _ in range(20):
        played, tokens, expected, fresh = [], [], {}, 0
        for seed in range(3):
            lengths = [draw.randint(1, 3) for _ in range(draw.randint(1, 5))]
            cuts = [k for k in range(len(lengths)) if draw.random() < 0.5]
            made = episode(seed, [0.0] * len(lengths), lengths, cuts, fresh=fresh)
            fresh += 100
            for step in made.steps:
                for i in step.reply.ids:
                    tokens.append(draw.random())
                    expected[i] = tokens[-1], 1 / sum(lengths) / 3, -0.01 * i
            played.append(made)
        data = experience(played, torch.tensor(tokens), "episode", pad=-1)
        trained = data.ids[data.sampled].tolist()
        assert sorted(trained) == sorted(expected)
        found = torch.stack([data.advantages, data.shares, data.logprobs], -1)
        for i, values in zip(trained, found[data.sampled].tolist(), strict=True):
            assert values == pytest.approx(expected[i])
        assert found[~data.sampled].abs().max() == 0


def test_the_gradient_is_the_one_of_the_formula(tokenizer: Any) -> None:
    """At the first update, the clipped objective is the plain policy gradient."""
    values = [1.0, -1.0, 0.5, -0.25]
    for micro_batch in (0, 1, 3):
        config = GRPOConfig(max_new_tokens=3, micro_batch=micro_batch)
        trainer = GRPO(small_model(tokenizer), tokenizer, make_env, config)
        episodes = list(
            collect(LocalPolicy(trainer.model, tokenizer, max_new_tokens=3), make_env, [1, 1, 2, 2])
        )
        found = gradients(trainer, trainer._losses(weighted(episodes, values), 1.0, fresh=True))

        def plain(trainer: Any, episodes: list[Trajectory]) -> Iterator[torch.Tensor]:
            for trajectory, value in zip(episodes, values, strict=True):
                (step,) = trajectory.steps
                ids = torch.tensor([step.reply.prompt_ids + step.reply.ids])
                logits = trainer.model(input_ids=ids).logits[0, :-1].log_softmax(-1)
                chosen = logits[torch.arange(ids.shape[1] - 1), ids[0, 1:]][-len(step.reply.ids) :]
                yield -value * chosen.sum() / len(step.reply.ids) / len(episodes)

        assert torch.allclose(found, gradients(trainer, plain(trainer, episodes)), atol=1e-6)
        assert found.abs().max() > 1e-4


def test_a_padding_token_need_not_be_in_the_model(tokenizer: Any) -> None:
    model, enlarged = small_model(tokenizer), copy.deepcopy(tokenizer)
    enlarged.add_special_tokens({"pad_token": "<|new|>"})
    assert enlarged.pad_token_id == model.config.vocab_size
    config = GRPOConfig(groups=2, group_size=4, max_new_tokens=5, entropy=0.1)
    trainers = [GRPO(model, each, lambda: make_env(2), config) for each in (tokenizer, enlarged)]
    have_the_same_gradients(trainers, updates=1)


def test_micro_batches_change_no_gradient(tokenizer: Any) -> None:
    # The loss has all terms, and the rows have different lengths.
    options: dict[str, Any] = {
        "epochs": 2,
        "minibatches": 2,
        "kl": 0.5,
        "entropy": 0.3,
        "max_new_tokens": 3,
    }
    configs = [
        GRPOConfig(groups=2, group_size=4, micro_batch=size, **options) for size in (0, 1, 2, 5)
    ]
    trainers = (
        GRPO(small_model(tokenizer), tokenizer, lambda: make_env(2), config) for config in configs
    )
    have_the_same_gradients(trainers, updates=4)


def test_minibatches_add_up_to_the_whole(tokenizer: Any) -> None:
    trainer = GRPO(
        small_model(tokenizer), tokenizer, make_env, GRPOConfig(minibatches=4, entropy=0.1)
    )
    played = list(
        collect(LocalPolicy(trainer.model, tokenizer, max_new_tokens=3), make_env, range(8))
    )
    data = weighted(played, [float(k % 3) for k in range(8)])
    whole = gradients(trainer, trainer._losses(data, 1.0, fresh=True))
    parts = [gradients(trainer, losses) for losses in trainer.optimise(data)]
    assert len(parts) == 4
    assert torch.allclose(torch.stack(parts).mean(0), whole, atol=1e-6)
    assert not torch.allclose(parts[0], whole, atol=1e-3)


def test_the_ratio_is_clipped_where_it_would_go_on_gaining(tokenizer: Any) -> None:
    trainer = GRPO(small_model(tokenizer), tokenizer, make_env, GRPOConfig(clip=0.2))
    played = list(collect(LocalPolicy(trainer.model, tokenizer, max_new_tokens=2), make_env, [1]))
    for shift, value, flows in (
        (-1.0, 1.0, False),
        (-1.0, -1.0, True),
        (1.0, 1.0, True),
        (1.0, -1.0, False),
    ):
        trainer.records = Recorder()
        data = weighted(played, [value])
        data = replace(data, logprobs=data.logprobs + shift * data.sampled)
        grown = gradients(trainer, [trainer.loss(data, trainer.predict(data))])
        assert (grown.abs().max() > 0) == flows, (shift, value)
        figures = trainer.records.figures()
        ratio = torch.tensor(-shift).exp().item()
        assert figures["ratio"] == pytest.approx(ratio, rel=1e-4)
        assert figures["ratio_max"] == pytest.approx(ratio, rel=1e-4)
        assert figures["approx_kl"] == pytest.approx(ratio - 1 + shift, rel=1e-3)
        assert figures["clipped"] == 1.0


def test_the_divergence_is_zero_at_the_start_and_its_gradient_leads_back(tokenizer: Any) -> None:
    trainer = GRPO(small_model(tokenizer), tokenizer, make_env, GRPOConfig(kl=1.0))
    played = list(
        collect(LocalPolicy(trainer.model, tokenizer, max_new_tokens=3), make_env, range(8))
    )
    data = weighted(played, [0.0] * 8)
    assert trainer.loss(data, trainer.predict(data)).item() == 0.0
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(
                0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            )
    optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
    apart = []
    for _ in range(20):
        loss = trainer.loss(data, trainer.predict(data))
        apart.append(loss.item())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert apart[0] > 2 * apart[-1] >= 0


def test_entropies_are_those_of_the_distribution_and_the_bonus_raises_them(tokenizer: Any) -> None:
    trainer = GRPO(
        small_model(tokenizer), tokenizer, make_env, GRPOConfig(entropy=1.0, temperature=0.7)
    )
    played = list(collect(LocalPolicy(trainer.model, tokenizer, 0.7, 3), make_env, range(4)))
    data = weighted(played, [0.0] * 4)
    prediction = trainer.predict(data)
    logits = trainer.model(input_ids=data.ids, attention_mask=data.attended).logits / 0.7
    for row, token in data.sampled.nonzero().tolist():
        entropy = torch.distributions.Categorical(logits=logits[row, token - 1]).entropy()  # type: ignore[no-untyped-call]
        assert prediction.entropies[row, token].item() == pytest.approx(entropy.item(), abs=1e-5)
    loss = trainer.loss(data, prediction)
    assert loss.item() == pytest.approx(-(data.shares * prediction.entropies).sum().item())
    trainer._update([loss])
    assert (trainer.predict(data).entropies * data.shares).sum() > (
        prediction.entropies * data.shares
    ).sum()


def test_cloning_in_bf16_rounds_and_keeps_the_weights(tokenizer: Any) -> None:
    losses: list[float] = []
    for precision in ("fp32", "bf16"):
        config = CloningConfig(steps=1, episodes=8, precision=precision)
        trainer = Cloning(Echo(), small_model(tokenizer), tokenizer, make_env, config)
        trainer.train(lambda step, metrics: losses.append(metrics["loss"]))
        assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert losses[0] != losses[1]


@pytest.mark.rotation
def test_sampler_and_trainer_have_the_same_precision(tokenizer: Any, wavering: Any) -> None:
    apart: dict[str, float] = {}
    for precision in ("fp32", "bf16"):
        trainer = GRPO(
            wavering, tokenizer, make_env, GRPOConfig(precision=precision, max_new_tokens=3)
        )
        for of in ("fp32", "bf16"):
            config = GRPOConfig(precision=of, max_new_tokens=3, groups=50, group_size=2)
            played = GRPO(wavering, tokenizer, make_env, config).play_groups(0).episodes
            data = weighted(played, [0.0] * 100)
            drift = trainer.predict(data).logprobs - data.logprobs
            apart[f"{of} {precision}"] = drift[data.sampled].abs().mean().item()
            assert drift.dtype == torch.float32
    # With bf16 instructions, sampling token by token rounds differently from one forward pass, so
    # the results differ slightly even at equal precision.
    unequal = min(apart["fp32 bf16"], apart["bf16 fp32"])
    assert unequal > 0
    assert apart["fp32 fp32"] < unequal / 100, apart
    assert apart["bf16 bf16"] < unequal / 3, apart


def test_each_step_and_each_seed_has_instances_and_noise_of_its_own(tokenizer: Any) -> None:
    def drawn(seed: int, step: int) -> tuple[range, list[tuple[int, ...]]]:
        trainer = GRPO(
            small_model(tokenizer), tokenizer, make_env, GRPOConfig(seed=seed, max_new_tokens=4)
        )
        policy = trainer.policy(trainer.draw_seed(step))
        played = trainer.play(policy, [5], 2, step).episodes
        return trainer.source.seeds(3), [t.steps[0].reply.ids for t in played]

    runs = [drawn(seed, step) for seed, step in [(0, 0), (0, 1), (1, 0), (1, 1)]]
    assert all(a[1] != b[1] for k, a in enumerate(runs) for b in runs[:k])
    assert runs[0][0] == runs[1][0] == range(TRAIN_SEED, TRAIN_SEED + 3)
    assert not set(runs[2][0]) & set(runs[0][0])
    assert drawn(1, 1) == runs[3]


def test_nothing_is_trained_if_opponents_forfeit_all_episodes(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EpisodeSource, "play", lambda *_: EpisodeBatch(figures=[{"reward": 0.0}]))
    model, steps = small_model(tokenizer), []
    before = copy.deepcopy(model.state_dict())
    cloning = Cloning(Echo(), model, tokenizer, make_env, CloningConfig(steps=1))
    for trainer in (cloning, GRPO(model, tokenizer, make_env, GRPOConfig(steps=1, resample=1))):
        trainer.train(lambda step, metrics: steps.append(metrics))
    assert steps == [{"reward": 0.0}] * 2
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (GRPOConfig, {"group_size": 1}, "group_size must be an integer in"),
        (GRPOConfig, {"baseline": "median"}, "baseline must be one of grpo, mean, rloo, reinforce"),
        (GRPOConfig, {"temperature": 0}, r"temperature must be a number in \[0.001"),
        (CloningConfig, {"max_grad_norm": 0.0}, r"max_grad_norm must be a number in \(0.0"),
        (CloningConfig, {"steps": 0}, "steps must be an integer in"),
        (CloningConfig, {"micro_batch": -1}, "micro_batch must be an integer in"),
    ],
)
def test_wrong_settings_are_named(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_logprobs_of_a_prompt_are_not_trained(tokenizer: Any) -> None:
    trainer = Cloning(
        Echo(),
        small_model(tokenizer),
        tokenizer,
        make_env,
        CloningConfig(episodes=4, micro_batch=3),
    )
    ((*losses,),) = list(trainer.updates())
    episodes = list(collect(trainer.teacher, make_env, range(TRAIN_SEED, TRAIN_SEED + 4)))
    tokens = sum(len(step.reply.ids) for t in episodes for step in t.steps)
    assert trainer.records.figures()["tokens"] == tokens
    data = batch([row for t in episodes for row in rows(t)], 0)
    expected = -(logprobs_of(trainer.model, data) * data.sampled).sum().item() / tokens
    assert torch.stack(losses).sum().item() == pytest.approx(expected)
    assert len(losses) == 2
