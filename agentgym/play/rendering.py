"""Rendering of an env's chat and board."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentgym.text.messages import Chat, pillow

_MARGIN = 8  # pixels
_SPACING = 4  # pixels between lines
_SCALE = 2  # enlarged, because the font is 11 pixels high


def render_chat(mode: str | None, chat: Chat, board: str) -> str | NDArray[np.uint8] | None:
    """Render as text (`ansi`) or as a picture (`rgb_array`); return None for other modes."""
    if mode == "rgb_array":
        return draw_text(board or chat.messages[-1].text)
    if mode == "ansi":
        return "\n\n".join(filter(None, (chat.to_text(), board)))
    return None


def draw_text(text: str) -> NDArray[np.uint8]:
    """Return a text as a uint8 image of shape `(height, width, 3)`, black on white."""
    font = pillow("PIL.ImageFont").load_default_imagefont()
    # The font contains only Latin-1 characters.
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
