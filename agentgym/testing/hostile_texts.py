"""Short hostile strings that have broken parsers, services and templates elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from string import Template

# Matches a JSON key, which becomes the name of a Python argument.
_MEMBER = re.compile(r'"(\w+)": ')

_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
# Argument values. The surrogate pair is not in the JSON file, because parsing would merge it.
STRINGS: tuple[str, ...] = (
    *_TEXTS["strings"],
    "\ud83d\ude00",
    *("9" * 400, "(?:" * 60, "=" + "1+" * 120 + "1", "a/" * 100, "x" * 300),
)
# argument values as raw text, because JSON or Python cannot represent some of them
LITERALS: tuple[str, ...] = (
    *_TEXTS["literals"],
    *("1" * 4_400, '{"a":' * 66 + "1" + "}" * 66, "[" + "0, " * 300 + "0]"),
)
# replies without a complete call
PROSE: tuple[str, ...] = (
    *_TEXTS["prose"],
    *("<tool_call>" * 200, "</think>" * 200, "```python\n" * 100),
    *("<think>" * 100 + "</think>" * 100, '{"a":' * 500, "[" * 5_000),
    *("\\" * 999, "ha " * 3_000, "0" * 5_000),
)


# Replies that contain a call in broken or slightly wrong syntax, for each dialect.
_CALLS = tuple(map(Template, _TEXTS["calls"]))


def replies(tool: str, arguments: str) -> tuple[str, ...]:
    """Return replies that contain a call with these JSON arguments, and replies without calls."""
    body = f'{{"name": "{tool}", "arguments": {arguments}}}'
    call = f"<tool_call>{body}</tool_call>"
    inside = _MEMBER.sub(r"\1=", arguments[1:-1])
    words = {
        "tool": tool,
        "upper": tool.upper(),
        "arguments": arguments,
        "body": body,
        "call": call,
        "flood": "\n".join([call] * 140),
        "fence": f"```python\n{tool}({inside})\n```",
    }
    return (*PROSE, *(template.substitute(words) for template in _CALLS))
