from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agentgym.training.rl import GRPO, GRPOConfig, TrainingRow
from agentgym.training.rl.batches import Batch, batch, predict
from agentgym.training.rollout.models.prefixes import shared_groups, sharing_fault
from agentgym.training.rollout.models.pretrained import add_lora
from tests.training.rl.echo_world import make_env

VOCABULARY = 30
# Large random weights make attention depend on positions and on every token.
LLAMA: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "initializer_range": 0.4,
}
GPT2: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_positions": 64,
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 2,
    "initializer_range": 0.4,
}


# SmolLM2 is a Llama model with tied embeddings and three query heads per key head.
SMOLLM2: dict[str, Any] = {**LLAMA, "tie_word_embeddings": True}
EAGER: dict[str, Any] = {**LLAMA, "attn_implementation": "eager"}
SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 24}


def build(kind: str) -> Any:
    if kind == "gpt2":
        return GPT2LMHeadModel(GPT2Config(**GPT2))
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**LLAMA, head_dim=8))
    if kind == "bloom":
        return BloomForCausalLM(BloomConfig(**SMALL, n_head=2))
    if kind == "gpt_neo":  # its local layers count inputs, which a short probe does not show
        layers = {"attention_types": [[["global", "local"], 1]], "window_size": 12}
        sizes: dict[str, Any] = {"num_layers": 2, "num_heads": 2, "max_position_embeddings": 24}
        return GPTNeoForCausalLM(GPTNeoConfig(**SMALL, **sizes, **layers))
    if kind == "mamba":
        return MambaForCausalLM(MambaConfig(**SMALL))
    if kind == "mistral":
        return MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=4))
    options = {"smollm2": SMOLLM2, "eager": EAGER}.get(kind, LLAMA)
    model: Any = LlamaForCausalLM(LlamaConfig(**options))
    return add_lora(model, 2, "") if kind == "lora" else model


def make(kind: str) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(kind).eval()


def row(ids: Sequence[int], start: int) -> TrainingRow:
    """Return a row whose tokens from `start` on are sampled, except every fifth token."""
    sampled = [int(k >= start and k % 5 > 0) for k in range(len(ids))]
    return TrainingRow(tuple(ids), tuple(sampled), (0.0,) * len(ids), (0,))


HEAD, TASK, TURN = range(1, 13), range(20, 26), range(13, 17)
TREES: dict[str, list[TrainingRow]] = {
    "several levels": [
        row([*HEAD, *TASK, *TURN, 5, 6, 7], 19),
        row([*HEAD, 3, 4, 5], 13),
        row([*HEAD, *TASK, *TURN, 5, 9], 19),
        row([*HEAD, *TASK, 8, 8, 8], 20),
        row([29, 28, 27], 1),
    ],
    "identical": [row([*HEAD, *TASK], 13)] * 3,
    "a beginning": [row([*HEAD, *TASK], 13), row(HEAD, 8), row([*HEAD, *TASK, 2], 13)],
    "nothing": [row(HEAD, 4), row(TASK, 2)],
    "alone": [row(HEAD, 4)],
}


def whole(model: Any, items: Sequence[TrainingRow], weights: Iterator[float]) -> torch.Tensor:
    """Return a weighted sum of log-probabilities, one row at a time."""
    total = torch.zeros(())
    for item in items:
        scores = model(input_ids=torch.tensor([item.ids])).logits[0].log_softmax(-1)
        for k, token in enumerate(item.ids):
            if item.sampled[k]:
                total = total + next(weights) * scores[k - 1, token]
    return total


def gradient(model: Any, loss: torch.Tensor) -> torch.Tensor:
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, trained)])


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore::UserWarning:peft")
@pytest.mark.parametrize("kind", ["smollm2", "llama", "gpt2", "qwen3", "eager", "lora"])
@pytest.mark.parametrize("shape", TREES)
def test_losses_and_gradients_equal_those_of_whole_rows(kind: str, shape: str) -> None:
    model, items = make(kind), TREES[shape]
    if kind == "lora":  # lora_B is 0 at first, and so is lora_A's gradient
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.uniform_(-0.3, 0.3, generator=torch.Generator().manual_seed(1))
    assert sharing_fault(model) == ""
    data = batch(items, 0)
    weights = data.place(torch.linspace(-1, 2, int(data.sampled.sum())))
    found, tokens = torch.zeros(()), []
    model.register_forward_pre_hook(
        lambda module, inputs, options: tokens.append(options["input_ids"].numel()),
        with_kwargs=True,
    )
    for chosen, part in data.passes(0, share=True):
        found = found + (predict(model, part).logprobs * weights[chosen, : part.ids.shape[1]]).sum()
    distinct = {item.ids[: k + 1] for item in items for k in range(len(item.ids))}
    padding = 6 if shape == "nothing" else 0
    assert sum(tokens) == len(distinct) + padding, "each token of the tree is computed once"
    expected = whole(model, items, iter(weights[data.sampled].tolist()))
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    wanted = gradient(model, expected)
    apart = (gradient(model, found) - wanted).abs().max()
    assert apart <= 1e-5 * wanted.abs().max()


def random_rows(draw: random.Random) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for _ in range(draw.randint(1, 12)):
        start = draw.choice([(), *found])
        kept = start[: draw.randint(0, len(start))]
        found.append((*kept, *(draw.randrange(9) for _ in range(draw.randint(1, 20)))))
    return found


def test_a_group_takes_no_more_tokens_and_pairs_than_its_rows() -> None:
    draw, shared = random.Random(0), 0
    for _ in range(300):
        rows, most = random_rows(draw), draw.randint(1, 6)
        groups = list(shared_groups(rows, most))
        assert sorted(k for group in groups for k in group) == list(range(len(rows)))
        for group in groups:
            members = [rows[k] for k in group]
            assert members == sorted(members)
            tokens = len({ids[: k + 1] for ids in members for k in range(len(ids))})
            assert len(group) <= most
            assert tokens**2 <= sum(len(ids) ** 2 for ids in members)
            shared += len(group) > 1
    assert shared > 200


def test_logits_are_computed_once_and_only_before_sampled_tokens() -> None:
    model, computed = make("smollm2"), []
    model.lm_head.register_forward_hook(lambda m, inputs, out: computed.append(out.numel()))
    items = TREES["several levels"] + TREES["identical"]
    for share in (True, False):
        computed.clear()
        for _, part in batch(items, 0).passes(3, share=share):
            predict(model, part)
        sources = [item.ids[:k] for item in items for k, s in enumerate(item.sampled) if s]
        assert sum(computed) <= VOCABULARY * len(sources)
    computed.clear()
    for _, part in batch(items, 0).passes(0, share=True):
        predict(model, part)
    assert sum(computed) == VOCABULARY * len(set(sources))


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("bloom", "rejects positions|ignores positions"),
        ("mamba", "rejects positions|ignores positions|do not attend"),
        ("gpt_neo", "its attention masks are fixed to 24 tokens"),
        ("mistral", "its layers do not attend to all earlier tokens"),
    ],
)
def test_unsuitable_models_compute_whole_rows_and_say_so(
    tokenizer: Any, kind: str, fault: str
) -> None:
    with pytest.warns(UserWarning, match=f"this run computes each row whole: it.*({fault[4:]})"):
        trainer = GRPO(make(kind), tokenizer, make_env, GRPOConfig())
    data: Batch = batch(TREES["identical"], 0)
    (_, part), *others = trainer.passes(data)
    assert not others
    assert not part.shared
    loss: Any = predict(trainer.model, part).logprobs.sum()
    loss.backward()
