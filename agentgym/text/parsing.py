"""Parsing of tool calls from the replies of a model, and rendering of calls.

Two dialects: `python`, one call in a ```` ```python ```` fence (LUMINA, appendix A), and `json`,
one or several `<tool_call>{"name": …, "arguments": …}</tool_call>` (the Hermes and Qwen form);
`auto` reads either. Reading never raises, takes linear time and evaluates nothing: a Python call is
translated token by token into JSON, so both dialects meet the same limits.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from agentgym.text.messages import Message, ToolCall
from agentgym.text.tools import MAX_CALL_CHARS, MAX_DEPTH, Tool, ToolError, check_jsonable, echo
from agentgym.text.usual_replies import read_usual

Dialect = Literal["auto", "json", "python"]
DIALECTS: tuple[str, ...] = get_args(Dialect)

MAX_REPLY_CHARS = 1_000_000
"""A longer reply is cut to this length in the log, and none of its calls runs; no model writes that
much in one reply.
"""
MAX_BLOCKS = 1_024
"""Thoughts and calls that a reply may hold: more than any env runs, and few enough that reading
them takes no longer than reading prose of the same length.
"""
MAX_CONTAINERS = 10_000
"""Lists and objects in a call: more than any tool of an office takes at once. Each takes hundreds
of times longer to read than a letter.
"""
MAX_TOKENS = 10_000
"""Names, numbers, strings and signs in a Python call, which are read one by one."""
NO_CALL = "no tool call found"
"""The beginning of `explain` where a reply does not even try to call a tool."""

_OPENER = re.compile(r"<think>|</think>|<tool_call>|```python[ \t]*\n?")
_CLOSER = {"<think>": "</think>", "<tool_call>": "</tool_call>"}
_FENCE = "```"
_LITERALS = "a block holds one call, and its arguments are Python literals"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALL = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*\((.*)\)\s*", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<key>\s*=)?
  | (?P<string>\"\"\"(?:[^\\"]++|\\.|"(?!""))*+\"\"\"|\'\'\'(?:[^\\']++|\\.|'(?!''))*+\'\'\'
    |"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+')
  | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_.])
  | (?P<sign>[\[\]{}:,])
  )""",
    re.VERBOSE | re.DOTALL,
)
# A bracket after other text and strings, of which one that is not closed runs to the end.
_BRACKET = re.compile(r'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))*+([\[\]{}])', re.DOTALL)
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}


class _Unreadable(ValueError):
    """The reply holds no call that can be read; the text says why."""


@dataclass
class _ReplyParts:
    """Parts of a reply, collected in one pass.

    Attributes:
        thinking: The bodies of `<think>` blocks.
        text: The prose around all blocks.
        fences: The bodies of Python code blocks.
        tags: The bodies of `<tool_call>` tags.
        open: The missing end of a call that was opened; empty if there is none.
        rest: Whether the reply holds more blocks than are read.
        thinking_end: Where thinking ends that was opened by the template; 0 if it was not.
    """

    thinking: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    fences: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    open: str = ""
    rest: bool = False
    thinking_end: int = 0


def parse(
    text: str, dialect: Dialect = "auto", tools: Sequence[Tool] = (), turn: int = 0
) -> Message:
    """Read a reply. Never raises.

    Args:
        text: What the model wrote.
        dialect: The form in which calls are written.
        tools: The tools on offer; they name the arguments of a Python call that were written by
            position.
        turn: The turn of the message, for its id and those of its calls.

    Returns:
        An assistant message. It has no calls if the reply holds none, or if any of them cannot be
        read: `explain` says why.
    """
    return read_usual(text, dialect, turn) or _read(text, dialect, tools, turn)[0]


def explain(text: str, dialect: Dialect = "auto", tools: Sequence[Tool] = ()) -> str:
    """Return the reason why `parse` reads no call from a reply, in words for the model that wrote
    it; empty if it reads one.
    """
    return _read(text, dialect, tools, 0)[1]


def render(call: ToolCall, dialect: Dialect = "auto") -> str:
    """Return the text of a call, the inverse of `parse`: a fence in the `python` dialect, a
    `<tool_call>` otherwise.
    """
    if dialect == "python":
        arguments = ", ".join(
            f"{name}={_python_literal(value)}" for name, value in call.arguments.items()
        )
        return f"```python\n{call.name}({arguments})\n```"
    body = json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
    return "<tool_call>\n" + body.replace("</", "<\\/") + "\n</tool_call>"


def _read(text: str, dialect: Dialect, tools: Sequence[Tool], turn: int) -> tuple[Message, str]:
    raw, problem = _as_unicode(text)
    parts = _scan(raw)
    calls: tuple[ToolCall, ...] = ()
    if not problem:
        try:
            calls = tuple(_calls(parts, dialect, tools, turn))
        except (_Unreadable, ToolError) as error:
            problem = str(error)
    message = Message(
        "assistant",
        "".join(parts.text).strip(),
        "\n".join(parts.thinking).strip(),
        calls,
        id=f"{turn}:0",
        raw=raw,
    )
    return message, problem


def _as_unicode(text: str) -> tuple[str, str]:
    clean = text[:MAX_REPLY_CHARS].encode("utf-8", "replace").decode("utf-8")
    if len(text) > MAX_REPLY_CHARS:
        return clean, f"the reply is longer than {MAX_REPLY_CHARS} characters"
    return clean, "" if clean == text else "the reply is not valid Unicode (lone surrogate)"


def _scan(raw: str) -> _ReplyParts:
    """Split a reply into thinking, call bodies and text in one pass."""
    parts = _ReplyParts()
    position = blocks = 0
    while opener := _OPENER.search(raw, position):
        blocks += 1
        if blocks > MAX_BLOCKS:
            parts.rest = True
            break
        mark, start = opener.group(), opener.end()
        if mark == "</think>":
            # A template that opens the thinking itself leaves only the closing tag: all before it
            # is thinking.
            parts = _ReplyParts(thinking_end=opener.start())
            position = start
            continue
        parts.text.append(raw[position : opener.start()])
        closer = _CLOSER.get(mark, _FENCE)
        end = raw.find(closer, start)
        is_open = end < 0
        body = raw[start:] if is_open else raw[start:end]
        position = len(raw) if is_open else end + len(closer)
        if mark == "<think>":
            parts.thinking.append(body)
        elif is_open:
            parts.open = closer
        elif mark == "<tool_call>":
            parts.tags.append(body)
        else:
            parts.fences.append(body)
    parts.text.append(raw[position:])
    if parts.thinking_end:
        parts.thinking.insert(
            0, raw[: parts.thinking_end].replace("<think>", "").replace("</think>", "")
        )
    return parts


def _calls(
    parts: _ReplyParts, dialect: Dialect, tools: Sequence[Tool], turn: int
) -> Iterable[ToolCall]:
    fences = parts.fences if dialect != "json" else []
    tags = parts.tags if dialect != "python" else []
    if parts.rest:
        raise _Unreadable(f"the reply has more than {MAX_BLOCKS} thoughts and calls; none was run")
    if parts.open:
        raise _Unreadable(f"a call was opened but not closed: end it with {parts.open}")
    if fences and tags:
        raise _Unreadable("the reply mixes ```python and <tool_call>: write all calls in one form")
    if len(fences) > 1:
        raise _Unreadable(f"the reply has {len(fences)} ```python blocks: write exactly one")
    if not fences and not tags:
        raise _Unreadable(f"{NO_CALL}: {_form(dialect)}")
    bodies = [_python_to_json(fence, tools) for fence in fences] or tags
    return [_call(body, f"call_{turn}_{k}") for k, body in enumerate(bodies)]


def _form(dialect: Dialect) -> str:
    forms = {
        "python": "write one call in a ```python block",
        "json": "write <tool_call>{…}</tool_call>",
    }
    return forms.get(dialect, f"{forms['json']} or {forms['python']}")


def _call(body: str, call_id: str) -> ToolCall:
    """Read one call from its JSON text `{"name": …, "arguments": …}`."""
    data = _load(body.strip())
    if (
        not isinstance(data, dict)
        or set(data) - {"name", "arguments"}
        or not isinstance(data.get("name"), str)
    ):
        raise _Unreadable('a call is a JSON object {"name": "<tool>", "arguments": {…}}')
    name, arguments = data["name"], data.get("arguments", {})
    if not _NAME.fullmatch(name):
        raise _Unreadable(f"a tool name is ASCII letters, digits and _, got {echo(name)}")
    if not isinstance(arguments, dict):
        raise _Unreadable(f'"arguments" is a JSON object, got {echo(arguments)}')
    if "\\u" in body or "\0" in body or not body.isascii():
        check_jsonable(data)
    return ToolCall(name, arguments, call_id)


def _load(body: str) -> Any:
    if len(body) > MAX_CALL_CHARS:
        raise _Unreadable(
            f"a call is {len(body)} characters long, at most {MAX_CALL_CHARS} are allowed"
        )
    if body.count("[") + body.count("{") > MAX_DEPTH:
        _check_containers(body)
    try:
        data, end = _DECODER.raw_decode(body)
    except ToolError:
        raise
    except ValueError as error:  # JSONDecodeError, and int() of more than 4,300 digits
        raise _Unreadable(f"a call is not valid JSON: {error.args[0][:120]}") from None
    if end != len(body):
        raise _Unreadable(f"a call is followed by more text: {echo(body[end : end + 60])}")
    return data


def _brackets(body: str) -> Iterator[int]:
    """Yield 1 for each bracket of a JSON text that opens and -1 for each that closes, but for those
    in strings, in linear time.
    """
    position = 0
    while match := _BRACKET.match(body, position):
        yield 1 if match[1] in "[{" else -1
        position = match.end()


def nesting_depth(body: str) -> int:
    """Return how deep the brackets of a JSON text nest, in linear time.

    Brackets in strings do not count.
    """
    return max(itertools.accumulate(_brackets(body), initial=0))


def _check_containers(body: str) -> None:
    """Refuse a JSON text that nests too deep or holds too many lists and objects."""
    depth = count = 0
    for step in _brackets(body):
        depth += step
        count += step > 0
        if depth > MAX_DEPTH:
            raise _Unreadable(f"a call nests deeper than {MAX_DEPTH}")
        if count > MAX_CONTAINERS:
            raise _Unreadable(f"a call holds more than {MAX_CONTAINERS} lists and objects")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        duplicate = next(name for name, count in counts.items() if count > 1)
        raise _Unreadable(f"{echo(duplicate)} is given twice")
    return data


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _Unreadable(f"a number must be finite, got {text[:40]}")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)


def _python_to_json(fence: str, tools: Sequence[Tool]) -> str:
    """Translate the one call in a fence into the JSON form, token by token."""
    if len(fence) > MAX_CALL_CHARS:
        raise _Unreadable(
            f"a call is {len(fence)} characters long, at most {MAX_CALL_CHARS} are allowed"
        )
    call = _CALL.fullmatch(fence)
    if call is None:
        raise _Unreadable(
            "a ```python block holds exactly one call, such as tool_name(argument=value)"
        )
    name, inside = call.groups()
    parameters = next(
        (list(tool.parameters.get("properties", ())) for tool in tools if tool.name == name), []
    )
    return f'{{"name": "{name}", "arguments": {{{_arguments(inside, parameters)}}}}}'


def _arguments(inside: str, parameters: Sequence[str]) -> str:
    """Translate the arguments between the parentheses of a Python call into the members of a JSON
    object.
    """
    out: list[str] = []
    count = 0
    expecting = True
    for token, outside, depth in _tokens(inside):
        if outside == 0 and expecting:
            out.append(_key(token, count, parameters))
            count += 1
        expecting = token["sign"] == "," and outside == 0
        if token["sign"] in ("]", "}") and out[-1] == ",":
            out.pop()  # Python allows a comma before the bracket, JSON does not
        out.append(_to_json(token, depth))
    if out and out[-1] == ",":
        out.pop()
    return " ".join(out)  # apart, lest two numbers with nothing between them become one


def _tokens(inside: str) -> Iterator[tuple[re.Match[str], int, int]]:
    """Yield the tokens of the arguments, each with the depth of brackets before and after it."""
    depth = position = count = 0
    end = len(inside.rstrip())
    while position < end:
        token = _TOKEN.match(inside, position)
        if token is None:
            raise _Unreadable(f"cannot read {echo(inside[position : position + 40])}: {_LITERALS}")
        position, outside = token.end(), depth
        count += 1
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token["sign"] or "", 0)
        if depth > MAX_DEPTH:
            raise _Unreadable(f"a call nests deeper than {MAX_DEPTH}")
        if count > MAX_TOKENS:
            raise _Unreadable(f"a call holds more than {MAX_TOKENS} names, values and signs")
        yield token, outside, depth


def _key(token: re.Match[str], count: int, parameters: Sequence[str]) -> str:
    if token["key"]:
        return f'"{token["name"]}":'
    if count >= len(parameters):
        raise _Unreadable("write arguments by name: tool_name(argument=value)")
    return f'"{parameters[count]}":'


def _to_json(token: re.Match[str], depth: int) -> str:
    if token["key"]:
        if depth:
            raise _Unreadable("= may only follow the name of an argument")
        return ""
    if token["name"]:
        if token["name"] not in _CONSTANTS:
            raise _Unreadable(f"cannot read {token['name'][:40]}: {_LITERALS}")
        return _CONSTANTS[token["name"]]
    if token["string"]:
        return json.dumps(_unquote(token["string"]))
    return token["number"] or token["sign"]


def _unquote(literal: str) -> str:
    width = 3 if literal[:3] in ('"""', "'''") else 1
    body = literal[width:-width]
    return _ESCAPE.sub(_unescape, body) if "\\" in body else body


def _unescape(escape: re.Match[str]) -> str:
    if digits := escape[1] or escape[2]:
        return chr(int(digits, 16))
    return _ESCAPES.get(escape[3], escape[3] if escape[3] in "\\'\"/`" else escape[0])


def _python_literal(value: Any) -> str:
    """Return a JSON value as a Python literal that `parse` reads back and that cannot close the
    fence.
    """
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{_python_literal(k)}: {_python_literal(v)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_python_literal, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("`", "\\x60")
    return repr(value)
