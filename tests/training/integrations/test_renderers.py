"""Token ids of model families, compared with the ids of verifiers' training client."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "verifiers", reason="verifiers needs openai<3, so an environment of its own: make adapters"
)

import renderers as families
import verifiers.v1 as vf

import agentgym
from agentgym import tool_env
from agentgym.training.integrations.renderers import FamilyPolicy, FamilyRenderer, token_policy
from agentgym.training.integrations.verifiers import load_environment
from agentgym.training.rollout import Sample, SamplingOptions, make_tokenizer, rollout
from tests.training.integrations.verifiers_runs import KEY, play_task
from tests.training.rollout.endpoint_server import Answer, serving

SMALL: dict[str, Any] = {"items": 5, "removals": 2}
_QWEN = "<|im_start|> <|im_end|> <|endoftext|> <think> </think> <tool_call> </tool_call>"
_QWEN += " <tool_response> </tool_response>"
_GLM = "<|endoftext|> [gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|> <think>"
_GLM += " </think> <tool_call> </tool_call> <tool_response> </tool_response> <arg_key>"
_GLM += " </arg_key> <arg_value> </arg_value>"
# For each family: the renderer's settings, the special tokens, and the token that ends a reply.
FAMILIES: dict[str, tuple[Any, str, str]] = {
    "qwen3": (families.Qwen3RendererConfig(), _QWEN, "<|im_end|>"),
    "qwen3-plain": (families.Qwen3RendererConfig(enable_thinking=False), _QWEN, "<|im_end|>"),
    "glm-4.5": (families.GLM45RendererConfig(), _GLM, "<|user|>"),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"oracles": "S", "hint_scope": "ephemeral"},
    {"context": "clear_thinking:keep=1"},
]


class Script:
    context = 100_000
    version = 1

    def __init__(self, samples: Sequence[list[int]]) -> None:
        self.samples = samples
        self.prompts: list[list[int]] = []

    def seed(self, seed: int) -> None:
        pass

    def update(self, model: Any, tokenizer: Any) -> None:
        pass

    def sample(self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions) -> list[Sample]:
        (prompt,) = prompts
        ids = self.samples[len(self.prompts)]
        self.prompts.append(list(prompt))
        return [Sample(tuple(ids), tuple(-k / 1_000 for k in ids), version=1)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("verifiers.v1.runtimes.subprocess.CACHE_DIR", tmp_path)
    return tmp_path


def make_family(name: str, folder: Path) -> Any:
    chat, _ = agentgym.make("ListWorld", **SMALL).reset(seed=3)
    tokenizer = make_tokenizer([chat.to_text()], 800)
    tokenizer.add_tokens(FAMILIES[name][1].split(), special_tokens=True)
    tokenizer.save_pretrained(folder / "tokenizer")
    return tokenizer


def optimal_samples(name: str, tokenizer: Any) -> list[list[int]]:
    env = agentgym.make("ListWorld", **SMALL)
    env.reset(seed=3)
    thought = "" if name == "qwen3-plain" else "<think>\nI pop.\n</think>\n\n"
    samples = []
    while calls := tool_env(env).world.optimal_calls():
        reply = said = agentgym.render(calls[0])
        if name.startswith("glm"):
            keys = [f"<arg_key>{key}</arg_key>\n" for key in calls[0].arguments]
            values = [f"<arg_value>{value}</arg_value>\n" for value in calls[0].arguments.values()]
            pairs = "".join(map(str.__add__, keys, values))
            said = f"<tool_call>{calls[0].name}\n{pairs}</tool_call>"
        samples.append(tokenizer.encode(f"{thought}{said}{FAMILIES[name][2]}"))
        env.step(reply)
    return samples


def train(
    samples: Sequence[list[int]], folder: Path, config: Any, **options: Any
) -> tuple[vf.Trace, list[list[int]]]:
    env = load_environment("ListWorld", range(3, 4), **options)

    def sample(request: dict[str, Any], number: int) -> Answer:
        ids = samples[number - 1]
        scores = [{"token": f"token_id:{k}", "logprob": -k / 1_000} for k in ids]
        choice = {"index": 0, "token_ids": ids, "logprobs": {"content": scores}}
        choices = [{**choice, "finish_reason": "stop"}]
        return Answer(body=json.dumps({"request_id": "r", "choices": choices}))

    with serving(sample, path="") as server:
        client = vf.TrainClientConfig(
            base_url=server.url,
            api_key_var=KEY,
            renderer=config,
            renderer_model_name=str(folder / "tokenizer"),
        )
        trace = play_task(env, client=client).traces[0]
    return trace, [request["token_ids"] for request in server.requests]


@pytest.mark.parametrize("tools", ["text", "native"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_are_those_of_verifiers(
    name: str, options: dict[str, Any], tools: Any, folder: Path
) -> None:
    config, tokenizer = FAMILIES[name][0], make_family(name, folder)
    samples = optimal_samples(name, tokenizer)
    options = {**SMALL, **options}
    trace, prompts = train(samples, folder, config, tools=tools, **options)
    assert trace.reward == 1.0
    sampler: Any = Script(samples)
    policy = token_policy(sampler, tokenizer, config, native_tools=tools == "native")
    assert isinstance(policy, FamilyPolicy)
    trajectory = rollout(policy, agentgym.make("ListWorld", **options), 3)
    assert trajectory.reward == 1.0
    assert sampler.prompts == prompts
    assert [list(step.reply.prompt_ids) for step in trajectory.steps] == prompts
    said = [message.content or "" for message in trace.assistant_messages]
    for step, content in zip(trajectory.steps, said, strict=True):
        assert content in step.reply.text


@pytest.mark.parametrize(
    ("options", "branches"), [({}, 1), ({"oracles": "S", "hint_scope": "ephemeral"}, 3)]
)
def test_the_trace_holds_the_sampled_tokens(
    options: dict[str, Any], branches: int, folder: Path
) -> None:
    config, tokenizer = FAMILIES["qwen3-plain"][0], make_family("qwen3-plain", folder)
    samples = optimal_samples("qwen3-plain", tokenizer)
    trace, prompts = train(samples, folder, config, **SMALL, **options)
    assert trace.reward == 1.0
    assert trace.num_branches == branches
    assert tokenizer.decode(prompts[-1]).count("The element has been removed.") == 2
    sampled = []
    for node in trace.nodes:
        sampled += [k for k, mask in zip(node.token_ids, node.mask, strict=True) if mask]
    assert sampled == [k for ids in samples for k in ids], "each sampled token once"
    final = trace.branches[-1]
    assert final.token_ids == prompts[-1] + samples[-1]
    assert final.logprobs[-len(samples[-1]) :] == [-k / 1_000 for k in samples[-1]]
    if branches == 1:
        for before, ids, after in zip(prompts, samples, prompts[1:], strict=False):
            assert after[: len(before) + len(ids)] == before + ids, "nothing is tokenised again"


def test_episodes_of_one_policy_do_not_mix(folder: Path) -> None:
    config, _, end = FAMILIES["qwen3"]
    tokenizer = make_family("qwen3", folder)
    renderer = FamilyRenderer(tokenizer, config)
    envs = [agentgym.make("ListWorld", **SMALL) for _ in range(2)]
    chats = [env.reset(seed=seed)[0] for seed, env in enumerate(envs)]
    for turn in range(2):
        for k, env in enumerate(envs):
            prompt = renderer.ids(chats[k])
            ids = tokenizer.encode(f"<think>\n{k} {turn}\n</think>\n\nI wait.{end}")
            text = renderer.read(chats[k], prompt, ids)
            renderer.remember(chats[k], agentgym.Reply(text, prompt, tuple(ids)))
            chats[k], *_ = env.step(text)
            assert f"{k} {turn}" in text
    alone = FamilyRenderer(tokenizer, config)
    for k in range(2):
        shown = tokenizer.decode(list(renderer.ids(chats[k])))
        assert f"{1 - k} 0" not in shown
        assert f"{1 - k} 1" not in shown
        assert shown.count("I wait.") == 2
    assert list(alone.ids(chats[0])) != list(alone.ids(chats[1]))


def test_an_empty_reply_of_another_episode_changes_no_prompt(folder: Path) -> None:
    config, _, end = FAMILIES["qwen3"]
    tokenizer = make_family("qwen3", folder)
    prompts = []
    for empty in (False, True):
        renderer, env = FamilyRenderer(tokenizer, config), agentgym.make("ListWorld", **SMALL)
        chat, _ = env.reset(seed=3)
        if empty:
            assert renderer.read(chat, renderer.ids(chat), tokenizer.encode(end)) == ""
        for ids in optimal_samples("qwen3", tokenizer)[:2]:
            prompt = renderer.ids(chat)
            text = renderer.read(chat, prompt, ids)
            renderer.remember(chat, agentgym.Reply(text, prompt, tuple(ids)))
            chat, *_ = env.step(text)
        prompts.append(list(renderer.ids(chat)))
    assert prompts[0] == prompts[1]


def test_an_unknown_model_keeps_our_renderer(folder: Path) -> None:
    tokenizer = make_tokenizer(["a b c"], 300)
    sampler: Any = Script([])
    policy = token_policy(sampler, tokenizer, temperature=0.5)
    assert type(policy.renderer).__name__ == "Renderer"
    known = make_family("qwen3", folder)
    known.name_or_path = "Qwen/Qwen3-8B"
    assert isinstance(token_policy(sampler, known).renderer, FamilyRenderer)
