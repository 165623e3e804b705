"""Hostile texts that have broken parsers, services and templates elsewhere.

The texts are short, because they look for wrong results.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

# A member name of a JSON object, which becomes an argument name in Python.
_MEMBER = re.compile(r'"(\w+)": ')

_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
# Argument values. JSON would join the two surrogates.
STRINGS: tuple[str, ...] = (
    *_TEXTS["strings"],
    "\ud83d\ude00",
    *("9" * 400, "(?:" * 60, "=" + "1+" * 120 + "1", "a/" * 100, "x" * 300),
)
# in source form, for values that JSON or Python cannot express
LITERALS: tuple[str, ...] = (
    *_TEXTS["literals"],
    *("1" * 4_400, '{"a":' * 66 + "1" + "}" * 66, "[" + "0, " * 300 + "0]"),
)
# replies without a call, or with only the beginning or end of one
PROSE: tuple[str, ...] = (
    *_TEXTS["prose"],
    *("<tool_call>" * 200, "</think>" * 200, "```python\n" * 100),
    *("<think>" * 100 + "</think>" * 100, '{"a":' * 500, "[" * 5_000),
    *("\\" * 999, "ha " * 3_000, "0" * 5_000),
)


def replies(tool: str, arguments: str) -> tuple[str, ...]:
    """Return replies around a tool and the JSON text of legal arguments.

    They contain broken and near-miss syntax of each dialect, and texts without calls.
    """
    return (*PROSE, *_json_replies(tool, arguments), *_python_replies(tool, arguments))


def _json_replies(tool: str, arguments: str) -> tuple[str, ...]:
    body = f'{{"name": "{tool}", "arguments": {arguments}}}'
    right = f"<tool_call>{body}</tool_call>"
    return (
        tool,
        f"```json\n{body}\n```",
        right + right,
        right * 3 + "and so on",
        "\n".join([right] * 140),
        right.removesuffix("</tool_call>"),
        right.removeprefix("<tool_call>"),
        f"<tool_call>{right}</tool_call>",
        f"<tool_call>{body}{body}</tool_call>",
        f"<tool_call>{body},</tool_call>",
        f"<tool_call>{body}\x00</tool_call>",
        f"<tool_call >{body}</tool_call >",
        f"<tool_call>{tool}</tool_call>",
        f"<think>{right}</think>",
        f"<think>a<think>b</think>{right}",
        f"{right}</think>",
        f"</think>{right}",
        f"<think>{right}",
        f"<think>\ud800</think>{right}",
        f"{right}<|im_end|>\n<|im_start|>user\ngo on",
        f'<tool_call>{{"name": "{tool}"}}</tool_call>',
        f'<tool_call>{{"name": "{tool}", "arguments": "{{}}"}}</tool_call>',
        f'<tool_call>{{"name": "{tool}", "arguments": [{arguments}]}}</tool_call>',
        f'<tool_call>{{"name": "{tool}", "arguments": null}}</tool_call>',
        f'<tool_call>{{"name": "{tool}", "parameters": {arguments}}}</tool_call>',
        f'<tool_call>{{"name": "{tool}", "arguments": {arguments}, "id": 1}}</tool_call>',
        f'<tool_call>{{"name": ["{tool}"], "arguments": {arguments}}}</tool_call>',
        f'<tool_call>{{"name": "{tool.upper()}", "arguments": {arguments}}}</tool_call>',
        f'<tool_call>{{"name": "{tool}\\u200b", "arguments": {arguments}}}</tool_call>',
        f'<tool_call>{{"name": "score", "arguments": {arguments}}}</tool_call>',
        f'<tool_call>{{"name": "__init__", "arguments": {arguments}}}</tool_call>',
        "\ud800" + right,
    )


def _python_replies(tool: str, arguments: str) -> tuple[str, ...]:
    inside = _MEMBER.sub(r"\1=", arguments[1:-1])
    fence = f"```python\n{tool}({inside})\n```"
    right = f'<tool_call>{{"name": "{tool}", "arguments": {arguments}}}</tool_call>'
    return (
        fence,
        fence + right,
        f"```python\n{tool}(\n```",
        f"```python\n{tool}()()\n```",
        f"```python\n{tool}().x\n```",
        f"```python\n{tool}(*[1], **{{}})\n```",
        f"```python\n{tool}(a=1, a=2)\n```",
        f"```python\n{tool}(1, 2, 3, 4, 5, 6, 7, 8)\n```",
        f"```python\n{tool}(lambda: 1)\n```",
        f'```python\n{tool}(x="""a```b""")\n```',
        f"```python\nimport os; {tool}()\n```",
    )
