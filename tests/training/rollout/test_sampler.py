from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    MistralConfig,
    MistralForCausalLM,
)

import agentgym
from agentgym.training.rl import rows
from agentgym.training.rl.batches import batch, checkpoint_activations, logprobs_of
from agentgym.training.rollout import (
    LocalPolicy,
    SamplingOptions,
    Trajectory,
    TransformersSampler,
    collect,
    make_model,
)
from agentgym.training.rollout.models import sampler
from agentgym.training.rollout.models.prefixes import common_length
from agentgym.training.rollout.models.token_tree import TokenTree
from tests.training.rollout.chat_families import FAMILIES, make_family_tokenizer, make_llama

STACKS: dict[str, dict[str, Any]] = {
    "none": {},
    "clear_results": {"context": "clear_results", "window": 900},
    "compaction": {"context": "compaction", "window": 900},
    "SH": {"oracles": "SH"},
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_family_tokenizer(FAMILIES["qwen2.5"])


def env(**options: Any) -> Any:
    return agentgym.spec("ListWorld", items=4, removals=2, max_failed_rounds=None, **options)


def drift(model: Any, played: Sequence[Trajectory], temperature: float = 1.0) -> float:
    data = batch([row for trajectory in played for row in rows(trajectory)], 0)
    again = logprobs_of(model, data, temperature)
    return float(((again - data.logprobs) * data.sampled).abs().max().detach())


def common(first: Sequence[int], second: Sequence[int]) -> int:
    return common_length(np.asarray(first), np.asarray(second))


@pytest.mark.parametrize("stack", STACKS)
def test_only_what_is_new_in_a_prompt_is_computed(tokenizer: Any, stack: str) -> None:
    # With one episode at a time, only the previous prompt can be reused.
    for seed in range(2):
        player: Any = LocalPolicy(make_llama(tokenizer), tokenizer, max_new_tokens=5)
        (played,) = collect(player, env(**STACKS[stack]), [seed], 1)
        prompts = [step.reply.prompt_ids for step in played.steps]
        needed = len(prompts[0]) + sum(
            len(new) - common(old, new) for old, new in pairwise(prompts)
        )
        assert player.sampler.prefilled <= 1.1 * needed
        assert sum(map(len, prompts)) > 2 * player.sampler.prefilled or stack != "none"
        assert drift(player.model, [played]) < 1e-4


@pytest.mark.rotation
def test_reused_states_give_the_same_replies(tokenizer: Any) -> None:
    model = make_llama(tokenizer)
    for temperature in (0.0, 1.0):
        texts = []
        for cache_bytes in (None, 0, 200_000):
            player = LocalPolicy(model, tokenizer, temperature, max_new_tokens=6)
            player.sampler = TransformersSampler(model, seed=1, cache_bytes=cache_bytes)
            played = list(collect(player, env(context="compaction", window=900), range(5), 3))
            texts.append({t.seed: [step.reply.ids for step in t.steps] for t in played})
            assert drift(model, played, temperature or 1.0) < 1e-4
        assert texts[0] == texts[1] == texts[2]


def prefixes(sequences: Sequence[Sequence[int]]) -> set[tuple[int, ...]]:
    return {tuple(ids[: k + 1]) for ids in sequences for k in range(len(ids))}


def count_tokens(model: Any) -> list[int]:
    found: list[int] = []
    model.register_forward_pre_hook(
        lambda module, inputs, options: found.append(options["input_ids"].numel()),
        with_kwargs=True,
    )
    return found


# Two tasks with two and three episodes; the last two prompts are equal.
HEAD, TASKS = tuple(range(5, 45)), (tuple(range(60, 90)), tuple(range(90, 120)))
PROMPTS = [
    (*HEAD, *TASKS[0], 3, 4),
    (*HEAD, *TASKS[1], 3, 4, 5, 6),
    (*HEAD, *TASKS[0], 4, 5),
    (*HEAD, *TASKS[1], 8),
    (*HEAD, *TASKS[1], 8),
]


def test_a_common_beginning_is_computed_once_at_every_level(tokenizer: Any) -> None:
    shared = TransformersSampler(make_llama(tokenizer))
    options = SamplingOptions(1.0, 3, frozenset())
    samples = shared.sample(PROMPTS, options)
    assert shared.prefilled == len(prefixes(PROMPTS))
    pairs = list(zip(PROMPTS, samples, strict=True))
    known = prefixes([prompt + sample.ids[:-1] for prompt, sample in pairs])
    after = [(*prompt, *sample.ids, 9, 9) for prompt, sample in pairs]
    before = shared.prefilled
    shared.sample(after, options)
    assert shared.prefilled - before == len(prefixes(after) - known)


def one_by_one(
    model: Any, prompts: Sequence[tuple[int, ...]], options: SamplingOptions
) -> list[tuple[list[int], list[float]]]:
    """Sample without caches and batches, drawing random numbers for all rows at every step."""
    generator = torch.Generator().manual_seed(3)
    found: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
    for _ in range(options.max_new_tokens):
        scores = torch.cat(
            [
                model(torch.tensor([[*prompt, *ids]])).logits[:, -1]
                for prompt, (ids, _) in zip(prompts, found, strict=True)
            ]
        ).log_softmax(-1)
        drawn = torch.multinomial(scores.exp(), 1, generator=generator)[:, 0].tolist()
        for row, (ids, logprobs) in enumerate(found):
            if not options.stops.intersection(ids):
                ids.append(drawn[row])
                logprobs.append(scores[row, drawn[row]].item())
    return found


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
def test_ended_rows_are_dropped_and_change_no_other_sample(tokenizer: Any, kind: str) -> None:
    size = len(tokenizer)
    models: dict[str, Any] = {"llama": make_llama, "gpt2": partial(make_model, width=32, heads=2)}
    model: Any = sliding(tokenizer, kind) if kind == "mistral" else models[kind](tokenizer)
    # One sixth of the ids are stop ids, so rows end at different steps.
    options = SamplingOptions(1.0, 9, frozenset(range(size // 6)))
    with torch.no_grad():
        expected = one_by_one(model, PROMPTS, options)
    tokens = count_tokens(model)
    samples = TransformersSampler(model, seed=3).sample(PROMPTS, options)
    lengths = [len(sample.ids) for sample in samples]
    assert len(set(lengths)) > 2
    for sample, (ids, logprobs) in zip(samples, expected, strict=True):
        assert list(sample.ids) == ids
        assert sample.logprobs == pytest.approx(logprobs, abs=1e-5)
    # The model processes each row's sampled tokens except the last, plus some padding.
    steps = max(lengths) - 1
    assert sum(tokens[-steps:]) <= 1.5 * (sum(lengths) - len(PROMPTS)) < 0.9 * steps * len(PROMPTS)


UNPADDED: dict[str, dict[str, Any]] = {
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 12},
    "lfm2": {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
    "mamba": {"num_hidden_layers": 2},
    "roberta": {"num_hidden_layers": 2, "is_decoder": True},
}


@pytest.mark.filterwarnings("ignore:sampling recomputes the whole row")
@pytest.mark.parametrize("kind", UNPADDED)
def test_models_without_usable_states_sample_like_rows_alone(kind: str) -> None:
    sizes = {"vocab_size": 130, "hidden_size": 24, "intermediate_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.4}
    config = CONFIG_MAPPING[kind](**sizes, **heads, **UNPADDED[kind])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
    options = SamplingOptions(1.0, 9, frozenset(range(20)))
    with torch.no_grad():
        expected = one_by_one(model, PROMPTS, options)
    samples = TransformersSampler(model, seed=3).sample(PROMPTS, options)
    assert [list(sample.ids) for sample in samples] == [ids for ids, _ in expected]
    for sample, (_, logprobs) in zip(samples, expected, strict=True):
        assert sample.logprobs == pytest.approx(logprobs, abs=1e-4)


def test_the_tree_is_bounded_and_drops_what_was_not_used() -> None:
    draw = random.Random(0)
    tree = TokenTree(limit=40 * 8)  # 40 nodes, each with a 4-byte key and a 4-byte value
    sequences: list[tuple[int, ...]] = []
    for _ in range(200):
        start = draw.choice([(), *sequences[-9:]])
        ids = (*start[: draw.randint(0, 8)], *(draw.randrange(4) for _ in range(5)))
        nodes = tree.path(ids)
        assert tree.path(ids) == nodes
        # Like a model, read the states of all nodes, and add missing states.
        new = [node for node in nodes if node not in tree.computed]
        values = [float(hash(ids[: nodes.index(node) + 1]) % 10**6) for node in new]
        for side in (0, 1):
            read = tree.exchange(
                (0, side),
                torch.tensor(values).reshape(-1, 1, 1),
                torch.tensor(new, dtype=torch.long),
                torch.tensor([nodes]),
            )
            expected = [float(hash(ids[: k + 1]) % 10**6) for k in range(len(ids))]
            assert read.flatten().tolist() == expected
        tree.computed.update(new)
        tree.shrink()
        assert len(tree) <= 40
        assert sum(states.nbytes for states in tree.states.values()) <= tree.limit
        sequences.append(ids)
        count = len(tree)
        tree.path(ids)
        assert len(tree) == count, "the newest sequence is kept"


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_sampling_is_right_in_the_middle_of_training(
    tokenizer: Any, dropout: float, checkpointing: bool
) -> None:
    model = make_llama(tokenizer, attention_dropout=dropout)
    calm = list(collect(LocalPolicy(model, tokenizer, max_new_tokens=5), env(), range(2), 2))
    if checkpointing:
        checkpoint_activations(model)
    model.train()
    model.model.layers[0].eval()  # a user may have frozen a layer
    modes = [module.training for module in model.modules()]
    played = list(collect(LocalPolicy(model, tokenizer, max_new_tokens=5), env(), range(2), 2))
    assert played == calm
    assert [module.training for module in model.modules()] == modes
    model.eval()
    assert drift(model, played) < 1e-4


@pytest.mark.parametrize("kind", ["gpt2", "llama", "opt"])
def test_gradient_checkpointing_does_not_add_dropout(kind: str) -> None:
    sizes = {"vocab_size": 130, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    others = {"ffn_dim": 32, "word_embed_proj_dim": 24} if kind == "opt" else {}
    config = CONFIG_MAPPING[kind](**sizes, **others, attention_dropout=0.5)
    model: Any = AutoModelForCausalLM.from_config(config).eval()
    ids, calls = torch.tensor([PROMPTS[0]]), []
    expected = model(ids).logits
    checkpoint_activations(model)
    for name, module in model.named_modules():
        if name.endswith((".attn", ".self_attn")):
            module.register_forward_hook(lambda *_: calls.append(1))
    logits = model(ids).logits
    assert torch.allclose(logits, expected, atol=1e-5)
    logits.sum().backward()
    assert len(calls) == 4, "both layers are computed again in the backward pass"


def test_states_of_other_weights_are_not_used(tokenizer: Any) -> None:
    model = make_llama(tokenizer)
    player: Any = LocalPolicy(model, tokenizer, 0.0, max_new_tokens=5)
    chat, _ = agentgym.make("ListWorld").reset(seed=0)
    (before,) = player([chat])
    version = player.sampler.version
    (again,) = player([chat])
    assert player.sampler.version == version
    assert again == before
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.tensor([[1, 2, 3]])).logits.sum().backward()
    optimizer.step()
    (after,) = player([chat])
    assert player.sampler.version == version + 1
    assert after == LocalPolicy(model, tokenizer, 0.0, max_new_tokens=5)([chat])[0]
    assert after.logprobs != before.logprobs


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore::UserWarning:peft")
def test_states_of_other_adapters_are_not_used(tokenizer: Any) -> None:
    config: Any = LoraConfig(target_modules="all-linear", init_lora_weights=False)
    model: Any = get_peft_model(make_llama(tokenizer), config)
    model.add_adapter("other", config)
    sampler, options = TransformersSampler(model), SamplingOptions(0.0, 5, frozenset())
    found = [sampler.sample(PROMPTS, options)]
    model.set_adapter("other")
    found.append(sampler.sample(PROMPTS, options))
    with model.disable_adapter():
        found.append(sampler.sample(PROMPTS, options))
        expected = TransformersSampler(model).sample(PROMPTS, options)
    assert [sample.logprobs for sample in found[2]] == [sample.logprobs for sample in expected]
    assert [batch[0].version for batch in found] == [1, 2, 3]


def sliding(tokenizer: Any, kind: str) -> Any:
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "sliding_window": 64,
        "max_position_embeddings": 4_096,
        "pad_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "gemma":
            layers = ["sliding_attention", "full_attention"]
            return Gemma3ForCausalLM(Gemma3TextConfig(**sizes, layer_types=layers)).eval()
        return MistralForCausalLM(MistralConfig(**sizes)).eval()


@pytest.mark.parametrize("kind", ["gemma", "mistral"])
def test_models_with_sliding_windows_play_exactly(tokenizer: Any, kind: str) -> None:
    model = sliding(tokenizer, kind)
    player: Any = LocalPolicy(model, tokenizer, max_new_tokens=5)
    played = list(collect(player, env(), range(3), 3))
    assert drift(model, played) < 1e-3
    assert player.sampler.prefilled == sum(
        len(step.reply.prompt_ids) for t in played for step in t.steps
    ), "states that a window has dropped cannot be returned to"


def test_batches_are_bounded(tokenizer: Any) -> None:
    model = make_llama(tokenizer)
    widest = 0

    def measure(module: Any, inputs: Any) -> None:
        nonlocal widest
        widest = max(widest, inputs[0].shape[-2])

    sampler = TransformersSampler(model, batch_size=3)
    model.lm_head.register_forward_pre_hook(measure)
    prompts = [tuple(range(5, 5 + k)) for k in range(1, 9)]
    samples = sampler.sample(prompts, SamplingOptions(0.0, 2, frozenset()))
    assert widest == 3
    assert [len(sample.ids) for sample in samples] == [2] * 8
    whole = TransformersSampler(model, batch_size=8)
    assert [s.ids for s in samples] == [
        s.ids for s in whole.sample(prompts, SamplingOptions(0.0, 2, frozenset()))
    ]


def test_requests_without_room_for_a_token_are_refused(tokenizer: Any) -> None:
    for limit in (0, -1):
        with pytest.raises(ValueError, match=f"max_new_tokens must be an integer in .*got {limit}"):
            SamplingOptions(0.0, limit, frozenset())
    sampler = TransformersSampler(make_model(tokenizer, width=32, heads=2, context=8))
    options = SamplingOptions(0.0, 5, frozenset())
    for length in (0, 8, 9):
        with pytest.raises(ValueError, match=rf"prompt length must be .* \[1, 7\], got {length}"):
            sampler.sample([(5,), (5,) * length], options)
    samples = sampler.sample([(5,) * 7, (5,)], options)
    assert [len(sample.ids) for sample in samples] == [1, 5]


def test_logits_of_prompts_are_not_computed(tokenizer: Any) -> None:
    model = make_llama(tokenizer)
    shapes: list[tuple[int, ...]] = []
    model.lm_head.register_forward_hook(lambda m, a, out: shapes.append(tuple(out.shape)))
    player = LocalPolicy(model, tokenizer, max_new_tokens=3)
    shapes.clear()
    list(collect(player, env(), range(2), 2))
    assert {shape[1] for shape in shapes} <= {1, 2}


def test_states_may_take_a_quarter_of_the_free_memory(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The cache may always use 1 GiB, which a batch of long chats exceeds.
    for free, allowed in ((2**30, 2**30), (2**35, 2**33)):
        monkeypatch.setattr(sampler, "_free_memory", lambda free=free: free)
        player = TransformersSampler(make_llama(tokenizer))
        assert player._tree.limit == allowed
    monkeypatch.undo()
    assert sampler._free_memory() >= 0
