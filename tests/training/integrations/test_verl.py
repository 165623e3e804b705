from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import agentgym
from agentgym import Chat, Reply, ToolCall, render
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.training.integrations import to_training_dict
from agentgym.training.rollout import Episode, make_model, make_tokenizer, rollout
from tests.training.integrations.album_world import ALBUM

REASON = (
    "verl is not installed; it needs transformers<5.11, so an environment of its own: make adapters"
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # verl and Ray cause warnings
    verl = pytest.importorskip("verl", reason=REASON)
    pytest.importorskip("transfer_queue", reason=REASON)
    import verl.trainer.ppo.v1.agent_loop_tq as v1
    from hydra import compose, initialize_config_dir
    from verl.experimental.agent_loop import AgentLoopWorker
    from verl.protocol import DataProto
    from verl.workers.rollout.replica import TokenOutput

    from agentgym.training.integrations.verl import prompts

SMALL: dict[str, Any] = {"items": 5, "removals": 2}
EDITED: dict[str, Any] = {"nodes": 30, "context": "compaction+clear_results", "window": 1_200}
TEMPLATE = (
    "{% if calm %}calm{% endif %}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
LOOPS = """
- {name: lists, _target_: agentgym.training.integrations.verl.WorldAgentLoop, env_id: ListWorld, options: {items: 5, removals: 2}}
- {name: trees, _target_: agentgym.training.integrations.verl.WorldAgentLoop, env_id: TreeWorld,
   options: {nodes: 30, context: compaction+clear_results, window: 1200}}
- {name: albums, _target_: agentgym.training.integrations.verl.WorldAgentLoop, env_id: tests/AlbumWorld-v0, options: {cover: false}}
"""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    chats = [agentgym.make(world).reset(seed=0)[0] for world in ("ListWorld", "TreeWorld")]
    return make_tokenizer([chat.to_text() for chat in chats], 900)


@pytest.fixture(scope="module")
def folder(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verl")
    save(tokenizer, folder, LOOPS)
    return folder


def save(tokenizer: Any, folder: Path, loops: str) -> None:
    tokenizer.chat_template = TEMPLATE
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|stop|>"]})
    model = make_model(tokenizer, 32)
    stop = tokenizer.convert_tokens_to_ids("<|stop|>")
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, stop]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "loops.yaml").write_text(loops)


def configured(folder: Path, **limits: Any) -> Any:
    rollout_options = {
        "name": "vllm",
        "agent.agent_loop_config_path": folder / "loops.yaml",
        "n": 2,
        "calculate_log_probs": True,
    }
    rollout_options |= {"prompt_length": 4_000, "response_length": 2_000} | limits
    overrides = [f"actor_rollout_ref.model.path={folder}"]
    overrides += [
        f"actor_rollout_ref.rollout.{name}={value}" for name, value in rollout_options.items()
    ]
    with initialize_config_dir(
        str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None
    ):
        return compose("ppo_trainer", overrides=[*overrides, f"+data.cache_dir={folder / 'cache'}"])


class Engine:
    """Engine that samples from a policy; the policy plays a copy of the env for each episode."""

    end = ""
    variables: Mapping[str, Any] = {}

    def __init__(self, tokenizer: Any, policy: Any, env_id: str, seed: int, **options: Any) -> None:
        self.tokenizer, self.policy, self.made = tokenizer, policy, (env_id, seed, options)
        self.envs: dict[str, tuple[Any, Chat]] = {}
        self.replies: dict[str, list[Reply]] = {}

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **_: Any
    ) -> TokenOutput:
        if request_id not in self.envs:
            env_id, seed, options = self.made
            env = agentgym.make(env_id, **options)
            self.envs[request_id] = env, env.reset(seed=seed)[0]
        env, chat = self.envs[request_id]
        # Prompts keep all sampled ids, so `<|stop|>` remains before the template's end token.
        shown = self.tokenizer.decode(prompt_ids).replace("<|stop|>", "")
        assert shown == self.template(chat), "the model sees the chat of the env"
        (reply,) = self.policy([chat])
        self.envs[request_id] = env, env.step(reply.text)[0]
        end = self.end or self.tokenizer.eos_token
        ids = self.tokenizer.encode(reply.text + end)
        logprobs = [-k / 1_000 for k in ids]
        said = self.replies.setdefault(request_id, [])
        said.append(Reply(reply.text, tuple(prompt_ids), tuple(ids), tuple(logprobs)))
        return TokenOutput(
            token_ids=ids,
            log_probs=logprobs,
            extra_fields={"min_global_steps": len(said), "max_global_steps": len(said)},
        )

    def template(self, chat: Chat) -> str:
        messages = [{"role": m.role, "content": m.raw or m.text} for m in chat.messages]
        return str(
            self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **self.variables
            )
        )


def idle(chats: Sequence[Chat]) -> list[Reply]:
    return [Reply("I wait.") for _ in chats]


def rows(agent_name: str, world: str, seed: int, count: int = 1, **options: Any) -> Any:
    row = {**prompts(agent_name, world, [seed], **options)[0], "index": 0, "global_steps": 1}
    row["raw_prompt"] = row.pop("prompt")
    columns = {
        name: np.fromiter([value] * count, dtype=object, count=count) for name, value in row.items()
    }
    return DataProto.from_dict(tensors={"dummy": torch.zeros(count, 1)}, non_tensors=columns)


@pytest.mark.parametrize(
    ("policy", "reward", "turns"), [(OraclePolicy("ListWorld"), 1.0, 3), (idle, 0.0, 7)]
)
def test_a_batch_is_played_by_verls_worker(
    policy: Any, reward: float, turns: int, folder: Path, tokenizer: Any
) -> None:
    engine = Engine(tokenizer, policy, "ListWorld", 3, **SMALL)
    batch = asyncio.run(
        AgentLoopWorker(configured(folder), engine).generate_sequences(
            rows("lists", "ListWorld", 3, 2, **SMALL)
        )
    )
    assert len(engine.replies) == 2
    assert batch.batch["rm_scores"].sum(1).tolist() == [reward] * 2
    assert batch.non_tensor_batch["success"].tolist() == [reward] * 2
    assert batch.non_tensor_batch["truncated"].tolist() == [float(policy is idle)] * 2
    assert batch.non_tensor_batch["turns"].tolist() == [turns] * 2
    assert (
        batch.non_tensor_batch["min_global_steps"].tolist(),
        batch.non_tensor_batch["max_global_steps"].tolist(),
    ) == (
        [1] * 2,
        [turns] * 2,
    )
    for k, replies in enumerate(engine.replies.values()):
        sampled = [token for reply in replies for token in reply.ids]
        mask = batch.batch["response_mask"][k].bool()
        assert batch.batch["responses"][k][mask].tolist() == sampled
        assert batch.batch["rollout_log_probs"][k][mask].tolist() == pytest.approx(
            [-token / 1_000 for token in sampled]
        )
        shown = batch.batch["input_ids"][k][batch.batch["attention_mask"][k].bool()]
        assert tuple(shown.tolist()) == replies[-1].prompt_ids + replies[-1].ids, (
            "nothing is tokenised again"
        )
        assert int(batch.batch["rm_scores"][k].argmax()) == (
            int(mask.nonzero().max()) if reward else 0
        )


def test_other_end_marks_and_template_variables_are_those_of_the_model(
    folder: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[Reply] = []
    play = Episode.play

    def spied(episode: Episode, reply: Reply) -> None:
        played.append(reply)
        play(episode, reply)

    monkeypatch.setattr(Episode, "play", spied)
    config = configured(folder)
    config.data.apply_chat_template_kwargs = {"calm": True}
    engine = Engine(tokenizer, OraclePolicy("ListWorld"), "ListWorld", 3, **SMALL)
    engine.end, engine.variables = "<|stop|>", {"calm": True}
    batch = rows("lists", "ListWorld", 3, **SMALL)
    asyncio.run(AgentLoopWorker(config, engine).generate_sequences(batch))
    (replies,) = engine.replies.values()
    assert [each.text for each in played] == [each.text for each in replies]
    assert tokenizer.decode(replies[0].prompt_ids).startswith("calm")


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    queue: dict[str, Any] = {}

    async def put(key: str, partition_id: str, tag: Any) -> None:
        queue[key] = tag["status"]

    async def put_batch(keys: list[str], fields: Any, tags: Any, partition_id: str) -> None:
        queue.update({key: fields[k] for k, key in enumerate(keys)})

    monkeypatch.setattr(v1.tq, "init", lambda: None)
    monkeypatch.setattr(v1.tq, "async_kv_put", put)
    monkeypatch.setattr(v1.tq, "async_kv_batch_put", put_batch)
    return queue


def run_prompt(config: Any, engine: Engine, batch: Any) -> None:
    worker = v1.AgentLoopWorkerTQ.__ray_metadata__.modified_class(config, engine)
    row = {**{name: column[0] for name, column in batch.non_tensor_batch.items()}, "uid": "u"}
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    asyncio.run(worker._run_prompt(row, {"temperature": 1.0}, trajectory))


def test_an_edited_episode_gives_all_its_rows(
    published: dict[str, Any], folder: Path, tokenizer: Any
) -> None:
    seed = 1  # with this seed, the episode is long enough for several context edits
    engine = Engine(tokenizer, NoisyPolicy("TreeWorld", 0.1), "TreeWorld", seed, **EDITED)
    run_prompt(configured(folder), engine, rows("trees", "TreeWorld", seed, **EDITED))
    assert published.pop("u") == "finished"
    assert len(engine.replies) == 2, "the group of the row"
    for session, replies in enumerate(engine.replies.values()):
        said = iter(replies)
        known = rollout(
            lambda chats, said=said: [next(said) for _ in chats],
            agentgym.make("TreeWorld", **EDITED),
            seed,
        )
        expected = to_training_dict(known)
        assert len(expected["rows"]) > 2
        assert [key for key in published if key.startswith(f"u_{session}_")] == [
            f"u_{session}_{k}" for k in range(len(expected["rows"]))
        ]
        for k, row in enumerate(expected["rows"]):
            field, start = published[f"u_{session}_{k}"], row["prompt_length"]
            assert field["prompts"].tolist() == row["input_ids"][:start]
            assert field["responses"].tolist() == row["input_ids"][start:]
            assert field["response_mask"].tolist() == row["loss_mask"][start:]
            assert field["rollout_log_probs"].tolist() == pytest.approx(row["logprobs"][start:])
            assert field["rm_scores"].sum().item() == pytest.approx(known.reward)
            assert field["extra_fields"]["reward_extra_info"] == {
                "success": float(known.reward >= 1),
                "truncated": float(known.truncated),
                "turns": float(len(replies)),
            }


def test_an_episode_that_does_not_fit_is_truncated(
    published: dict[str, Any], folder: Path, tokenizer: Any
) -> None:
    engine = Engine(tokenizer, idle, "ListWorld", 3, **SMALL)
    run_prompt(
        configured(folder, response_length=100), engine, rows("lists", "ListWorld", 3, **SMALL)
    )
    field = published["u_0_0"]
    replies = next(iter(engine.replies.values()))
    assert 1 <= len(replies) < 7
    assert field["extra_fields"]["reward_extra_info"] == {
        "success": 0.0,
        "truncated": 1.0,
        "turns": float(len(replies)),
    }
    assert len(field["responses"]) <= 100
    whole = replies[-1].prompt_ids + replies[-1].ids
    assert field["responses"].tolist() == list(whole[len(replies[0].prompt_ids) :][:100])


def test_what_cannot_be_played_fails_as_a_group(
    published: dict[str, Any], folder: Path, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine, batch = (
        Engine(tokenizer, idle, "ListWorld", 3, **SMALL),
        rows("lists", "ListWorld", 3, **SMALL),
    )
    run_prompt(configured(folder, prompt_length=50), engine, batch)
    assert published == {"u": "failure"}
    assert "the first prompt of seed 3 has" in caplog.text
    assert "more than rollout.prompt_length=50; raise that limit" in caplog.text
    batch.non_tensor_batch.pop("seed")
    run_prompt(configured(folder), engine, batch)
    assert "a row needs an integer 'seed', got None" in caplog.text
    assert engine.replies == {}


def test_an_image_in_a_result_fails_its_group(
    published: dict[str, Any], folder: Path, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    turn_page = lambda chats: [Reply(render(ToolCall("turn_page", {})))]  # noqa: E731
    engine = Engine(tokenizer, turn_page, ALBUM, 3, cover=False)
    run_prompt(configured(folder), engine, rows("albums", ALBUM, 3, cover=False))
    assert published == {"u": "failure"}
    assert "verl carries only text, and AlbumWorld shows images" in caplog.text
