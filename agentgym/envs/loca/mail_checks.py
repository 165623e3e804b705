"""Checks of what the reader of a mail sees."""

from __future__ import annotations

import re

from agentgym.envs.loca.servers.email.messages import Mail

_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|<[^<>]*\shidden\b", re.IGNORECASE
)


def hides_text(mail: Mail) -> bool:
    """Return whether the HTML of a mail has text that mail programs do not show."""
    return bool(_HIDING.search(mail.html or ""))


def says(mail: Mail, text: str) -> bool:
    """Return whether every part of a mail, plain or HTML, has exactly these words."""
    return not hides_text(mail) and all(part.split() == text.split() for part in mail.parts)
