from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym import Chat, Reply, make
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import PolicyError
from agentgym.training.rl import rows
from agentgym.training.rl.batches import batch, logprobs_of
from agentgym.training.rl.token_rows import join
from agentgym.training.rollout import (
    LocalPolicy,
    Renderer,
    Step,
    Trajectory,
    collect,
    make_model,
    make_tokenizer,
    rollout,
)
from agentgym.training.rollout.models.creation import END
from agentgym.training.rollout.models.pretrained import find_model, load_model, save_model

OPTIONS: dict[str, Any] = {"items": 5, "removals": 2, "dialect": "python"}


def env(**changes: Any) -> Any:
    return make("ListWorld", **{**OPTIONS, **changes})


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    demos = [
        rollout(OraclePolicy("ListWorld", dialect="python"), env(), seed) for seed in range(20)
    ]
    return make_tokenizer([m.raw or m.text for demo in demos for m in demo.last.messages], 400)


def policy(tokenizer: Any, **options: Any) -> LocalPolicy:
    return LocalPolicy(
        make_model(tokenizer, width=32, heads=2), tokenizer, **{"max_new_tokens": 6, **options}
    )


def test_a_tokenizer_made_on_the_spot_reads_anything_back(tokenizer: Any) -> None:
    for text in (
        "Initial list: [13, 91]",
        "Größe 値 \n\t <|end|> 123456",
        "```python\npop(id=3)\n```",
    ):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert len(tokenizer.encode("pop(id=", add_special_tokens=False)) < 5


def test_sampled_ids_are_kept_though_the_text_has_other_tokens(tokenizer: Any) -> None:
    # Re-tokenising a reply sampled byte by byte would merge its tokens.
    renderer = Renderer(tokenizer)
    one = env()
    chat, _ = one.reset(seed=0)
    text = "```python\npop(id=0)\n```"
    slow = tuple(
        i for character in text for i in tokenizer.encode(character, add_special_tokens=False)
    )
    assert slow != tuple(tokenizer.encode(text, add_special_tokens=False))
    reply = Reply(
        text, renderer.ids(chat), (*slow, tokenizer.eos_token_id), (0.0,) * (len(slow) + 1)
    )
    renderer.remember(chat, reply)
    after, *_ = one.step(text)
    assert (
        renderer.ids(after)[: len(reply.prompt_ids) + len(reply.ids)]
        == reply.prompt_ids + reply.ids
    )
    assert tokenizer.decode(list(renderer.ids(after))).count(END) == 3


def played(replies: list[Reply]) -> Trajectory:
    return Trajectory(
        "{}", 0, tuple(Step(Chat(), reply, 0.0, {}) for reply in replies), Chat(), True, False
    )


def test_logprobs_are_those_of_the_model_and_padding_changes_nothing(tokenizer: Any) -> None:
    for temperature in (1.0, 0.7):
        player = policy(tokenizer, temperature=temperature)
        made = [row for trajectory in collect(player, env, range(5), 5) for row in rows(trajectory)]
        together = batch(made, tokenizer.pad_token_id)
        found = logprobs_of(player.model, together, temperature)
        assert torch.allclose(found * together.sampled, together.logprobs, atol=1e-5)
        for k, row in enumerate(made):
            alone = logprobs_of(player.model, batch([row], tokenizer.pad_token_id), temperature)
            assert torch.allclose(alone[0], found[k, : len(row.ids)], atol=1e-5)


def test_sampling_is_seeded_and_leaves_the_global_generators_alone(tokenizer: Any) -> None:
    before = torch.get_rng_state(), random.getstate()
    chats = [env().reset(seed=seed)[0] for seed in range(4)]
    first, again, other = (policy(tokenizer, seed=seed)(chats) for seed in (1, 1, 2))
    assert first == again != other
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert all(len(reply.ids) == len(reply.logprobs) <= 6 for reply in first)


def test_rows_need_ids_and_logprobs() -> None:
    with pytest.raises(
        ValueError,
        match="no reply of seed 0 has token ids; use a policy that records token ids",
    ):
        rows(played([Reply("pop")]))
    with pytest.raises(ValueError, match="step 0 has 2 ids and 1 logprobs; record one for each id"):
        rows(played([Reply("pop", (1,), (2, 3), (0.0,))]))
    with pytest.raises(ValueError, match="a row has no log-probabilities; use a policy"):
        batch(rows(played([Reply("pop", (1,), (2, 3))])), pad=0)


def test_a_reply_ends_where_the_model_s_context_does(tokenizer: Any) -> None:
    chats = [env(items=items).reset(seed=0)[0] for items in (2, 5)]
    lengths = [len(Renderer(tokenizer).ids(chat)) for chat in chats]
    assert lengths[0] < lengths[1]
    for room in (1, 2, 4):
        model = make_model(tokenizer, width=32, heads=2, context=lengths[1] + room)
        first, second = LocalPolicy(model, tokenizer, 0, max_new_tokens=9)(chats)
        assert len(second.ids) == room
        assert len(first.ids) == min(9, lengths[1] + room - lengths[0])
        made = [row for reply in (first, second) for row in join([(0, reply)])]
        assert logprobs_of(model, batch(made, 0), 1.0).shape[1] == lengths[1] + room, (
            "the longest row just fits, so it can be trained on"
        )
    model = make_model(tokenizer, width=32, heads=2, context=lengths[1])
    with pytest.raises(
        PolicyError,
        match=f"a prompt has {lengths[1]} tokens but the model's context is {lengths[1]}; use a",
    ):
        LocalPolicy(model, tokenizer)(chats)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    tokenizer = make_tokenizer(["system user assistant"], 300)
    save_model(make_model(tokenizer, width=16, layers=1, heads=2), tokenizer, folder)
    return folder


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors"]
)
@pytest.mark.parametrize("bad", [b"3", b"null", b"[]", b"", b"\xff\xfe\0"])
def test_a_malformed_file_of_a_model_is_one_error(
    good: Path, tmp_path: Path, name: str, bad: bytes
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    load_model(find_model(str(folder)), torch.device("cpu"), torch.float32)
    (folder / name).write_bytes(bad)
    with pytest.raises((ValueError, OSError)):
        load_model(find_model(str(folder)), torch.device("cpu"), torch.float32)
