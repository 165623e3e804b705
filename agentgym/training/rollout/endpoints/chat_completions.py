"""Answers of a chat-completions server, read as replies.

What is plain is read, in whatever form a server puts it; anything else is an `AnswerError`. Nothing
that a server sends raises another exception.
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
"""Digits of an integer that is read exactly; Python refuses to read 4,301."""
MAX_TOKENS = 10**12
"""A count of tokens beyond this is a fault: no model has ever seen as many."""
ROUNDING = 0.01
"""Nats by which a log-probability may be above 0: that of a sure token, in bfloat16."""
QUOTED = 300
"""Characters of an answer in an error: enough to recognise the server that wrote it."""
_SURROGATES = re.compile("[\ud800-\udfff]")


class AnswerError(ValueError):
    """An answer of an API cannot be read."""


def load_answer(text: str) -> Any:
    """Return the body of an answer as plain data.

    Raises:
        AnswerError: It is not the JSON of a chat completion, or reports an error.
    """
    answer = load_json(text)
    choice = dig(answer, "choices", 0)
    failed = dig(answer, "error") or dig(choice, "error") or dig(choice, "finish_reason") == "error"
    if failed or not isinstance(dig(choice, "message"), dict):
        raise AnswerError(text[:QUOTED])  # so gateways report that the server behind them failed
    return answer


def load_json(text: str) -> Any:
    """Return the data in the JSON of an answer.

    Raises:
        AnswerError: It is not JSON.
    """
    try:
        return json.loads(text, parse_int=lambda d: int(d) if len(d) <= MAX_DIGITS else float(d))
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"not JSON ({error}): {text[:QUOTED]!r}") from None


def load_json_or_none(text: str) -> Any:
    """Return the data in an answer; None if it is not JSON, as errors and confirmations may be."""
    with suppress(AnswerError):
        return load_json(text)
    return None


def to_reply(answer: Any, dialect: Dialect, *, logprobs: bool = False) -> Reply:
    """Return the answer of a server as a reply.

    Args:
        answer: A chat completion, as plain data.
        dialect: The form in which native calls are written.
        logprobs: Read the log-probabilities, and do without none.

    Raises:
        AnswerError: The meaning of a part is not plain.
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
    """Return the text of a reply from its parts; half of a surrogate pair, which no file can hold,
    is replaced.
    """
    return _SURROGATES.sub("\ufffd", "\n".join(filter(None, parts)))


def to_usage(answer: Any) -> EndpointUsage:
    """Return the usage of an answer. Counts that cannot be read are 0, and `unmetered` says so."""
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
    """Return the value of an answer at a path; None where the server left it out."""
    with suppress(IndexError, KeyError, TypeError):
        return functools.reduce(lambda value, step: value[step], path, answer)
    return None


def _text(name: str, value: Any) -> tuple[str, str]:
    """Return a text and the thoughts among its parts.

    Args:
        name: The name of the field, for the error.
        value: A text, a part, a list of parts, or None.
    """
    if value is None or isinstance(value, str):
        return value or "", ""
    said: list[str] = []
    thoughts: list[str] = []
    for part in value if isinstance(value, list) else [value]:
        text = part if isinstance(part, str) else _part_text(part)
        if text is None:
            raise AnswerError(f"{name} is {quote(part)}, which is no text")
        (thoughts if dig(part, "type") in ("thinking", "reasoning") else said).append(text)
    return "".join(said), "".join(thoughts)


def _part_text(part: Any) -> str | None:
    """Return the text of a part; None if there is none in it."""
    for name in ("text", "refusal", "thinking", "reasoning", "content", "summary"):
        value = dig(part, name)
        value = dig(value, "value") if isinstance(value, dict) else value
        if isinstance(value, list):  # a thought may itself be a list of parts
            value = "".join(text for item in value if isinstance(text := dig(item, "text"), str))
        if isinstance(value, str):
            return value
    return None


def _calls(message: Any) -> Sequence[Any]:
    """Return the native calls of a message, in the newer or the older form."""
    calls = dig(message, "tool_calls") or dig(message, "function_call") or []
    if isinstance(calls, dict):
        return [calls]
    if not isinstance(calls, list):
        raise AnswerError(f"tool_calls is {quote(calls)}, which is no list")
    return calls


def _call_text(call: Any, dialect: Dialect) -> str:
    """Return a native call as the env reads it.

    One that it would refuse is left as it came, for the env to say why.
    """
    function = call["function"] if isinstance(dig(call, "function"), dict) else call
    return call_text(dig(function, "name"), dig(function, "arguments"), dialect)


def call_text(name: Any, values: Any, dialect: Dialect) -> str:
    """Return a native call as the env reads it; one that it would refuse is left as it came.

    Args:
        name: The name of the tool.
        values: The arguments, as an object or its JSON.
        dialect: The form in which it is written.

    Raises:
        AnswerError: It is nested too deeply.
    """
    try:
        arguments = (
            values if isinstance(values, str) else json.dumps({} if values is None else values)
        )
        named = json.dumps(name)
    except RecursionError:
        raise AnswerError("the arguments of a call are nested too deeply to be written") from None
    body = f'{{"name": {named}, "arguments": {arguments.strip() or "{}"}}}'.replace("</", "<\\/")
    text = f"<tool_call>\n{body}\n</tool_call>"
    calls = parse(text, "json").calls
    return render(calls[0], dialect) if calls else text


def _logprobs(choice: Any, said: bool) -> tuple[float, ...]:
    """Return the log-probabilities of the tokens of an answer.

    Args:
        choice: The choice of the server.
        said: True if it has a text; servers give none for a call.
    """
    tokens = dig(choice, "logprobs", "content")
    if not isinstance(tokens, list) or not tokens:
        if said or tokens:
            raise AnswerError(
                "log-probabilities were asked for and there are none; if the server has none, set "
                "logprobs=False"
            )
        return ()
    values = [_number(dig(token, "logprob")) for token in tokens]
    for value, token in zip(values, tokens, strict=True):
        if not math.isfinite(value) or value > ROUNDING:
            raise AnswerError(f"{quote(token)} has no log-probability")
    return tuple(min(value, 0.0) for value in values)


def _number(value: Any) -> float:
    """Return a number, also from its text; NaN if it is none."""
    with suppress(OverflowError, ValueError):
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            return float(value)
    return math.nan


def token_count(value: Any) -> int | None:
    """Return a count of tokens; None if it is none."""
    number = _number(value)
    return int(number) if 0 <= number <= MAX_TOKENS and number == int(number) else None


def quote(value: Any) -> str:
    """Return the beginning of a value as JSON."""
    with suppress(RecursionError, ValueError):
        return json.dumps(value)[:QUOTED]
    return "a value that is nested too deeply"
