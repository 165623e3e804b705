"""Conversion of chat-completions answers to replies.

Variants of the format are accepted; anything else raises `AnswerError`, and no server answer raises
anything else.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from agentgym.play.policy import Reply
from agentgym.text.parsing import Dialect, parse, render
from agentgym.training.rollout.token_usage import EndpointUsage

MAX_DIGITS = 4_000
"""Maximum digits of exactly parsed integers; Python refuses to parse 4,301."""
MAX_TOKENS = 10**12
"""Larger token counts are errors: no model has seen as many tokens."""
ROUNDING = 0.01
"""Nats by which a log-probability may exceed 0 because of rounding in bfloat16."""
QUOTED = 300
"""Characters of an answer quoted in errors."""
_SURROGATES = re.compile("[\ud800-\udfff]")


class AnswerError(ValueError):
    """An API answer cannot be read."""


def load_answer(text: str) -> Any:
    """Parse the body of an answer.

    Raises:
        AnswerError: The body is not the JSON of a chat completion, or reports an error.
    """
    answer = load_json(text)
    choice = dig(answer, "choices", 0)
    failed = dig(answer, "error") or dig(choice, "error") or dig(choice, "finish_reason") == "error"
    if failed or not isinstance(dig(choice, "message"), dict):
        raise AnswerError(text[:QUOTED])  # gateways report failed upstream servers like this
    return answer


def load_json(text: str) -> Any:
    """Parse JSON.

    Raises:
        AnswerError: The text is not JSON.
    """
    try:
        return json.loads(text, parse_int=lambda d: int(d) if len(d) <= MAX_DIGITS else float(d))
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"not JSON ({error}): {text[:QUOTED]!r}") from None


def load_json_or_none(text: str) -> Any:
    """Parse JSON; return None if the text is not JSON, as with some errors and confirmations."""
    with suppress(AnswerError):
        return load_json(text)
    return None


def to_reply(answer: Any, dialect: Dialect, *, logprobs: bool = False) -> Reply:
    """Convert an answer to a reply.

    Args:
        answer: The parsed chat completion.
        dialect: Dialect in which native calls are written.
        logprobs: Read the log-probabilities and require them.

    Raises:
        AnswerError: A part is missing or ambiguous.
    """
    choice = dig(answer, "choices", 0)
    message = dig(choice, "message")
    content, thought = _text("content", dig(message, "content"))
    for name in ("reasoning", "reasoning_content"):
        thought = "".join(_text(name, dig(message, name))) or thought
    parts = [
        f"<think>\n{thought}\n</think>" if thought else "",
        content or "".join(_text("refusal", dig(message, "refusal"))),
        *(_call_text(call, dialect) for call in _calls(message)),
    ]
    return Reply(join_parts(parts), logprobs=_logprobs(choice, bool(content)) if logprobs else ())


def join_parts(parts: Sequence[str]) -> str:
    """Join the parts of a reply, replacing lone surrogates, which files cannot store."""
    return _SURROGATES.sub("\ufffd", "\n".join(filter(None, parts)))


def to_usage(answer: Any) -> EndpointUsage:
    """Return an answer's usage; unreadable counts are 0 and increase `unmetered`."""
    usage = dig(answer, "usage")
    prompt, completion = (
        token_count(dig(usage, f"{side}_tokens")) for side in ("prompt", "completion")
    )
    return EndpointUsage(
        replies=1,
        cut=int(dig(answer, "choices", 0, "finish_reason") == "length"),
        prompt_tokens=prompt or 0,
        cached_tokens=token_count(dig(usage, "prompt_tokens_details", "cached_tokens")) or 0,
        completion_tokens=completion or 0,
        reasoning_tokens=token_count(dig(usage, "completion_tokens_details", "reasoning_tokens"))
        or 0,
        unmetered=int(prompt is None or completion is None),
    )


def dig(answer: Any, *path: str | int) -> Any:
    """Return the value at a path of an answer, or None."""
    with suppress(IndexError, KeyError, TypeError):
        return functools.reduce(lambda value, step: value[step], path, answer)
    return None


def _text(name: str, value: Any) -> tuple[str, str]:
    """Return a field's text and the thinking among its parts.

    Args:
        name: Name of the field, for errors.
        value: A text, a part, a list of parts, or None.
    """
    if value is None or isinstance(value, str):
        return value or "", ""
    said: list[str] = []
    thoughts: list[str] = []
    for part in value if isinstance(value, list) else [value]:
        text = part if isinstance(part, str) else _part_text(part)
        if text is None:
            raise AnswerError(f"{name} is {quote(part)}, which is not text")
        (thoughts if dig(part, "type") in ("thinking", "reasoning") else said).append(text)
    return "".join(said), "".join(thoughts)


def _part_text(part: Any) -> str | None:
    """Return the text of a part, or None."""
    for name in ("text", "refusal", "thinking", "reasoning", "content", "summary"):
        value = dig(part, name)
        value = dig(value, "value") if isinstance(value, dict) else value
        if isinstance(value, list):  # thinking may be a list of parts
            value = "".join(text for item in value if isinstance(text := dig(item, "text"), str))
        if isinstance(value, str):
            return value
    return None


def _calls(message: Any) -> Sequence[Any]:
    """Return the native calls of a message, in the current or the older format."""
    calls = dig(message, "tool_calls") or dig(message, "function_call") or []
    if isinstance(calls, dict):
        return [calls]
    if not isinstance(calls, list):
        raise AnswerError(f"tool_calls is {quote(calls)}, which is not a list")
    return calls


def _call_text(call: Any, dialect: Dialect) -> str:
    function = call["function"] if isinstance(dig(call, "function"), dict) else call
    return call_text(dig(function, "name"), dig(function, "arguments"), dialect)


def call_text(name: Any, values: Any, dialect: Dialect) -> str:
    """Return a native call as text for the env; an invalid call is passed on unchanged, so the env
    can report it.

    Args:
        name: The tool's name.
        values: The arguments, as an object or as JSON.
        dialect: Dialect of the text.

    Raises:
        AnswerError: The arguments are nested too deeply.
    """
    try:
        arguments = (
            values if isinstance(values, str) else json.dumps({} if values is None else values)
        )
        named = json.dumps(name)
    except RecursionError:
        raise AnswerError("the arguments of a call are nested too deeply") from None
    body = f'{{"name": {named}, "arguments": {arguments.strip() or "{}"}}}'.replace("</", "<\\/")
    text = f"<tool_call>\n{body}\n</tool_call>"
    calls = parse(text, "json").calls
    return render(calls[0], dialect) if calls else text


def _logprobs(choice: Any, said: bool) -> tuple[float, ...]:
    """Return the log-probabilities of an answer's tokens.

    Args:
        choice: The choice in the answer.
        said: Whether it has text; servers return none for a call.
    """
    tokens = dig(choice, "logprobs", "content")
    if not isinstance(tokens, list) or not tokens:
        if said or tokens:
            raise AnswerError(
                "the answer has no log-probabilities; if the server does not support them, set "
                "logprobs=False"
            )
        return ()
    values = [_number(dig(token, "logprob")) for token in tokens]
    for value, token in zip(values, tokens, strict=True):
        if not math.isfinite(value) or value > ROUNDING:
            raise AnswerError(f"{quote(token)} has no valid log-probability")
    return tuple(min(value, 0.0) for value in values)


def _number(value: Any) -> float:
    """Return a number, also parsed from text; NaN if invalid."""
    with suppress(OverflowError, ValueError):
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            return float(value)
    return math.nan


def token_count(value: Any) -> int | None:
    """Return a token count; None if invalid."""
    number = _number(value)
    return int(number) if 0 <= number <= MAX_TOKENS and number == int(number) else None


def quote(value: Any) -> str:
    """Return the beginning of a value as JSON."""
    with suppress(RecursionError, ValueError):
        return json.dumps(value)[:QUOTED]
    return "a deeply nested value"
