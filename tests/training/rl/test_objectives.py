from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

import agentgym
from agentgym.oracles import NoisyPolicy
from agentgym.training.rl import (
    GRPO,
    Cloning,
    CloningConfig,
    GRPOConfig,
    HintCurriculum,
    HorizonCurriculum,
)
from agentgym.training.rl.batches import Prediction, experience, mean_over_replies, spread
from agentgym.training.rl.grpo import advantages, with_label_rewards
from agentgym.training.rl.trainer import CHECKPOINT
from agentgym.training.rollout import LocalPolicy, ModelOptions, collect, load_policy, save_policy
from agentgym.training.rollout.models.pretrained import add_lora, save_model
from tests.training.rl.echo_trainers import (
    Echo,
    episode,
    make_words_tokenizer,
    small_model,
    stop_at,
    wavering_model,
)
from tests.training.rl.echo_world import make_env


@pytest.fixture(scope="module")
def wavering(tokenizer: Any) -> Any:
    return wavering_model(tokenizer, turns=1)


def count_training_passes(model: torch.nn.Module) -> list[int]:
    rows: list[int] = []

    def record(module: Any, arguments: Any, options: Any) -> None:
        if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            rows.append(len(options["input_ids"]))

    model.register_forward_pre_hook(record, with_kwargs=True)
    return rows


def test_groups_without_a_difference_cost_no_pass_and_change_nothing(tokenizer: Any) -> None:
    # A random model with one-token replies is always wrong, so all rewards are equal.
    model = small_model(tokenizer)
    before = copy.deepcopy(model.state_dict())
    passes = count_training_passes(model)
    seen: list[Any] = []
    trainer = GRPO(
        model, tokenizer, make_env, GRPOConfig(steps=2, groups=2, group_size=3, max_new_tokens=1)
    )
    trainer.train(lambda step, metrics: seen.append(metrics))
    assert passes == []
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert [metrics["informative"] for metrics in seen] == [0.0, 0.0]


@pytest.mark.rotation
def test_only_rows_of_differing_groups_are_passed_and_the_gradient_is_the_same(
    tokenizer: Any, wavering: Any
) -> None:
    config = GRPOConfig(groups=6, group_size=2, max_new_tokens=4)
    gradients = []
    for keep_all in (False, True):
        model = copy.deepcopy(wavering)
        passes = count_training_passes(model)
        trainer = GRPO(model, tokenizer, make_env, config)
        trainer.share_prefixes = False  # prefix sharing would hide the number of rows
        if keep_all:
            trainer.config = GRPOConfig(**{**vars(config), "entropy": 1e-12})
        for losses in trainer.updates():
            trainer.optimizer.zero_grad()
            for loss in losses:
                loss.backward()  # type: ignore[no-untyped-call]
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        rows, informative = sum(passes), trainer.records.figures()["informative"]
        assert rows == (12 if keep_all else round(12 * informative))
        assert 0 < informative < 1
    assert torch.allclose(*gradients, atol=1e-7)


@pytest.mark.rotation
def test_instances_without_a_difference_are_replaced(tokenizer: Any, wavering: Any) -> None:
    config = GRPOConfig(groups=12, group_size=2, max_new_tokens=4, resample=20)
    trainer = GRPO(copy.deepcopy(wavering), tokenizer, make_env, config)
    first = trainer.source.next_seed
    played = trainer.play_groups(0).episodes
    seeds = {trajectory.seed for trajectory in played}
    assert len(seeds) == 12
    assert trainer.source.next_seed > first + 12, "more instances were drawn than are kept"
    for seed in seeds:
        assert {t.reward for t in played if t.seed == seed} == {0.0, 1.0}
    hopeless = GRPO(
        small_model(tokenizer),
        tokenizer,
        make_env,
        GRPOConfig(groups=2, group_size=2, max_new_tokens=1, resample=2),
    )
    start = hopeless.source.next_seed
    assert len(hopeless.play_groups(0).episodes) == 4, "the last round is kept for the figures"
    assert hopeless.source.next_seed == start + 6


def loss_of(config: GRPOConfig, ratios: list[float], lengths: list[int], advantage: float) -> Any:
    """Return one episode's loss and its gradient with respect to the log-probabilities."""
    tokenizer = make_words_tokenizer()
    trainer = GRPO(small_model(tokenizer), tokenizer, make_env, config)
    played = [episode(0, [0.0] * len(lengths), lengths)]
    values = spread([advantage], [sum(lengths)])
    data = experience(played, values, config.weight, 0, config.max_new_tokens)
    logprobs = data.logprobs.clone()
    logprobs[data.sampled] += torch.tensor(ratios).log()
    logprobs.requires_grad_()
    loss = trainer.loss(data, Prediction(logprobs, torch.zeros_like(logprobs)))
    loss.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    return loss.item(), logprobs.grad[data.sampled].tolist()


def test_clip_high_by_hand() -> None:
    ratios, lengths = [1.25, 1.5, 0.7], [3]
    loss, gradient = loss_of(GRPOConfig(clip=0.2, clip_high=0.3), ratios, lengths, 3.0)
    assert loss == pytest.approx(-(1.25 + 1.3 + 0.7))
    assert gradient == pytest.approx([-1.25, 0.0, -0.7])
    loss, _ = loss_of(GRPOConfig(clip=0.2), ratios, lengths, 3.0)
    assert loss == pytest.approx(-(1.2 + 1.2 + 0.7))
    loss, gradient = loss_of(GRPOConfig(clip=0.2, clip_high=0.3), ratios, lengths, -3.0)
    assert loss == pytest.approx(1.25 + 1.5 + 0.8)
    assert gradient == pytest.approx([1.25, 1.5, 0.0])


def test_the_ratio_of_a_reply_by_hand() -> None:
    # The ratio is a geometric mean, so both tokens of the first reply have the same gradient.
    loss, gradient = loss_of(GRPOConfig(ratio="reply"), [1.21, 1.0, 1.05], [2, 1], 3.0)
    assert loss == pytest.approx(-(1.1 + 1.1 + 1.05))
    assert gradient == pytest.approx([-1.1, -1.1, -1.05])
    loss, gradient = loss_of(GRPOConfig(ratio="reply"), [4.0, 1.0, 1.05], [2, 1], 3.0)
    assert loss == pytest.approx(-(1.2 + 1.2 + 1.05))
    assert gradient == pytest.approx([0.0, 0.0, -1.05])


def test_means_over_replies_whatever_the_rows() -> None:
    # Context edits split the episodes into rows, which are shuffled.
    played = [
        episode(0, [0.0] * 3, (2, 3, 1), cuts=(1,)),
        episode(1, [0.0] * 2, (1, 2), fresh=100),
    ]
    data = experience(played, torch.zeros(9), "token", 0)
    data = data.take(torch.tensor([2, 0, 1]))
    values = data.ids.float()
    expected = {
        i: sum(step.reply.ids) / len(step.reply.ids)
        for t in played
        for step in t.steps
        for i in step.reply.ids
    }
    means = mean_over_replies(values, data)[data.sampled]
    assert means.tolist() == pytest.approx([expected[i] for i in data.ids[data.sampled].tolist()])


WEIGHTS = {
    "episode": [1 / 4] * 2 + [1 / 10] * 5,
    "token": [1 / 7] * 7,
    "constant": [1 / 16] * 7,
}


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_weight_of_a_token_by_hand(weight: str) -> None:
    played = [episode(0, [0.0], (2,)), episode(1, [0.0] * 2, (1, 4), cuts=(1,), fresh=50)]
    data = experience(played, torch.ones(7), weight, 0, max_new_tokens=8)
    assert data.shares[data.sampled].tolist() == pytest.approx(WEIGHTS[weight])


def test_weights_of_16_bits_are_refused_where_they_are_trained(tokenizer: Any) -> None:
    model = small_model(tokenizer).to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"bfloat16.*load the model with dtype=torch.float32"):
        Cloning(Echo(), model, tokenizer, make_env, CloningConfig())


adapters = pytest.mark.filterwarnings(
    "ignore::FutureWarning:transformers", "ignore::UserWarning:peft"
)


def adapted(tokenizer: Any, base: Path) -> Any:
    model = small_model(tokenizer, 32)
    save_model(model, tokenizer, base)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return add_lora(model, 2, str(base))


@adapters
def test_adapters_alone_are_trained_saved_and_resumed(tokenizer: Any, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    config = CloningConfig(steps=4, episodes=4, save_every=2, learning_rate=1e-2)
    whole = Cloning(
        Echo(), adapted(tokenizer, tmp_path / "base"), tokenizer, make_env, config, tmp_path / "a"
    )
    before = whole.model.state_dict()["base_model.model.transformer.wte.weight"].clone()
    whole.train()
    after = whole.model.state_dict()
    assert torch.equal(before, after["base_model.model.transformer.wte.weight"])
    saved = torch.load(tmp_path / "a" / CHECKPOINT)
    assert saved["model"]
    assert all("lora_" in name for name in saved["model"])

    def start() -> Any:
        model = adapted(tokenizer, tmp_path / "base")
        return Cloning(Echo(), model, tokenizer, make_env, config, tmp_path / "b")

    with pytest.raises(KeyboardInterrupt):
        start().train(stop_at(3))
    resumed = start()
    assert resumed.step == 2
    resumed.train()
    assert all(torch.equal(after[n], w) for n, w in resumed.model.state_dict().items())

    policy = LocalPolicy(whole.model, tokenizer, 0.0, max_new_tokens=4)
    save_policy(policy, tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    chat, _ = make_env().reset(seed=0)
    loaded = load_policy(tmp_path / "adapter", ModelOptions())
    assert loaded.max_new_tokens == 4
    (one,), (two,) = policy([chat]), loaded([chat])
    assert one.ids == two.ids
    assert one.logprobs == pytest.approx(two.logprobs, abs=1e-5)


@adapters
def test_without_its_adapters_a_model_is_its_own_reference(tokenizer: Any, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    model = adapted(tokenizer, tmp_path / "base")
    config = GRPOConfig(steps=1, groups=2, group_size=2, kl=0.5, max_new_tokens=3)
    trainer = GRPO(model, tokenizer, make_env, config)
    assert list(trainer.modules) == ["model"]
    seen: list[Any] = []
    trainer.train(lambda step, metrics: seen.append(metrics))
    assert seen[0]["kl"] == pytest.approx(0.0, abs=1e-6), "new adapters change nothing yet"
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.1)
    again = GRPO(model, tokenizer, make_env, config)
    again.train(lambda step, metrics: seen.append(metrics))
    assert seen[1]["kl"] > 1e-4


def test_the_next_horizon_comes_when_this_one_is_solved() -> None:
    stages = [[agentgym.spec("ListWorld", items=n, removals=1)] for n in (2, 4, 6)]
    curriculum = HorizonCurriculum(stages, threshold=0.75)
    seen = []
    for success in (0.5, 0.75, 0.7, 1.0, 1.0, 0.0):
        seen.append(curriculum.stage)
        curriculum.record(success)
    assert seen == [0, 0, 1, 1, 2, 2]
    saved = curriculum.state()
    other = HorizonCurriculum(stages)
    assert other.env(0.0) != curriculum.env(0.0)
    other.load(saved)
    assert other.env(0.0) == curriculum.env(0.0)
    with pytest.raises(ValueError, match="a curriculum needs at least one stage"):
        HorizonCurriculum([])
    with pytest.raises(ValueError, match="threshold"):
        HorizonCurriculum(stages, threshold=1.5)


def test_hints_go_by_and_by() -> None:
    hinted, bare = (agentgym.spec("ListWorld", oracles=arm) for arm in ("P", ""))
    curriculum = HintCurriculum([hinted], [bare], until=0.5)
    shares = []
    for progress in (0.0, 0.25, 0.375, 0.5, 0.9):
        env = gymnasium.make(curriculum.env(progress))
        with_hints = ["<plan>" in env.reset(seed=seed)[0].messages[-1].text for seed in range(100)]
        shares.append(sum(with_hints) / 100)
        if progress == 0.25:
            assert all(sum(with_hints[k : k + 10]) == 5 for k in range(0, 100, 10)), "evenly"
    assert shares == [1.0, 0.5, 0.25, 0.0, 0.0]


def test_each_horizon_gets_its_share_of_hints() -> None:
    specs: dict[str, list[Any]] = {"P": [], "": []}
    for arm, made in specs.items():
        for items in (2, 4):
            made.append(agentgym.spec("ListWorld", items=items, removals=1, oracles=arm))
    env = gymnasium.make(HintCurriculum(specs["P"], specs[""], until=0.5).env(0.25))
    found: Counter[tuple[bool, int]] = Counter()
    for seed in range(200):
        chat, _ = env.reset(seed=seed)
        unwrapped: Any = env.unwrapped
        items = unwrapped._current.unwrapped.world.config.items
        found["<plan>" in chat.messages[-1].text, items] += 1
    assert set(found.values()) == {50}
    assert len(found) == 4


def test_labels_are_rewards_of_turns() -> None:
    env = agentgym.spec("ListWorld", items=4, removals=2, labels=True)
    played = list(collect(NoisyPolicy("ListWorld", 0.5, seed=1), env, [3] * 1)) + list(
        collect(NoisyPolicy("ListWorld", 0.0), env, [3])
    )
    labelled = [with_label_rewards(t, 0.25) for t in played]
    for before, after in zip(played, labelled, strict=True):
        assert [step.reward for step in after.steps] == [
            step.reward + 0.25 * bool(step.info["optimal"]) for step in before.steps
        ]
    by_turn = advantages(labelled, "mean", "turn", gamma=0.0)
    assert all(step.info["optimal"] for step in played[1].steps)
    assert with_label_rewards(played[0], 0.0) is played[0]
    first = played[0].steps[0].info["optimal"]
    assert by_turn[0][0] == pytest.approx(0.0 if first else -0.125)
    with pytest.raises(ValueError, match="seed 5 have no labels; make the env with labels=True"):
        with_label_rewards(episode(5, [0.0]), 0.5)
