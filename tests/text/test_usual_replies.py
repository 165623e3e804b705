"""The quick reading of usual replies gives what the full reading gives, and refuses the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import ToolCall, explain, parse, render
from agentgym.text.parsing import _read
from agentgym.text.usual_replies import MAX_ARGUMENTS, MAX_CALLS, MAX_CHARS, read_usual
from tests.helpers import calls_of
from tests.text.test_parsing import TRICKY, calls, same

POP = '<tool_call>\n{"name": "pop", "arguments": {"id": 0}}\n</tool_call>'
around = st.sampled_from(
    ["", " ", "so: ", "a < b ", "`x` ", "<think>a <b> `c`</think>\n", "no opener</think>", *TRICKY,
     "<think>one</think> <think>two</think>", "<think><tool_call></think>", "```python"]
)  # fmt: skip
readers = st.sampled_from(["auto", "json", "python"])
dialects = st.sampled_from(["json", "python"])
written: st.SearchStrategy[str] = st.builds(render, calls, dialects)


def agrees(reply: str, reader: Any) -> bool:
    """Report whether the reply was read quickly; fail if that differs from the full reading."""
    quick = read_usual(reply, reader, 3)
    if quick is None:
        return False
    general, problem = _read(reply, reader, (), 3)
    assert not problem
    assert same(quick, general)
    return True


@given(st.tuples(around, st.lists(written, max_size=3).map("".join), around), readers)
@settings(max_examples=400, deadline=None)
def test_it_agrees_with_the_full_reading(parts: tuple[str, str, str], reader: str) -> None:
    agrees("".join(parts), reader)


JSON = st.recursive(
    st.sampled_from(['"a"', '":"', '"\\\\u003a"', '"é"', '"\\n"', "-0", "1.50", "1e3", "null", "true"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(st.sampled_from(['"a"', '"b"', '":"']), inner), max_size=3).map(
            lambda items: "{" + ",".join(f"{name}:{value}" for name, value in items) + "}"
        ),
    ),
    max_leaves=8,
)  # fmt: skip


@given(JSON)
@settings(max_examples=400, deadline=None)
def test_names_that_are_given_twice_are_refused_at_any_depth(value: str) -> None:
    reply = f'<tool_call>{{"name": "f", "arguments": {{"x": {value}}}}}</tool_call>'
    agrees(reply, "auto")


@pytest.mark.parametrize(
    "reply",
    [
        POP,
        f"<think>Is 1 < 2? `yes`: [</think>\n\n{POP}",
        f"thought of the template\n</think>\n\n{POP}",
        f"so {POP} {POP}\n",
        '<tool_call>{"name": "f", "arguments": {"a": "b:c", "d": [1, {"e": "f:"}], "g": 1.5}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": "naïve \U0001f600 <b>"}}</tool_call>',
        "```python\npop( id = 7 )\n```",
        "hi ```python pop()```",
        "```python\nf(path='a b', n=-3, deep=True, none=None,)\n```",
    ],
)
def test_usual_replies_are_read_quickly(reply: str) -> None:
    assert agrees(reply, "auto")


@pytest.mark.parametrize(
    "arguments",
    ['"a": 1, "a": 2', '"a": {"b": 1, "b": 2}', '"a": [{"b": ":", "b": 2}]',
     '"a": "\\u003a", "a": 1', '"a": "::", "a": ":"'],
)  # fmt: skip
def test_a_name_that_is_given_twice_is_refused(arguments: str) -> None:
    reply = f'<tool_call>{{"name": "f", "arguments": {{{arguments}}}}}</tool_call>'
    assert not parse(reply).calls
    assert "is given twice" in explain(reply)


def test_what_is_long_is_left_to_the_full_reading() -> None:
    pairs = ", ".join(f"a{k}=1" for k in range(MAX_ARGUMENTS + 1))
    for reply in (POP * (MAX_CALLS + 2), f"```python\nf({pairs})\n```", POP + " " * MAX_CHARS):
        assert read_usual(reply, "auto", 1) is None
        assert parse(reply).calls


def test_usual_replies_take_less_than_half_the_work_of_the_full_reading() -> None:
    call = ToolCall("f", {"path": "a/b.txt", "count": 3, "note": "so it is"})
    for form in ("json", "python"):
        reply = render(call, form)
        for text in (reply, f"<think>so</think>\n{reply}"):
            quick = calls_of(read_usual, text, "auto", 1)
            assert 2 * quick < calls_of(_read, text, "auto", (), 1)
