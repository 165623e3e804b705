"""Tests of the vLLM sampler with a fake vLLM, and of the checks that all samples must pass."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.play.policy import PolicyError
from agentgym.training.rl import GRPO, GRPOConfig
from agentgym.training.rollout import LocalPolicy, Sample, SamplingOptions, TransformersSampler
from agentgym.training.rollout.models.pretrained import add_lora, save_model
from tests.training.rl.echo_trainers import make_words_tokenizer, small_model
from tests.training.rl.echo_world import make_env
from tests.training.rollout import fake_vllm

ROOM = "agentgym.training.rollout.models.vllm_sampler"
OPTIONS = SamplingOptions(1.0, 4, frozenset({1}))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_words_tokenizer()


@pytest.fixture(scope="module")
def base(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    save_model(small_model(tokenizer), tokenizer, folder)
    return folder


@contextmanager
def vllm(base: Path, out: Path, **options: Any) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, module in fake_vllm.modules().items():
            patch.setitem(sys.modules, name, module)
        patch.delitem(sys.modules, ROOM, raising=False)
        yield importlib.import_module(ROOM).VLLMSampler(str(base), out, max_model_len=64, **options)
        sys.modules.pop(ROOM)
        fake_vllm.FakeLLM.tamper = None


def trained(tokenizer: Any, sampler: Any, **options: Any) -> tuple[Any, list[Any]]:
    config = GRPOConfig(max_new_tokens=4, **options)
    trainer = GRPO(small_model(tokenizer), tokenizer, make_env, config, sampler=sampler)
    seen: list[Any] = []
    trainer.train(lambda step, metrics: seen.append(metrics))
    return trainer.model, seen


@pytest.mark.parametrize("sleeps", [False, True])
def test_the_sampler_has_the_weights_of_the_training(
    tokenizer: Any, base: Path, tmp_path: Path, sleeps: bool
) -> None:
    # At the start of each step, the sampler has the trainer's weights and log-probabilities.
    options = {"learning_rate": 1e-2, "warmup": 0, "entropy": 1.0}
    with vllm(base, tmp_path / "weights", sleeps=sleeps) as sampler:
        _, seen = trained(tokenizer, sampler, steps=3, groups=2, group_size=2, **options)
        assert sampler.version == 3
    assert max(metrics["sampler_drift"] for metrics in seen) < 1e-4
    assert min(metrics["grad_norm"] for metrics in seen) > 1e-3, "the weights have changed"
    assert [metrics["failures"] for metrics in seen] == [0.0] * 3


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore::UserWarning:peft")
def test_adapters_are_handed_over_as_such(tokenizer: Any, base: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = add_lora(small_model(tokenizer), 2, str(base))
    greedy = SamplingOptions(0.0, 4, frozenset({1}))
    with vllm(base, tmp_path / "weights") as sampler:
        for version in (1, 2):
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if "lora_B" in name:
                        parameter.add_(0.05)
            sampler.update(model, tokenizer)
            assert sampler.version == version
            assert not (tmp_path / "weights" / "model.safetensors").exists()
            (sample,) = sampler.sample([(5, 6, 7)], greedy)
            (own,) = TransformersSampler(model).sample([(5, 6, 7)], greedy)
            assert sample.ids == own.ids
            assert sample.logprobs == pytest.approx(own.logprobs, abs=1e-4)


def test_a_prompt_without_room_for_a_reply_is_an_error(base: Path, tmp_path: Path) -> None:
    with vllm(base, tmp_path) as sampler:
        short, *long = sampler.sample([(5, 6), (5,) * 64, (5,) * 100], OPTIONS)
    assert isinstance(short, Sample)
    for error, length in zip(long, (64, 100), strict=True):
        assert isinstance(error, PolicyError)
        assert f"a prompt has {length} tokens but vLLM's context is 64" in str(error)


def test_each_request_has_its_seed_and_ends_with_the_context(base: Path, tmp_path: Path) -> None:
    prompts = [(5, 6), (5, 6), tuple(range(5, 67))]
    with vllm(base, tmp_path) as sampler:

        def draw() -> list[Any]:
            return [sample.ids for sample in sampler.sample(prompts, OPTIONS)]

        first, second = draw(), draw()
        sampler.seed(0)
        again = draw()
        assert sampler.sample([], OPTIONS) == []
    assert first == again != second
    assert first[0] != first[1], "two samples of one prompt"
    assert len(first[2]) <= 2


def test_tied_output_weights_are_refused_on_a_cpu(
    tokenizer: Any, base: Path, tmp_path: Path
) -> None:
    with vllm(base, tmp_path / "weights") as sampler:
        sys.modules["vllm.platforms"].current_platform.is_cpu = lambda: True
        with pytest.raises(ValueError, match="does not reload output weights that are tied"):
            sampler.update(small_model(tokenizer), tokenizer)
        assert sampler.sample([(5, 6)], OPTIONS)[0].version == 0


REFUSED: list[tuple[Any, str]] = [
    (lambda values: values.update(finish_reason="error"), "ended with finish_reason 'error'"),
    (lambda values: values["logprobs"].pop(), "without matching log-probabilities"),
    (lambda values: values.update(logprobs=None), "without matching log-probabilities"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_a_malformed_answer_of_vllm_is_an_error(
    base: Path, tmp_path: Path, change: Any, message: str
) -> None:
    with vllm(base, tmp_path) as sampler:
        fake_vllm.FakeLLM.tamper = change
        (outcome,) = sampler.sample([(5, 6, 7)], OPTIONS)
    assert isinstance(outcome, PolicyError)
    assert message in str(outcome)


def test_a_training_goes_on_without_the_refused_episodes(
    tokenizer: Any, base: Path, tmp_path: Path
) -> None:
    answers: list[Any] = []

    def every_fifth(values: dict[str, Any]) -> None:
        answers.append(values)
        if len(answers) % 5 == 0:
            next(iter(values["logprobs"][0].values())).logprob = float("nan")

    with vllm(base, tmp_path / "weights") as sampler:
        fake_vllm.FakeLLM.tamper = every_fifth
        model, (metrics,) = trained(tokenizer, sampler, steps=1, groups=4, group_size=4, kl=0.1)
    assert 1 <= metrics["failures"] <= 4
    assert metrics["loss"] == metrics["loss"], "no NaN has reached the loss"
    assert all(torch.isfinite(p).all() for p in model.parameters())


INVALID: list[tuple[Any, Any, str]] = [
    ((5, 6, 7, 8), (-1.0,) * 4, "4 tokens and the limit is 3"),
    ((5, 6), (-1.0,), "2 ids and 1 log-probabilities"),
    ((), (), "it has no tokens"),
    ((True, 6), (-1.0,) * 2, "token 0 is True, which is not an id"),
    (("5", 6), (-1.0,) * 2, "token 0 is '5', which is not an id"),
    ((10**6, 6), (-1.0,) * 2, "token 0 is 1000000"),
    ((5, 6), (-1.0, float("nan")), "token 1 has the log-probability nan"),
    ((5, 6), (-float("inf"), -1.0), "has the log-probability -inf"),
    ((5, 6), (0.5, -1.0), "has the log-probability 0.5"),
    ((5, 6), (None, -1.0), "has the log-probability None"),
]


def test_any_sampler_is_held_to_its_answer(tokenizer: Any) -> None:
    policy = LocalPolicy(small_model(tokenizer), tokenizer, max_new_tokens=3)
    chat = make_env().reset(seed=0)[0]
    good, stop = Sample((5, 6), (-1.0, -0.5), 0), min(policy.renderer.stops)
    outcomes: list[Any] = []
    policy.sampler.sample = lambda prompts, options: outcomes  # type: ignore[method-assign]
    answers: list[tuple[Any, str]] = [
        (PolicyError("out of memory"), "out of memory"),
        (Sample((stop, 6), (-1.0,) * 2, 0), "continues after the stop id"),
        *((Sample(ids, logprobs, 0), message) for ids, logprobs, message in INVALID),
    ]
    for answer, message in answers:
        outcomes[:] = [answer, good]
        with pytest.raises(PolicyError, match=message) as caught:
            policy([chat, chat])
        assert caught.value.replies[1].ids == (5, 6)  # type: ignore[union-attr]
    outcomes.clear()
    with pytest.raises(PolicyError, match="sampler returned 0 samples for 2 prompts"):
        policy([chat, chat])
