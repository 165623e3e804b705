"""Prices of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from agentgym.world.config import Config


@dataclass(frozen=True)
class Price(Config):
    """A model's price per million prompt tokens (ignoring caches) and reply tokens (including
    thinking), in any currency.
    """

    prompt: Annotated[float, Field(ge=0.0, le=1e9)] = 0.0
    reply: Annotated[float, Field(ge=0.0, le=1e9)] = 0.0

    def of(self, tokens: tuple[float, float]) -> float:
        """Return the cost of prompt and reply tokens."""
        return (tokens[0] * self.prompt + tokens[1] * self.reply) / 1e6
