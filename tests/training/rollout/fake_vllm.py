"""A fake vLLM with the real classes' fields and parameters (`vllm_facts.json`).

Samples come from a tiny transformers model loaded from the given folder.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from agentgym.training.rollout import Sample, SamplingOptions, TransformersSampler
from agentgym.training.rollout.models.pretrained import find_model, load_model

FACTS: dict[str, Any] = json.loads(Path(__file__).with_name("vllm_facts.json").read_text("utf-8"))
CLASSES: dict[str, Any] = FACTS["classes"]
Tamper = Callable[[dict[str, Any]], None]


def check(kind: str, names: Mapping[str, Any], method: str | None = None) -> None:
    facts = CLASSES[kind]
    known = facts["fields"] if method is None else facts["methods"][method]
    assert set(names) <= set(known), f"{kind} of vLLM {FACTS['version']} knows no {set(names)}"


def record(kind: str, **values: Any) -> types.SimpleNamespace:
    check(kind, values)
    return types.SimpleNamespace(**values)


class FakeEngine:
    """Sampler with a cache that only a reset clears."""

    def __init__(self, folder: str) -> None:
        self.folders = [folder]
        self.load(folder)

    def load(self, folder: str) -> None:
        self.folders.append(folder)
        cpu = torch.device("cpu")
        model, self.tokenizer = load_model(find_model(folder), cpu, torch.float32)
        self.sampler = TransformersSampler(model)

    def draw(self, prompt: Sequence[int], body: Mapping[str, Any]) -> Sample:
        assert (body["top_p"], body["top_k"], body["repetition_penalty"]) == (1.0, 0, 1.0)
        assert body["ignore_eos"], "the end marks are ours alone"
        assert body["logprobs"] == 0, "the token that was drawn is always there"
        stops = frozenset(body["stop_token_ids"])
        options = SamplingOptions(body["temperature"], body["max_tokens"], stops)
        self.sampler.seed(body["seed"])
        (sample,) = self.sampler.sample([tuple(prompt)], options)
        return sample


class FakeLLM:
    tamper: Tamper | None = None

    def __init__(self, model: str, **options: Any) -> None:
        check("EngineArgs", {"model": model, **options})
        assert options["logprobs_mode"] in FACTS["values"]["LogprobsMode"]
        assert options.get("max_lora_rank", 16) in FACTS["values"]["MaxLoRARanks"]
        self.engine, self.calls = FakeEngine(model), [("init", options)]
        self.model_config = types.SimpleNamespace(max_model_len=options["max_model_len"])
        # For each adapter, the version of the weights that computed the cached states.
        self.states: dict[tuple[str, ...], int] = {}

    def generate(self, prompts: Any, sampling_params: Any, **options: Any) -> list[Any]:
        check("LLM", options, "generate")
        owner: tuple[str, ...] = ()
        if options.get("lora_request") is not None:
            adapter = options["lora_request"]
            owner = (adapter.lora_name, adapter.lora_path)  # vLLM ignores the adapter's number here
            if adapter.lora_path != self.engine.folders[-1] or adapter.lora_int_id != self.adapter:
                self.engine.load(adapter.lora_path)
                self.adapter = adapter.lora_int_id
        loaded = len(self.engine.folders)
        assert self.states.setdefault(owner, loaded) == loaded, "states of the weights before"
        outputs = []
        for prompt, params in zip(prompts, sampling_params, strict=True):
            check("TokensPrompt", prompt)
            sample = self.engine.draw(prompt["prompt_token_ids"], vars(params))
            values: dict[str, Any] = {
                "token_ids": list(sample.ids),
                "finish_reason": "stop" if sample.ids[-1] in params.stop_token_ids else "length",
                "logprobs": [
                    {i: record("Logprob", logprob=logprob)}
                    for i, logprob in zip(sample.ids, sample.logprobs, strict=True)
                ],
            }
            if self.tamper is not None:
                type(self).tamper(values)  # type: ignore[misc]
            output = {
                "prompt_token_ids": prompt["prompt_token_ids"],
                "outputs": [record("CompletionOutput", **values)],
            }
            check("RequestOutput", output, "__init__")
            outputs.append(types.SimpleNamespace(**output))
        return outputs

    adapter = 0

    def collective_rpc(self, method: str, **options: Any) -> list[None]:
        check("LLM", options, "collective_rpc")
        assert method == "reload_weights"
        check("ModelRunner", options["kwargs"], "reload_weights")
        self.engine.load(options["kwargs"]["weights_path"])
        self.calls.append((method, options["kwargs"]))
        return [None]

    def reset_prefix_cache(self) -> bool:
        self.states.clear()
        return True

    def sleep(self, **options: Any) -> None:
        check("LLM", options, "sleep")
        self.calls.append(("sleep", options))

    def wake_up(self, **options: Any) -> bool:
        check("LLM", options, "wake_up")
        self.calls.append(("wake_up", options))
        return True


def modules() -> dict[str, types.ModuleType]:
    names = ("vllm", "vllm.lora", "vllm.lora.request", "vllm.platforms")
    vllm, lora, request, platforms = map(types.ModuleType, names)
    platforms.current_platform = types.SimpleNamespace(is_cpu=lambda: False)  # type: ignore[attr-defined]
    vllm.LLM = FakeLLM  # type: ignore[attr-defined]

    def params(**options: Any) -> types.SimpleNamespace:
        if options["max_tokens"] < 1:
            raise ValueError(f"max_tokens must be at least 1, got {options['max_tokens']}.")
        return record("SamplingParams", **options)

    vllm.SamplingParams = params  # type: ignore[attr-defined]

    def adapter(lora_name: str, lora_int_id: int, lora_path: str) -> types.SimpleNamespace:
        assert CLASSES["LoRARequest"]["fields"][:3] == ["lora_name", "lora_int_id", "lora_path"]
        return record(
            "LoRARequest", lora_name=lora_name, lora_int_id=lora_int_id, lora_path=lora_path
        )

    request.LoRARequest = adapter  # type: ignore[attr-defined]
    return dict(zip(names, (vllm, lora, request, platforms), strict=True))
