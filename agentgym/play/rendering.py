"""Renderings of an env: its chat and board as text, or as a picture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentgym.text.messages import Chat, pillow

_MARGIN = 8
"""Pixels around the text."""
_SPACING = 4
"""Pixels between two lines."""

_SCALE = 2
"""Pixels of the picture for each of the font, whose letters are 11 high."""


def render_chat(mode: str | None, chat: Chat, board: str) -> str | NDArray[np.uint8] | None:
    """Return the rendering of a mode: `ansi` for the chat with the board below, `rgb_array` for a
    picture of the board, or of the newest message where there is none; None without a mode.
    """
    if mode == "rgb_array":
        return draw_text(board or chat.messages[-1].text)
    return "\n\n".join(filter(None, (chat.to_text(), board))) if mode == "ansi" else None


def draw_text(text: str) -> NDArray[np.uint8]:
    """Draw a text in letters of one width.

    Returns:
        uint8 of shape `(height, width, 3)`, with the size of the text; black on white.

    Raises:
        ImportError: The extra `images` is not installed.
    """
    font = pillow("PIL.ImageFont").load_default_imagefont()
    # The font has the letters of Latin-1 only.
    text = text.encode("latin-1", "replace").decode("latin-1")
    canvas = pillow("PIL.ImageDraw").Draw(pillow("PIL.Image").new("RGB", (1, 1)))
    _, _, width, height = canvas.multiline_textbbox((0, 0), text, font=font, spacing=_SPACING)
    image = pillow("PIL.Image").new(
        "RGB", (int(width) + 2 * _MARGIN, int(height) + 2 * _MARGIN), "white"
    )
    pillow("PIL.ImageDraw").Draw(image).multiline_text(
        (_MARGIN, _MARGIN), text, fill="black", font=font, spacing=_SPACING
    )
    return np.asarray(image.resize((_SCALE * image.width, _SCALE * image.height)))
