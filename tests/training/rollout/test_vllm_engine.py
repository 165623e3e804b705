"""Tests of the vLLM sampler with the real engine, if vLLM is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentgym.play.policy import PolicyError
from agentgym.training.rollout import Sample, SamplingOptions
from agentgym.training.rollout.models.pretrained import add_lora, save_model
from tests.training.rl.echo_trainers import make_words_tokenizer

pytest.importorskip("vllm")
pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM causes many deprecation warnings

CONTEXT = 256
# The long prompt fills whole cache blocks, so that later requests reuse the states.
PROMPTS = [(5, 6, 7), (9, 8), tuple(5 + k % 200 for k in range(200))]


def make_llama(tokenizer: Any) -> Any:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        # On a CPU, vLLM 0.32.0 does not update output weights that are tied to the embeddings.
        tie_word_embeddings=False,
        initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_words_tokenizer()


@pytest.fixture(scope="module")
def sampler(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from agentgym.training.rollout import VLLMSampler  # noqa: PLC0415 - an extra

    base, out = (tmp_path_factory.mktemp(name) for name in ("base", "weights"))
    save_model(make_llama(tokenizer), tokenizer, base)
    options: dict[str, Any] = {
        "max_model_len": CONTEXT,
        "dtype": "float32",
        "enforce_eager": True,
        "enable_lora": True,
        "max_lora_rank": 8,
        "gpu_memory_utilization": 0.3,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        yield VLLMSampler(str(base), out, **options)


def score(model: Any, prompt: Sequence[int], ids: Sequence[int], temperature: float) -> list[float]:
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    logprobs = (logits / (temperature or 1.0)).log_softmax(-1)
    chosen: list[float] = logprobs[range(len(ids)), list(ids)].tolist()
    return chosen


def disturb(model: Any, part: str, scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if part in name:
                parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


def has_the_weights_of(sampler: Any, model: Any) -> None:
    for temperature in (0.0, 0.7, 1.0):
        options = SamplingOptions(temperature, 12, frozenset({1}))
        draws = []
        for _ in range(2):
            sampler.seed(3)
            draws.append(sampler.sample(PROMPTS, options))
        assert [s.ids for s in draws[0]] == [s.ids for s in draws[1]]
        for prompt, sample in zip(PROMPTS, draws[0], strict=True):
            assert sample.version == sampler.version
            assert 1 in sample.ids or len(sample.ids) == 12
            expected = score(model, prompt, sample.ids, temperature)
            assert sample.logprobs == pytest.approx(expected, abs=1e-3)


def test_vllm_has_the_weights_of_each_update(sampler: Any, tokenizer: Any) -> None:
    model = make_llama(tokenizer)
    has_the_weights_of(sampler, model)
    disturb(model, "", 0.05)
    sampler.update(model, tokenizer)
    has_the_weights_of(sampler, model)
    adapted = add_lora(model, 2, "base")
    for _ in range(3):
        disturb(adapted, "lora_B", 0.2)
        sampler.update(adapted, tokenizer)
        has_the_weights_of(sampler, adapted)


def test_vllm_ends_replies_at_the_context_and_at_stops(sampler: Any) -> None:
    every = SamplingOptions(1.0, 12, frozenset(range(278)))
    prompts = [PROMPTS[0], (5,) * (CONTEXT - 1), (5,) * CONTEXT, (5,) * 400]
    stopped, *_ = sampler.sample(prompts, every)
    assert len(stopped.ids) == 1
    outcomes = sampler.sample(prompts, SamplingOptions(1.0, 12, frozenset()))
    assert [type(outcome) for outcome in outcomes] == [Sample, Sample, PolicyError, PolicyError]
    assert [len(outcome.ids) for outcome in outcomes[:2]] == [12, 1]
