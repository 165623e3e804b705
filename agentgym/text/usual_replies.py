"""Fast reading of replies of the usual forms, which are nearly all that a model writes.

A reply is read here if it holds at most one thought, prose, and calls that are well formed. Anything
else, and anything that is wrong with a reply, is left to `agentgym.text.parsing`, which reads every text
and says what is wrong with it. Both give the same message for each reply that is read here.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec

from agentgym.text.messages import Message, ToolCall
from agentgym.text.tools import MAX_DEPTH

MAX_CHARS = 32_768
"""Characters of the longest reply that is read here: an eighth of what a call may have, since the
full reading measures some calls by how their numbers are written out, which is up to four times as
long.
"""
MAX_CALLS = 16
"""Calls of a reply that are read here: no model writes more by intent."""
MAX_ARGUMENTS = 64
"""Arguments of a Python call that are read here: no tool takes as many."""

_THINK, _END_THINK = "<think>", "</think>"
_CALL, _END_CALL = "<tool_call>", "</tool_call>"
_FENCE, _PYTHON = "```", "```python"

# Quantifiers are possessive, so that a text that does not match is read once. Integers of more than
# 18 digits are left to the full reading, which limits them.
_WORD = "[A-Za-z_][A-Za-z0-9_]*+"
_STRING = r"""\"[^"\\\n\0-\x1f]*+"|'[^'\\\n\0-\x1f]*+'"""
_VALUE = rf"-?(?:0|[1-9][0-9]{{0,17}})(?![A-Za-z0-9_.])|True|False|None|{_STRING}"
_PAIR = rf"{_WORD}\s*+=\s*+(?:{_VALUE})\s*+"
_PYTHON_CALL = re.compile(
    rf"\s*+({_WORD})\s*+\(\s*+((?:{_PAIR}(?:,\s*+{_PAIR})*+(?:,\s*+)?+)?+)\)\s*+```"
)
_PYTHON_PAIR = re.compile(rf"({_WORD})\s*+=\s*+({_VALUE})")
_CONSTANTS = {"True": True, "False": False, "None": None}


class _JsonCall(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any]


_Calls = tuple[ToolCall, ...]
_decode = msgspec.json.Decoder(_JsonCall).decode


def read_usual(text: str, dialect: str, turn: int) -> Message | None:
    """Read a reply of a usual form; None if it is of another form or anything is wrong with it.

    Args:
        text: The reply.
        dialect: `auto`, `json` or `python`.
        turn: The turn of the message, for its id and those of its calls.
    """
    if len(text) > MAX_CHARS or not (text.isascii() or _is_unicode(text)):
        return None
    message_id, call_id = _ids(turn)
    if dialect != "python" and _CALL in text:
        prose, _, body = text.partition(_CALL)
        body, end, rest = body.partition(_END_CALL)
        calls = _read_json(body, call_id) if end else ()
        if rest and calls:
            more, rest = _read_more(rest, turn)
            calls += more
    elif dialect != "json":
        prose, _, body = text.partition(_PYTHON)
        calls, rest = _read_fence(body, call_id)
    else:
        return None
    if not calls or (rest and _holds_mark(rest)):
        return None
    thinking = ""
    if prose:
        thinking, prose, is_usual = _split_thought(prose)
        if not is_usual:
            return None
    return Message("assistant", (prose + rest).strip(), thinking, calls, "", (), message_id, text)


def _split_thought(text: str) -> tuple[str, str, bool]:
    """Split the text before a call into the thought, the prose around it, and whether there is no
    more in it than that.
    """
    if "<" not in text:
        return "", text, _PYTHON not in text
    thought, end, prose = text.partition(_END_THINK)
    if not end:
        return "", text, not _holds_mark(text)
    before, start, thinking = thought.partition(_THINK)
    if not start:  # the template has opened the thought, and all before its end belongs to it
        before, thinking, outside = "", thought, thought
    else:
        outside = before
    prose = before + prose
    return thinking.strip(), prose, not (_holds_mark(outside) or _holds_mark(prose))


def _read_more(text: str, turn: int) -> tuple[_Calls, str]:
    """Read the calls in tags behind the first one; return them and the prose around them. The prose
    has a mark in it if any call is not plain.
    """
    calls: _Calls = ()
    outside = ""
    while _CALL in text and len(calls) < MAX_CALLS:
        prose, _, rest = text.partition(_CALL)
        body, end, rest = rest.partition(_END_CALL)
        call = _read_json(body, f"call_{turn}_{len(calls) + 1}") if end else ()
        if not call:
            break
        calls += call
        outside, text = outside + prose, rest
    return calls, outside + text


def _read_fence(text: str, call_id: str) -> tuple[_Calls, str]:
    """Read the call in a Python fence; return it and the text behind the fence."""
    match = _PYTHON_CALL.match(text)
    if match is None:
        return (), ""
    name, inside = match.groups()
    if _FENCE in inside:  # a fence in a text ends the code
        return (), ""
    pairs = _PYTHON_PAIR.findall(inside)
    arguments = {key: _python_value(value) for key, value in pairs}
    if len(arguments) != len(pairs) or len(pairs) > MAX_ARGUMENTS:
        return (), ""
    return (ToolCall(name, arguments, call_id),), text[match.end() :]


def _is_unicode(text: str) -> bool:
    """Return whether a text holds no lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _holds_mark(text: str) -> bool:
    """Return whether a thought or a call begins or ends in a text."""
    return _PYTHON in text or (
        "<" in text and (_THINK in text or _CALL in text or _END_THINK in text)
    )


def _read_json(body: str, call_id: str) -> _Calls:
    """Read a call from its JSON text; none if it is not a plain one.

    The decoder takes the last of two members of one name. That no name is given twice shows in the
    colons: each member has one, and those in texts can be counted where none is escaped.
    """
    if "\\u" in body or (len(body) > MAX_DEPTH and body.count("{") + body.count("[") > MAX_DEPTH):
        return ()
    try:
        call = _decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()
    name, arguments = call.name, call.arguments
    if not (name.isascii() and name.isidentifier()):
        return ()
    colons = body.count(":") - 2  # those of `name` and `arguments`
    # Python writes a dict with a colon for each member too, and texts with the colons they have.
    if colons != len(arguments) and colons != str(arguments).count(":"):
        return ()
    return (ToolCall(name, arguments, call_id),)


def _python_value(literal: str) -> Any:
    if literal[0] in "\"'":
        return literal[1:-1]
    return _CONSTANTS[literal] if literal in _CONSTANTS else int(literal)


@functools.lru_cache(maxsize=4096)  # more turns than an episode has
def _ids(turn: int) -> tuple[str, str]:
    """Return the ids of the assistant message of a turn and of its first call."""
    return f"{turn}:0", f"call_{turn}_0"
