"""A tiny vision model with random weights, which records the images that it receives."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import torch
from PIL import Image as PillowImage
from transformers import (
    ProcessorMixin,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLProcessor,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

import agentgym
from agentgym.training.rollout import make_tokenizer

_PATCH = 14
# Minimum and maximum image sizes in pixels, chosen to keep prompts short.
_SIZE = {"shortest_edge": (2 * _PATCH) ** 2, "longest_edge": (4 * _PATCH) ** 2}
_MARKS = ("image_pad", "video_pad", "vision_start", "vision_end")
# Base64 text that starts with the eight bytes of the PNG signature.
_PNG = re.compile(r"iVBORw0KGg[A-Za-z0-9+/=]*")
_TEMPLATE = """
{%- for m in messages %}<|im_start|>{{ m.role }}
{% for part in m.content %}
    {%- if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>
    {%- else %}{{ part.text }}{% endif %}
{%- endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
"""


class ImageOnlyProcessor(Qwen2VLProcessor):  # type: ignore[no-any-unimported,misc]
    """Qwen2-VL's processor without video support, because video requires torchvision."""

    def __init__(self, image_processor: Any, tokenizer: Any, chat_template: Any = None) -> None:
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)


class VisionModel:
    """Tiny Qwen2.5-VL model with one layer of each kind.

    Attributes:
        received: For each forward pass with images, whether gradients were enabled and the images'
            digests.
    """

    def __init__(self, template: str = _TEMPLATE) -> None:
        chat, _ = agentgym.make("MultimodalWorld").reset(seed=0)
        self.tokenizer = tokenizer = make_tokenizer([chat.to_text()], 800)
        tokenizer.add_special_tokens({"eos_token": "<|im_end|>"})
        tokenizer.add_tokens([f"<|{mark}|>" for mark in _MARKS], special_tokens=True)
        self.pixels = Qwen2VLImageProcessorPil(size=_SIZE, patch_size=_PATCH, merge_size=2)
        self.processor = ImageOnlyProcessor(self.pixels, tokenizer, template)
        self.model = _model(tokenizer)
        self.received: list[tuple[bool, list[str]]] = []
        self.model.model.visual.register_forward_pre_hook(self._record, with_kwargs=True)

    def fingerprints(self, images: Iterable[bytes]) -> list[str]:
        """Return a digest of the expected pixel values for each PNG."""
        made = [self.pixels(images=[_open(png)], return_tensors="pt") for png in images]
        return [_digest(each["pixel_values"]) for each in made]

    def look(self, images: Iterable[bytes]) -> None:
        parts: list[dict[str, Any]] = [{"type": "image", "image": _open(png)} for png in images]
        prompt = [{"role": "user", "content": [*parts, {"type": "text", "text": "Go on."}]}]
        inputs = self.processor.apply_chat_template(
            prompt, tokenize=True, return_dict=True, return_tensors="pt"
        )
        self.model.generate(**inputs, max_new_tokens=1, do_sample=False)

    def _record(self, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        pixels, *_ = (*arguments, *(named.get(name) for name in ("pixel_values", "hidden_states")))
        grids = named.get("grid_thw", arguments[-1] if len(arguments) > 1 else None)
        parts = torch.split(pixels, grids.prod(-1).tolist())
        self.received.append((torch.is_grad_enabled(), [_digest(part) for part in parts]))


def pngs_in(request: Any) -> list[bytes]:
    """Return the PNG files in a request of any API, in order."""
    if isinstance(request, str):
        return [base64.b64decode(text) for text in _PNG.findall(request)]
    values = request.values() if isinstance(request, dict) else request
    found: list[bytes] = []
    for value in values:
        if isinstance(value, (dict, list, tuple, str)):
            found += pngs_in(value)
    return found


def _open(png: bytes) -> Any:
    return PillowImage.open(BytesIO(png)).convert("RGB")


def _digest(pixels: torch.Tensor) -> str:
    values = pixels.detach().float().contiguous().numpy()
    return hashlib.sha256(values.tobytes()).hexdigest()


def _model(tokenizer: Any) -> Any:
    image, video, start, end = (tokenizer.convert_tokens_to_ids(f"<|{m}|>") for m in _MARKS)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 16_384,
        "rope_parameters": rope,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.eos_token_id,
    }
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_heads": 2,
        "out_hidden_size": 32,
        "patch_size": _PATCH,
        "window_size": 2 * _PATCH,
        "fullatt_block_indexes": [0],
    }
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
    return Qwen2_5_VLForConditionalGeneration(config)
