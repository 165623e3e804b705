"""Samplers in place of the model itself, for a fine-tuning: vLLM in this process, or a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from agentgym.arguments import list_names
from agentgym.training.extras import needs_extra
from agentgym.training.rollout import Sampler

ITSELF, VLLM = "transformers", "vllm"
_OURS = {"model": "of the model that is trained", "seed": "--seed", "enable_lora": "--lora"}
"""Options of vLLM that follow from those of the training, with what they follow from."""


def check_sampler(name: str, options: Mapping[str, Any]) -> None:
    """Check what a sampler is named by and its options, as far as can be done without starting it.

    Raises:
        ValueError: There is no such sampler, or an option is not right.
    """
    if name == ITSELF and options:
        raise ValueError(
            f"sampler_options are for another sampler than {ITSELF}, got {sorted(options)}; name it"
        )
    if name == VLLM and (ours := [option for option in options if option in _OURS]):
        raise ValueError(f"{ours[0]} of vLLM follows from {_OURS[ours[0]]}; leave it out")
    if name in (ITSELF, VLLM):
        return
    if not name.startswith(("http://", "https://")):
        raise ValueError(
            f"sampler must be {ITSELF}, {VLLM} or the address of a server, such as "
            f"http://127.0.0.1:8000/v1, got {name!r}"
        )
    _server_config(name, options, Path())


def make_sampler(
    name: str, options: Mapping[str, Any], model: Path, handover: Path, *, lora: int, seed: int
) -> Sampler | None:
    """Return what samples in place of the model itself; None if that does.

    Args:
        name: `transformers` for the model itself, `vllm`, or the address of an OpenAI-compatible
            server that takes and returns token ids.
        options: Of `vllm.LLM`, or of `SamplingServerConfig`, whose `model` is the folder by default.
        model: The folder of the model as it was before.
        handover: Where the weights of the training are handed over.
        lora: The rank of the adapters that are trained; 0 if all weights are.
        seed: Seeds the draws.

    Raises:
        MissingExtraError: A package is missing.
    """
    if name == ITSELF:
        return None
    if name == VLLM:
        with needs_extra("sampling with vLLM", "vllm"):
            from agentgym.training.rollout.vllm_sampler import VLLMSampler  # noqa: PLC0415 - an extra

        adapters: dict[str, Any] = {"enable_lora": True, "max_lora_rank": lora} if lora else {}
        return VLLMSampler(str(model), handover, seed, **adapters, **options)
    from agentgym.training.rollout import ServerSampler  # noqa: PLC0415 - an extra

    return ServerSampler(_server_config(name, options, model), handover, seed)


def _server_config(url: str, options: Mapping[str, Any], model: Path) -> Any:
    from agentgym.training.rollout import SamplingServerConfig  # noqa: PLC0415 - an extra

    names = [each.name for each in fields(SamplingServerConfig) if each.name != "base_url"]
    if unknown := [option for option in options if option not in names]:
        raise ValueError(
            f"a server has no option {unknown[0]!r}; {list_names(unknown[0], names, 'options')}"
        )
    if "context" not in options:
        raise ValueError(
            "a server needs the option context, the most tokens of a prompt and its reply, as it was "
            "started with (--max-model-len)"
        )
    return SamplingServerConfig(**{"model": str(model), **options, "base_url": url})
