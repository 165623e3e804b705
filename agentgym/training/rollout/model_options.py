"""Options of the models that play in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from agentgym.config import Config, TokenCount

DType = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Config):
    """Options of a model of transformers that plays.

    Attributes:
        device: The device, as PyTorch names it; `auto` for a GPU if there is one.
        dtype: The type of the weights; `auto` for that of the folder on a GPU, and `float32` on a
            processor, most of which compute slowly in bfloat16.
        temperature: Of the sampling; 0 for the most probable token.
        max_new_tokens: The most tokens of a reply; None for the number that the folder gives, else
            512.
        batch_size: The most episodes that are played at once, in one batch.
        template: Variables of the chat template, such as `enable_thinking`.
        native_tools: Pass the schemas of the tools to the chat template too.
    """

    device: str = "auto"
    dtype: DType = "auto"
    temperature: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    max_new_tokens: Annotated[int, Field(ge=1, le=1_000_000), TokenCount()] | None = None
    batch_size: Annotated[int, Field(ge=1, le=100_000)] = 32
    template: Mapping[str, Any] = field(default_factory=dict)
    native_tools: bool = False

    def to_json(self) -> str:
        """Return the options as JSON text."""
        return json.dumps(asdict(self), sort_keys=True)
