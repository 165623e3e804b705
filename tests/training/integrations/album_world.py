"""A world that shows images in tasks and results without announcing them."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO

import gymnasium
import numpy as np
from PIL import Image as PillowImage

from agentgym import Content, Image, ToolCall, World, tool

ALBUM = "tests/AlbumWorld-v0"


@dataclass(frozen=True)
class Config:
    pages: int = 2
    cover: bool = True


class AlbumWorld(World[Config]):
    """Turn all pages of an album; each page shows two images."""

    Config = Config

    def generate(self) -> None:
        self.page = 0
        self.key = int(self.rng.integers(2**31))
        self.max_turns = 5

    def rules(self) -> str:
        return "Turn the pages."

    def task(self) -> str | Content:
        text = "Turn all pages of this album."
        return Content(text, (self._draw(0),)) if self.config.cover else text

    @tool
    def turn_page(self) -> Content:
        """Turn to the next page."""
        self.page += 1
        self.done = self.page == self.config.pages
        return Content(f"Page {self.page}.", (self._draw(1), self._draw(2)))

    def optimal_calls(self) -> list[ToolCall]:
        return [] if self.done else [ToolCall("turn_page", {})]

    def score(self) -> float:
        return self.page / self.config.pages

    def _draw(self, number: int) -> Image:
        draw = np.random.default_rng([self.key, self.page, number])
        pixels = draw.integers(0, 256, (56, 56, 3), dtype=np.uint8)
        file = BytesIO()
        PillowImage.fromarray(pixels).save(file, "PNG")
        return Image(file.getvalue())


# This world is not in agentgym's registry, which lists only the package's worlds.
gymnasium.register(
    ALBUM,
    "agentgym.play.env:ToolEnv",
    kwargs={"world": "tests.training.integrations.album_world:AlbumWorld"},
    disable_env_checker=True,
)
