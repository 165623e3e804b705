"""Building blocks of pages."""

from __future__ import annotations

import base64
import html
import inspect
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from docstring_parser import DocstringStyle
from docstring_parser import parse as parse_docstring

from agentgym import Message, Tool
from agentgym.play.rendering import draw_text
from agentgym.text.messages import pillow

_SECTION = re.compile(
    r"\n+(?:Args|Attributes|Example|Examples|Raises|Returns|Yields):\n.*", re.DOTALL
)


# Maximum number of lines shown of a message; JSON with one value per line would fill a page.
_LINES = 16


def cut(text: str, limit: int) -> str:
    """Truncate a string and append the number of omitted characters."""
    head = "\n".join(text.split("\n")[:_LINES])[:limit]
    if head == text:
        return text
    end = len(head) if text[len(head)].isspace() else max(head.rfind("\n"), head.rfind(" "))
    end = max(end, limit // 2) if len(head) == limit else end
    return f"{head[:end].rstrip()} … [{len(text) - end:,} more characters]"


def raw_html(text: str) -> str:
    """Return HTML in a code fence, with backticks escaped."""
    return f"```{{raw}} html\n{text.replace('`', '&#96;')}\n```\n"


def chat_block(parts: Iterable[Message | str], limit: int = 900) -> str:
    rows = [
        f'<p class="gap">{html.escape(part)}</p>'
        if isinstance(part, str)
        else _message(part, limit)
        for part in parts
    ]
    return raw_html('<div class="chat">\n' + "\n".join(rows) + "\n</div>")


def _message(message: Message, limit: int) -> str:
    text = html.escape(cut((message.raw or message.text).strip(), limit))
    # The HTML contains no blank lines, which would end an HTML block in Markdown.
    images = "".join(
        f'<img alt="{html.escape(image.alt)}" '
        f'src="data:image/png;base64,{base64.b64encode(image.png).decode("ascii")}">'
        for image in message.images
    )
    return (
        f'<div class="message {message.role}"><span class="role">{message.role}</span>'
        f"<pre>{text}</pre>{images}</div>"
    )


def board_block(boards: Sequence[tuple[str, str]]) -> str:
    figures = "".join(
        f"<figure>{_picture(board)}<figcaption>{html.escape(caption)}</figcaption></figure>"
        for caption, board in boards
    )
    return raw_html(f'<div class="boards">{figures}</div>')


def _picture(board: str) -> str:
    pixels, buffer = draw_text(board), io.BytesIO()
    pillow("PIL.Image").fromarray(pixels).save(buffer, "PNG", optimize=True)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    text = html.escape(board).replace("\n", "&#10;")
    return f'<img alt="{text}" width="{pixels.shape[1] // 2}" src="data:image/png;base64,{data}">'


def describe(item: Any) -> str:
    return _SECTION.sub("", inspect.getdoc(item) or "")


def cell(text: str) -> str:
    """Return a string as a table cell, with Markdown escaped outside backticks."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("$", "\\$")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tools_table(tools: Iterable[Tool]) -> str:
    rows = [
        (
            f"`{tool.name}`",
            cell(tool.description),
            "<br>".join(_parameters(tool)),
        )
        for tool in tools
    ]
    return table(("tool", "meaning", "parameters"), rows)


def _parameters(tool: Tool) -> Iterable[str]:
    required = tool.parameters.get("required", ())
    for name, schema in tool.parameters.get("properties", {}).items():
        optional = "" if name in required else f", default `{schema.get('default')!r}`"
        text = cell(schema.get("description", ""))
        yield f"`{name}` ({_type(schema)}{cell(optional)}){': ' if text else ''}{text}"


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def arguments_table(wrapper: type[Any]) -> str:
    document = parse_docstring(inspect.getdoc(wrapper) or "", style=DocstringStyle.GOOGLE)
    meanings = {
        item.arg_name: item.description for item in document.params if item.args[0] == "param"
    }
    rows = []
    for parameter in inspect.signature(wrapper).parameters.values():
        if parameter.name == "env" or parameter.kind is parameter.VAR_KEYWORD:
            continue
        default = "" if parameter.default is parameter.empty else f"`{parameter.default!r}`"
        rows.append(
            (f"`{parameter.name}`", cell(default), cell(meanings.get(parameter.name) or ""))
        )
    return (
        table(("argument", "default", "meaning"), rows) if rows else "No arguments but the env.\n"
    )


def index_page(title: str, text: str, names: Iterable[str]) -> str:
    lines = "\n".join(names)
    return f"# {title}\n\n{text}\n\n```{{toctree}}\n:maxdepth: 1\n:hidden:\n\n{lines}\n```\n"
