"""Parse tool calls from model replies, and render calls as text.

In the dialect `python`, a reply contains one call in a ```` ```python ```` block (LUMINA, appendix
A). In `json`, a reply contains one or more `<tool_call>{"name": …, "arguments": …}</tool_call>`
(Hermes and Qwen). `auto` accepts either. In `json` and `auto`, a single call may instead stand
alone or in a ```` ```json ```` block, and the arguments may be a JSON string (OpenAI). Parsing
never raises, takes linear time and evaluates no code.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from agentgym.text.messages import Message, ToolCall
from agentgym.text.tools import MAX_CALL_CHARS, MAX_DEPTH, Tool, ToolError, check_jsonable, echo

Dialect = Literal["auto", "json", "python"]
DIALECTS: tuple[str, ...] = get_args(Dialect)

# A longer reply is truncated in the log, and its calls do not run.
MAX_REPLY_CHARS = 1_000_000
# Maximum thoughts and calls per reply; no env executes this many calls.
MAX_BLOCKS = 1_024
# Maximum lists and objects per call; parsing is slow, and no office tool accepts more.
MAX_CONTAINERS = 10_000
MAX_TOKENS = 10_000  # maximum names, values and symbols in a Python call
# The result of `explain` starts with this prefix if the reply does not attempt a call.
NO_CALL = "no tool call found"

_MAX_PLAIN_CHARS = 32_768  # msgspec does not limit the length of numbers

_OPENER = re.compile(r"<think>|</think>|<tool_call>|```python[ \t]*\n?")
# Matches nearly every reply: at most one thought, some prose, one call in a tag, and no other tag.
_COMMON = re.compile(
    r"(?:<think>((?:[^<]++|<(?![/t]))*+)</think>)?+((?:[^<`]++|<(?![/t]))*+)"
    r"<tool_call>([^<]*+)</tool_call>\s*+"
)
# Matches the start of a JSON call without a tag; JSON that starts with another key is prose.
_UNTAGGED = re.compile(r'\s*\{\s*"(?:name|arguments)"\s*:')
_CLOSER = {"<think>": "</think>", "<tool_call>": "</tool_call>"}
_FENCE = "```"
_LITERALS = "a block must contain one call whose arguments are Python literals"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALL = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*\((.*)\)\s*", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<key>[A-Za-z_][A-Za-z0-9_]*)\s*=
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<string>\"\"\"(?:[^\\"]++|\\.|"(?!""))*+\"\"\"|\'\'\'(?:[^\\']++|\\.|'(?!''))*+\'\'\'
    |"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+')
  | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_.])
  | (?P<sign>[\[\]{}:,])
  )""",
    re.VERBOSE | re.DOTALL,
)
# Finds the next bracket outside strings; an unclosed string extends to the end.
_BRACKET = re.compile(r'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+(?:"|\\?\Z))*+([\[\]{}])', re.DOTALL)
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}


class _Unreadable(ValueError):
    """Error for a reply without a readable call; the message explains why."""


class _PlainCall(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any]


_decode_plain = msgspec.json.Decoder(_PlainCall).decode


def parse(
    text: str, dialect: Dialect = "auto", tools: Sequence[Tool] = (), turn: int = 0
) -> Message:
    """Return a reply as an assistant message, without calls if any of them is unreadable.

    `tools` provides the names of positional arguments in a Python call; each call id
    contains `turn`.
    """
    # This shortcut halves the parsing time of each step.
    is_short = len(text) <= _MAX_PLAIN_CHARS and text.isascii()
    if is_short and dialect != "python" and (common := _COMMON.fullmatch(text)):
        thought, prose, body = common.groups("")
        if call := _plain_call(body, f"call_{turn}_0"):
            thought, prose = thought.strip(), prose.strip()
            return Message("assistant", prose, thought, (call,), "", (), f"{turn}:0", text)
    return _read(text, dialect, tools, turn)[0]


def explain(text: str, dialect: Dialect = "auto", tools: Sequence[Tool] = ()) -> str:
    """Explain to the model why `parse` finds no call."""
    return _read(text, dialect, tools, 0)[1]


def render(call: ToolCall, dialect: Dialect = "auto") -> str:
    """Return a call as text that `parse` can read."""
    if dialect == "python":
        pairs = [f"{name}={_python_literal(value)}" for name, value in call.arguments.items()]
        return f"```python\n{call.name}({', '.join(pairs)})\n```"
    body = json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
    return "<tool_call>\n" + body.replace("</", "<\\/") + "\n</tool_call>"


def _read(text: str, dialect: Dialect, tools: Sequence[Tool], turn: int) -> tuple[Message, str]:
    raw, problem = _as_unicode(text)
    prose, thinking, fences, tags, defect = _scan(raw)
    calls: tuple[ToolCall, ...] = ()
    if dialect == "python":
        tags = []
    elif dialect == "json":
        fences = []
    problem = problem or defect
    if not problem and not fences and not tags and dialect != "python":
        prose, tags = _split_untagged(prose)
    if not problem and len(fences) + len(tags) != 1:
        problem = _find_conflict(fences, tags, dialect)
    if not problem:
        try:
            if fences:
                tags = [_python_to_json(fences[0], tools)]
            calls = tuple([_call(body, f"call_{turn}_{k}") for k, body in enumerate(tags)])
        except (_Unreadable, ToolError) as error:
            problem = str(error)
    message = Message("assistant", prose.strip(), thinking, calls, "", (), f"{turn}:0", raw)
    return message, problem


def _find_conflict(fences: list[str], tags: list[str], dialect: Dialect) -> str:
    if fences and tags:
        return "the reply mixes ```python and <tool_call>: write all calls in one form"
    if len(fences) > 1:
        return f"the reply has {len(fences)} ```python blocks: write exactly one"
    if not fences and not tags:
        return f"{NO_CALL}: {_form(dialect)}"
    return ""


def _split_untagged(prose: str) -> tuple[str, list[str]]:
    if _UNTAGGED.match(prose):
        return "", [prose]
    if prose.count("```json") == 1:
        before, _, rest = prose.partition("```json")
        body, fence, after = rest.partition(_FENCE)
        if fence and _UNTAGGED.match(body):
            return before + after, [body]
    return prose, []


def _as_unicode(text: str) -> tuple[str, str]:
    if len(text) <= MAX_REPLY_CHARS and text.isascii():
        return text, ""
    clean = text[:MAX_REPLY_CHARS].encode("utf-8", "replace").decode("utf-8")
    if len(text) > MAX_REPLY_CHARS:
        return clean, f"the reply is longer than {MAX_REPLY_CHARS} characters"
    return clean, "" if clean == text else "the reply is not valid Unicode (lone surrogate)"


def _scan(raw: str) -> tuple[str, str, list[str], list[str], str]:
    prose: list[str] = []
    thinking: list[str] = []
    fences: list[str] = []
    tags: list[str] = []
    position = blocks = 0
    defect = ""
    while position < len(raw) and (opener := _OPENER.search(raw, position)):
        blocks += 1
        if blocks > MAX_BLOCKS:
            defect = f"the reply has more than {MAX_BLOCKS} thoughts and calls; none was run"
            break
        mark = opener[0]
        begin, start = opener.span()
        if mark == "</think>":
            # If the chat template wrote the opening tag, everything before the closing tag is
            # thinking.
            prose, fences, tags = [], [], []
            thinking = [raw[:begin].replace("<think>", "").replace("</think>", "")]
            position = start
            continue
        if begin > position:
            prose.append(raw[position:begin])
        closer = _CLOSER.get(mark, _FENCE)
        end = raw.find(closer, start)
        is_open = end < 0
        if is_open:
            end = len(raw)
        body = raw[start:end]
        position = end + len(closer)
        if mark == "<think>":
            thinking.append(body)
        elif is_open:
            defect = f"a call was opened but not closed: end it with {closer}"
            break
        elif mark == "<tool_call>":
            tags.append(body)
        else:
            fences.append(body)
    prose.append(raw[position:])
    return "".join(prose), "\n".join(thinking).strip(), fences, tags, defect


def _form(dialect: Dialect) -> str:
    python, tag = "write one call in a ```python block", "write <tool_call>{…}</tool_call>"
    return {"python": python, "json": tag}.get(dialect, f"{tag} or {python}")


def _call(body: str, call_id: str) -> ToolCall:
    if len(body) <= _MAX_PLAIN_CHARS and (call := _plain_call(body, call_id)):
        return call
    data = _load(body.strip())
    is_call = isinstance(data, dict) and not data.keys() - {"name", "arguments"}
    if not is_call or not isinstance(data.get("name"), str):
        raise _Unreadable('a call must be a JSON object {"name": "<tool>", "arguments": {…}}')
    name, arguments = data["name"], data.get("arguments", {})
    if not _NAME.fullmatch(name):
        raise _Unreadable(f"a tool name must be ASCII letters, digits and _, got {echo(name)}")
    if isinstance(arguments, str):
        arguments = _load(arguments.strip())
    if not isinstance(arguments, dict):
        raise _Unreadable(f'"arguments" must be a JSON object, got {echo(arguments)}')
    if "\\u" in body or "\0" in body or not body.isascii():
        check_jsonable({name: arguments})
    return ToolCall(name, arguments, call_id)


def _plain_call(body: str, call_id: str) -> ToolCall | None:
    """Read a call with msgspec; return None if `_call` must check the call.

    msgspec silently keeps only the last of several members with one name. To detect repeated names,
    the function compares the number of colons in the JSON text and in the dict.
    """
    if "\\u" in body or body.count("{") + body.count("[") > MAX_DEPTH:
        return None
    try:
        plain = _decode_plain(body)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    name, arguments = plain.name, plain.arguments
    colons = body.count(":") - 2
    if colons != len(arguments) and colons != str(arguments).count(":"):
        return None
    if not (name.isascii() and name.isidentifier()):
        return None
    return ToolCall(name, arguments, call_id)


def _load(body: str) -> Any:
    if len(body) > MAX_CALL_CHARS:
        raise _Unreadable(f"a call may have at most {MAX_CALL_CHARS} characters, got {len(body)}")
    if body.count("[") + body.count("{") > MAX_DEPTH:
        _check_containers(body)
    try:
        data, end = _DECODER.raw_decode(body)
    except ToolError:
        raise
    except ValueError as error:  # invalid JSON, or an integer with more than 4,300 digits
        raise _Unreadable(f"a call is not valid JSON: {error.args[0][:120]}") from None
    if end != len(body):
        raise _Unreadable(f"unexpected text after a call: {echo(body[end : end + 60])}")
    return data


def _brackets(body: str) -> Iterator[int]:
    position = 0
    while match := _BRACKET.match(body, position):
        yield 1 if match[1] in "[{" else -1
        position = match.end()


def nesting_depth(body: str) -> int:
    """Return the nesting depth of a JSON text, in linear time."""
    return max(itertools.accumulate(_brackets(body), initial=0))


def _check_containers(body: str) -> None:
    depth = count = 0
    for step in _brackets(body):
        depth += step
        count += step > 0
        if depth > MAX_DEPTH:
            raise _Unreadable(f"a call may nest at most {MAX_DEPTH} levels deep")
        if count > MAX_CONTAINERS:
            raise _Unreadable(f"a call may contain at most {MAX_CONTAINERS} lists and objects")


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
    if len(fence) > MAX_CALL_CHARS:
        raise _Unreadable(f"a call may have at most {MAX_CALL_CHARS} characters, got {len(fence)}")
    call = _CALL.fullmatch(fence)
    if call is None:
        raise _Unreadable(
            "a ```python block must contain exactly one call, such as tool_name(argument=value)"
        )
    name, inside = call.groups()
    return f'{{"name": "{name}", "arguments": {{{_arguments(inside, name, tools)}}}}}'


def _arguments(inside: str, tool: str, tools: Sequence[Tool]) -> str:
    out: list[str] = []
    depth = count = 0
    expects_argument = True
    for kind, value in _tokens(inside):
        if kind == "key" and depth:
            raise _Unreadable("= may only follow an argument's name")
        if expects_argument and depth == 0:
            out.append(f'"{value}":' if kind == "key" else _positional(count, tool, tools))
            count += 1
        expects_argument = value == "," and depth == 0
        if kind == "sign":
            depth += (value in "[{") - (value in "]}")
            if depth > MAX_DEPTH:
                raise _Unreadable(f"a call may nest at most {MAX_DEPTH} levels deep")
            if value in "]}" and out[-1] == ",":
                out.pop()  # Python allows a comma before the bracket, but JSON does not
        if kind != "key":
            out.append(_json_token(kind, value))
    if out and out[-1] == ",":
        out.pop()
    return " ".join(out)  # without spaces, adjacent numbers would merge


def _tokens(inside: str) -> Iterator[tuple[str, str]]:
    position = 0
    end = len(inside.rstrip())
    for _ in range(MAX_TOKENS):
        if position >= end:
            return
        token = _TOKEN.match(inside, position)
        if token is None:
            raise _Unreadable(f"cannot read {echo(inside[position : position + 40])}: {_LITERALS}")
        position = token.end()
        kind = str(token.lastgroup)
        yield kind, token[kind]
    if position < end:
        raise _Unreadable(f"a call may contain at most {MAX_TOKENS} names, values and symbols")


def _json_token(kind: str, value: str) -> str:
    if kind == "string":
        return json.dumps(_unquote(value))
    if kind == "name":
        if value not in _CONSTANTS:
            raise _Unreadable(f"cannot read {value[:40]}: {_LITERALS}")
        return _CONSTANTS[value]
    return value


def _positional(count: int, tool: str, tools: Sequence[Tool]) -> str:
    for each in tools:
        if each.name == tool:
            names = list(each.parameters.get("properties", ()))
            if count < len(names):
                return f'"{names[count]}":'
    raise _Unreadable("write arguments by name: tool_name(argument=value)")


def _unquote(literal: str) -> str:
    width = 3 if literal[:3] in ('"""', "'''") else 1
    body = literal[width:-width]
    return _ESCAPE.sub(_unescape, body) if "\\" in body else body


def _unescape(escape: re.Match[str]) -> str:
    if digits := escape[1] or escape[2]:
        return chr(int(digits, 16))
    character = escape[3]
    if character in _ESCAPES:
        return _ESCAPES[character]
    return character if character in "\\'\"/`" else escape[0]


def _python_literal(value: Any) -> str:
    # Escape backquotes, which would close the block.
    if isinstance(value, Mapping):
        items = [f"{_python_literal(k)}: {_python_literal(v)}" for k, v in value.items()]
        return f"{{{', '.join(items)}}}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_python_literal, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("`", "\\x60")
    return repr(value)
