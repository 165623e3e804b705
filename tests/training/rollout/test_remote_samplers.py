"""External samplers: a fake vLLM in process and behind a server, and malformed answers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.play.policy import PolicyError
from agentgym.training.rl import GRPO, GRPOConfig
from agentgym.training.rollout import (
    LocalPolicy,
    Sample,
    SamplingOptions,
    SamplingServerConfig,
    ServerSampler,
    TokenPolicy,
    TransformersSampler,
    make_renderer,
)
from agentgym.training.rollout.models.pretrained import add_lora, save_model
from agentgym.training.rollout.models.sampling import find_fault
from agentgym.training.rollout.models.server_sampler import to_sample
from tests.training.rl.echo_trainers import make_words_tokenizer, small_model
from tests.training.rl.echo_world import make_env
from tests.training.rollout import fake_vllm
from tests.training.rollout.endpoint_server import ScriptedServer, serving

ADAPTERS = pytest.mark.filterwarnings(
    "ignore::FutureWarning:transformers", "ignore::UserWarning:peft"
)
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
def in_process(base: Path, out: Path, **options: Any) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, module in fake_vllm.modules().items():
            patch.setitem(sys.modules, name, module)
        patch.delitem(sys.modules, "agentgym.training.rollout.models.vllm_sampler", raising=False)
        room = importlib.import_module("agentgym.training.rollout.models.vllm_sampler")
        yield room.VLLMSampler(str(base), out, max_model_len=64, **options)
        sys.modules.pop("agentgym.training.rollout.models.vllm_sampler")


@contextmanager
def behind_a_server(
    base: Path, out: Path | None, tamper: Any = None
) -> Iterator[tuple[ServerSampler, ScriptedServer]]:
    with serving(fake_vllm.serve(str(base), tamper), "") as server:
        config = SamplingServerConfig("m", server.url, context=64, retries=1)
        with closing(ServerSampler(config, out)) as sampler:
            yield sampler, server


@contextmanager
def samplers(kind: str, base: Path, out: Path) -> Iterator[Any]:
    if kind == "server":
        with behind_a_server(base, out) as (sampler, _):
            yield sampler
    else:
        with in_process(base, out, sleeps=kind == "sleeping") as sampler:
            yield sampler


KINDS = ["vllm", "sleeping", "server"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sampler_elsewhere_has_the_weights_of_the_training(
    tokenizer: Any, base: Path, tmp_path: Path, kind: str
) -> None:
    # Equal weights give the trainer's log-probabilities at the start of each step.
    model = small_model(tokenizer)
    config = GRPOConfig(
        steps=3, groups=2, group_size=2, learning_rate=1e-2, warmup=0, entropy=1.0, max_new_tokens=4
    )
    with samplers(kind, base, tmp_path / "weights") as sampler:
        trainer = GRPO(model, tokenizer, make_env, config, sampler=sampler)
        seen: list[Any] = []
        trainer.train(lambda step, metrics: seen.append(metrics))
        assert sampler.version == 3
    assert max(metrics["sampler_drift"] for metrics in seen) < 1e-4
    assert min(metrics["grad_norm"] for metrics in seen) > 1e-3, "the weights have changed"
    assert [metrics["failures"] for metrics in seen] == [0.0] * 3


@pytest.mark.parametrize("kind", ["vllm", "server"])
@ADAPTERS
def test_adapters_are_handed_over_as_such(
    tokenizer: Any, base: Path, tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("peft")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = add_lora(small_model(tokenizer), 2, str(base))
    with samplers(kind, base, tmp_path / "weights") as sampler:
        for version in (1, 2):
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if "lora_B" in name:
                        parameter.add_(0.05)
            sampler.update(model, tokenizer)
            assert sampler.version == version
            assert not (tmp_path / "weights" / "model.safetensors").exists()
            (sample,) = sampler.sample([(5, 6, 7)], SamplingOptions(0.0, 4, frozenset({1})))
            (own,) = TransformersSampler(model).sample(
                [(5, 6, 7)], SamplingOptions(0.0, 4, frozenset({1}))
            )
            assert sample.ids == own.ids
            assert sample.logprobs == pytest.approx(own.logprobs, abs=1e-4)


def test_a_whole_number_is_a_log_probability_too() -> None:
    choice = {"token_ids": [5], "logprobs": {"token_logprobs": [-1]}, "finish_reason": "stop"}
    assert to_sample({"choices": [choice]}, (1,), 0) == Sample((5,), (-1.0,), 0)


def test_the_server_is_asked_for_ids_and_seeds_of_its_own(tokenizer: Any, base: Path) -> None:
    prompts = [tuple(range(5, 5 + k)) for k in (2, 62)]
    with behind_a_server(base, None) as (sampler, server):
        first, second = (list(sampler.sample(prompts, OPTIONS)) for _ in range(2))
        sampler.seed(0)
        again = list(sampler.sample(prompts, OPTIONS))
        bodies = sorted(server.requests, key=lambda body: len(body["prompt"]))
        with pytest.raises(ValueError, match="ServerSampler has no folder"):
            sampler.update(None, None)
    assert [sample.ids for sample in first] == [sample.ids for sample in again]
    assert len({body["seed"] for body in bodies}) == 4
    assert bodies[0]["prompt"] == [5, 6]
    assert bodies[-1]["max_tokens"] == 2, "a reply ends where the context does"
    assert all(isinstance(sample, Sample) for sample in first + second)


def broken(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda choice: choice.update(changes)


def short(choice: dict[str, Any]) -> None:
    choice["logprobs"]["token_logprobs"] = choice["logprobs"]["token_logprobs"][1:]


def with_logprob(value: Any) -> Callable[[dict[str, Any]], None]:
    def change(choice: dict[str, Any]) -> None:
        choice["logprobs"]["token_logprobs"][0] = value

    return change


MALFORMED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "no ids": (broken(token_ids=None), "it has no token_ids"),
    "no log-probabilities": (broken(logprobs=None), "it has no token_ids or no token_logprobs"),
    "fewer log-probabilities": (short, "log-probabilities"),
    "NaN": (with_logprob(float("nan")), "has the log-probability nan"),
    "infinite": (with_logprob(-float("inf")), "has the log-probability -inf"),
    "positive": (with_logprob(0.5), "has the log-probability 0.5"),
    "null": (with_logprob(None), "has the log-probability None"),
    "text": (broken(token_ids=["5", 6, 7, 8]), "token 0 is '5', which is not an id of the model"),
    "unknown id": (broken(token_ids=[10**6, 6, 7, 8]), "token 0 is 1000000"),
    "empty": (broken(token_ids=[], logprobs={"token_logprobs": []}), "it has no tokens"),
    "another prompt": (broken(prompt_token_ids=[1, 2]), "used another prompt"),
    "cut off": (broken(finish_reason="abort"), 'the reply ended with finish_reason "abort"'),
    "older weights": (
        broken(weight_versions=[{"version": "0", "start": 0, "end": 4}]),
        'the server sampled with weights "0" instead of 1',
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_answer_costs_its_episode_and_is_never_trained_on(
    tokenizer: Any, base: Path, tmp_path: Path, name: str
) -> None:
    # The answers to one seed are always malformed.
    change, message = MALFORMED[name]

    def first_only(choice: dict[str, Any], number: int) -> None:
        if number % 4 == 0:
            change(choice)

    model = small_model(tokenizer)
    config = SamplingServerConfig("m", "http://127.0.0.1:9/v1", context=64, retries=0)
    with serving(fake_vllm.serve(str(base), first_only), "") as server:
        options = {**vars(config), "base_url": server.url}
        with closing(ServerSampler(SamplingServerConfig(**options), tmp_path)) as sampler:
            sampler.update(model, tokenizer)
            policy = TokenPolicy(
                sampler, make_renderer(model, tokenizer), max_new_tokens=4, vocabulary=320
            )
            chats = [make_env().reset(seed=seed)[0] for seed in range(8)]
            with pytest.raises(PolicyError) as caught:
                policy(chats)
    refused = [reply for reply in caught.value.replies if isinstance(reply, PolicyError)]
    assert 1 <= len(refused) < 8
    assert all(message in str(error) for error in refused)


def test_a_training_goes_on_without_the_refused_episodes(
    tokenizer: Any, base: Path, tmp_path: Path
) -> None:
    def tamper(choice: dict[str, Any], number: int) -> None:
        if number % 5 == 0:
            choice["logprobs"]["token_logprobs"][0] = float("nan")

    with behind_a_server(base, tmp_path / "weights", tamper) as (sampler, _):
        config = GRPOConfig(steps=1, groups=4, group_size=4, max_new_tokens=4, kl=0.1)
        trainer = GRPO(small_model(tokenizer), tokenizer, make_env, config, sampler=sampler)
        seen: list[Any] = []
        trainer.train(lambda step, metrics: seen.append(metrics))
    (metrics,) = seen
    assert 1 <= metrics["failures"] <= 4
    assert metrics["loss"] == metrics["loss"], "no NaN has reached the loss"
    assert all(torch.isfinite(p).all() for p in trainer.model.parameters())


def test_whatever_samples_is_held_to_its_answer(tokenizer: Any) -> None:
    model = small_model(tokenizer)
    policy = LocalPolicy(model, tokenizer, max_new_tokens=3)
    chat = make_env().reset(seed=0)[0]
    stop = min(policy.renderer.stops)
    good = Sample((5, 6), (-1.0, -0.5), 0)
    assert find_fault(good, OPTIONS) is None
    for sample, message in (
        (Sample((5, 6, 7, 8), (-1.0,) * 4, 0), "4 tokens and the limit is 3"),
        (Sample((stop, 6), (-1.0,) * 2, 0), "continues after the stop id"),
        (Sample((True, 6), (-1.0,) * 2, 0), "which is not an id"),
        (PolicyError("out of memory"), "out of memory"),
    ):
        outcomes = [sample, good]
        policy.sampler.sample = lambda prompts, options, outcomes=outcomes: outcomes  # type: ignore[method-assign, misc]
        with pytest.raises(PolicyError, match=message) as caught:
            policy([chat, chat])
        assert caught.value.replies[1].ids == (5, 6)  # type: ignore[union-attr]
    policy.sampler.sample = lambda prompts, options: []  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match="2 prompts have 0 samples"):
        policy([chat, chat])


def test_vllm_refuses_per_episode_too(tokenizer: Any, base: Path, tmp_path: Path) -> None:
    changes: list[tuple[Any, str]] = [
        (lambda values: values.update(finish_reason="error"), "ended with finish_reason 'error'"),
        (lambda values: values["logprobs"].pop(), "without matching log-probabilities"),
        (lambda values: values.update(logprobs=None), "without matching log-probabilities"),
    ]
    with in_process(base, tmp_path) as sampler:
        for change, message in changes:
            fake_vllm.FakeLLM.tamper = change
            (outcome,) = sampler.sample([(5, 6, 7)], OPTIONS)
            assert isinstance(outcome, PolicyError)
            assert message in str(outcome)
        fake_vllm.FakeLLM.tamper = None
        assert sampler.sample([], OPTIONS) == []
