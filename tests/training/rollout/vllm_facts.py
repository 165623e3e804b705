"""The vLLM interface that our calls rely on, read from the source in its wheel without importing
it.

pip download --no-deps --only-binary :all: vllm
python tests/training/rollout/vllm_facts.py vllm-*.whl > tests/training/rollout/vllm_facts.json
"""

from __future__ import annotations

import ast
import json
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

CLASSES = {
    "LLM": "vllm/entrypoints/llm.py",
    "ModelRunner": "vllm/v1/worker/gpu_model_runner.py",
    "SamplingParams": "vllm/sampling_params.py",
    "CompletionOutput": "vllm/outputs.py",
    "RequestOutput": "vllm/outputs.py",
    "Logprob": "vllm/logprobs.py",
    "LoRARequest": "vllm/lora/request.py",
    "TokensPrompt": "vllm/inputs/llm.py",
    "EngineArgs": "vllm/engine/arg_utils.py",
    "CompletionRequest": "vllm/entrypoints/openai/completion/protocol.py",
    "CompletionResponseChoice": "vllm/entrypoints/openai/completion/protocol.py",
    "CompletionLogProbs": "vllm/entrypoints/openai/completion/protocol.py",
    "WeightVersionSpan": "vllm/outputs.py",
    "LoadLoRAAdapterRequest": "vllm/entrypoints/serve/lora/protocol.py",
}
# Classes with other names in the source.
NAMES = {"ModelRunner": "GPUModelRunner"}
METHODS = {
    "LLM": ("generate", "collective_rpc", "reset_prefix_cache", "sleep", "wake_up"),
    "ModelRunner": ("reload_weights",),
    "RequestOutput": ("__init__",),
}
ROUTES = (
    "vllm/entrypoints/openai/completion/api_router.py",
    "vllm/entrypoints/serve/dev/rpc/api_router.py",
    "vllm/entrypoints/serve/dev/cache/api_router.py",
    "vllm/entrypoints/serve/lora/api_router.py",
    "vllm/entrypoints/rl/online/api_router.py",
)
VALUES = {
    "FINISH_REASON_STRINGS": "vllm/v1/engine/__init__.py",
    "LogprobsMode": "vllm/config/model.py",
}


def fields(node: ast.ClassDef) -> list[str]:
    return [
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    ]


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [item.arg for item in (*node.args.args, *node.args.kwonlyargs)][1:]


def routes(tree: ast.Module) -> Iterator[str]:
    """Yield the paths that a module's functions serve."""
    for node in ast.walk(tree):
        for item in getattr(node, "decorator_list", ()):
            if isinstance(item, ast.Call) and getattr(item.func, "attr", "") in ("post", "get"):
                yield f"{item.func.attr} {ast.literal_eval(item.args[0])}"  # type: ignore[attr-defined]


def strings(node: ast.expr) -> list[str]:
    return [
        item.value
        for item in ast.walk(node)
        if isinstance(item, ast.Constant) and isinstance(item.value, str)
    ]


def read(wheel: str) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        trees = {
            path: ast.parse(archive.read(path))
            for path in {*CLASSES.values(), *ROUTES, *VALUES.values()}
        }
    facts: dict[str, Any] = {"version": wheel.rpartition("/")[2].split("-")[1], "classes": {}}
    for name, path in CLASSES.items():
        wanted = NAMES.get(name, name)
        (node,) = [
            item
            for item in ast.walk(trees[path])
            if isinstance(item, ast.ClassDef) and item.name == wanted
        ]
        methods = {
            item.name: parameters(item)
            for item in node.body
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
            and item.name in METHODS.get(name, ())
        }
        facts["classes"][name] = {"fields": fields(node), "methods": methods}
    facts["routes"] = sorted(route for path in ROUTES for route in routes(trees[path]))
    facts["values"] = {
        name: strings(item.value)
        for name, path in VALUES.items()
        for item in trees[path].body
        if isinstance(item, ast.Assign) and getattr(item.targets[0], "id", "") == name
    }
    return facts


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1]), indent=1))
