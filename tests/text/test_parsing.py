from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym import Tool, ToolCall, explain, parse, render
from agentgym.text.parsing import MAX_REPLY_CHARS, NO_CALL, _read
from benchmarks.hostile_texts import REPLIES

TRICKY = (
    "``` </tool_call> <tool_call> </think> <think> ''' \"\"\" \\ \\u0041 a=1 {} ], é 😀".split()
)
TRICKY += ["\n", "\u2028"]
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    st.lists(st.sampled_from(TRICKY), max_size=4).map("".join),
)
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
calls = st.builds(ToolCall, names, st.dictionaries(names, values, max_size=3))
DIALECTS: list[Any] = ["python", "json"]
SET_VALUE = Tool("set_value", "", {"type": "object", "properties": {"key": {}, "value": {}}})


def same(left: Any, right: Any) -> bool:
    # In Python, 1 equals True and 1.0.
    return repr(left) == repr(right)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(
    call=calls,
    said=st.sampled_from(["", "I will do this.", "<think>hm ```python x``` </think>Now: "]),
)
@settings(max_examples=200, deadline=None)
def test_what_was_rendered_is_read_back(dialect: Any, call: ToolCall, said: str) -> None:
    reply = said + render(call, dialect)
    for reader in (dialect, "auto"):
        (read,) = parse(reply, reader).calls
        assert read.name == call.name
        assert same(dict(read.arguments), dict(call.arguments))


PIECES = [*TRICKY, "```python\n", "pop(", "id=3", ")", '{"name":', "\ud800", "\0"]


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES))))
@settings(max_examples=200, deadline=None)
def test_no_text_raises(parts: Any) -> None:
    text = parts if isinstance(parts, str) else "".join(parts)
    for dialect in ("auto", "json", "python"):
        message = parse(text, dialect)  # type: ignore[arg-type]
        assert bool(message.calls) != bool(explain(text, dialect))  # type: ignore[arg-type]
        message.text.encode("utf-8"), message.raw.encode("utf-8")


def call_json(arguments: str, name: str = "pop") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def fence(code: str) -> str:
    return f"```python\n{code}\n```"


MALFORMED = [
    ("", "no tool call found"),
    ("I pop 3.", "no tool call found"),
    ("pop(3)", "no tool call found"),
    (fence("pop(id=1)") + fence("pop(id=2)"), "2 ```python blocks"),
    (fence("pop(id=1)\npop(id=2)"), "one call"),
    (fence("pop(id=1); pop(id=2)"), "one call"),
    (fence("x = 3"), "exactly one call"),
    (fence("print(pop(id=1))"), "by name"),
    (fence("pop(id=1)").removesuffix("```"), "not closed"),
    (fence("pop(id=1)") + call_json('{"id": 1}'), "mixes"),
    ("<tool_call>" + '{"name": "pop", "arguments": {"id": 1}}', "not closed"),
    ("<think>" + fence("pop(id=1)") + "</think> done", "no tool call found"),
    ("<think>" + fence("pop(id=1)"), "no tool call found"),
    (call_json('{"id": 1'), "not valid JSON"),
    (call_json('{"id": 1}{"id": 2}'), "not valid JSON"),
    (
        '<tool_call>{"name": "a", "arguments": {}} {"name": "b"}</tool_call>',
        "unexpected text after a call",
    ),
    (call_json("[1]"), '"arguments" must be a JSON object, got [1]'),
    (call_json("null"), '"arguments" must be a JSON object'),
    ("<tool_call>[]</tool_call>", "a call must be a JSON object"),
    ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', "a call must be a JSON object"),
    (
        '<tool_call>{"name": "a", "arguments": {}, "x": 1}</tool_call>',
        "a call must be a JSON object",
    ),
    (
        '<tool_call>{"name": "a", "name": "b", "arguments": {}}</tool_call>',
        '"name" is given twice',
    ),
    (call_json('{"id": 1, "id": 2}'), '"id" is given twice'),
    (fence("pop(id=1, id=2)"), '"id" is given twice'),
    (call_json('{"id": NaN}'), "must be finite, got NaN"),
    (call_json('{"id": -Infinity}'), "must be finite"),
    (call_json('{"id": 1e999}'), "must be finite"),
    (fence("pop(id=1e999)"), "must be finite"),
    (call_json('{"id": ' + "9" * 5000 + "}"), "not valid JSON"),
    (fence("pop(id=" + "9" * 5000 + ")"), "not valid JSON"),
    (call_json('{"id": ' + "[" * 100_000 + "}"), "nest at most 64 levels"),
    (fence("pop(id=" + "[" * 100_000 + ")"), "nest at most 64 levels"),
    (call_json('{"id": ' + "-" * 50_000 + "1}"), "not valid JSON"),
    (call_json('{"id": "' + "x" * 300_000 + '"}'), "at most 262144"),
    ("x" * 10_000_000, "longer than 1000000"),
    (call_json("{}", "ｐｏｐ"), "ASCII"),
    (call_json("{}", "pop "), "ASCII"),
    (fence("ｐｏｐ(id=1)"), "exactly one call"),
    (fence("pop(id=１)"), "cannot read"),
    (fence("pop(id=1_0)"), "cannot read"),
    (fence("pop(id=0x1)"), "cannot read"),
    (fence("pop(id=+1)"), "cannot read"),
    (fence("pop(id=1.)"), "cannot read"),
    (fence("pop(id=01)"), "cannot read"),
    (fence("pop(id=true)"), "cannot read true"),
    (fence("pop(id=f'1')"), "cannot read"),
    (fence("pop(id=b'1')"), "cannot read"),
    (fence("pop(id=(1))"), "cannot read"),
    (fence("pop(id={'a'=1})"), "cannot read"),
    (fence("pop(id={a=1})"), "= may only follow"),
    (fence("pop(1)"), "by name"),
    (fence("pop(id=1 2)"), "not valid JSON"),
    (fence("pop(,)"), "by name"),
    (fence("pop(id='a)"), "cannot read"),
    ("<think>a</think>" * 2_000 + call_json("{}"), "more than 1024 thoughts and calls"),
    (call_json("{}") * 1_025, "more than 1024 thoughts and calls"),
    (call_json('{"id": [' + "{}," * 10_000 + "1]}"), "at most 10000 lists and objects"),
    (fence("pop(id=[" + "1, " * 10_000 + "])"), "at most 10000 names, values and symbols"),
    (
        call_json('{"a": 1, ' + ", ".join(f'"k{k}": 1' for k in range(9_000)) + ', "k7": 1}'),
        '"k7" is given twice',
    ),
    (fence("pop(id='\\ud800')"), "lone surrogate"),
    (call_json('{"id": "\\ud800"}'), "lone surrogate"),
    (call_json('{"id": "\\u0000"}'), "NUL"),
    ("\ud800" + fence("pop(id=1)"), "not valid Unicode"),
]


@pytest.mark.parametrize(("reply", "why"), MALFORMED, ids=[str(k) for k in range(len(MALFORMED))])
def test_malformed_replies_make_no_call_and_are_explained(reply: str, why: str) -> None:
    message = parse(reply)
    assert message.calls == ()
    assert why in explain(reply)
    assert len(explain(reply)) < 400
    assert len(message.raw) <= MAX_REPLY_CHARS


@pytest.mark.parametrize(
    ("reply", "arguments"),
    [
        (fence("f(a='it''s')"), None),
        (
            fence('f(a=\'it\\\'s\', b="""two\nlines "quoted" """,)'),
            {"a": "it's", "b": 'two\nlines "quoted" '},
        ),
        (
            fence("f(a=[1, 2,], b={'x': None, 'y': [True, False],}, c=-1.5e-3)"),
            {"a": [1, 2], "b": {"x": None, "y": [True, False]}, "c": -0.0015},
        ),
        (fence("f(a='\\x41\\n\\t\\\\d \\d')"), {"a": "A\n\t\\d \\d"}),
        (fence("f(a='= , ( ) ] } ```')"), None),
        ("```text\nnot this\n```\n" + fence("f(a=1)"), {"a": 1}),
        (
            '<tool_call>\n{"arguments": {"a": "</think> ```python x()```"}, "name": "f"}\n</tool_call>',
            {"a": "</think> ```python x()```"},
        ),
        ('<tool_call>{"name": "f"}</tool_call>', {}),
        (call_json('{"a": "\\ud83d\\ude00"}', "f"), {"a": "\U0001f600"}),
        (call_json('{"a": "\\\\u0000"}', "f"), {"a": "\\u0000"}),
    ],
)
def test_literals(reply: str, arguments: dict[str, Any] | None) -> None:
    calls = parse(reply).calls
    assert (dict(calls[0].arguments) if calls else None) == arguments


def test_positional_arguments_are_named_by_the_schema() -> None:
    for code in ("set_value('a', 3)", "set_value('a', value=3)"):
        (call,) = parse(fence(code), "python", [SET_VALUE]).calls
        assert call == ToolCall("set_value", {"key": "a", "value": 3})
    assert "by name" in explain(fence("set_value(1, 2, 3)"), "python", [SET_VALUE])
    assert '"key" is given twice' in explain(fence("set_value(1, key=2)"), "python", [SET_VALUE])


def test_several_json_calls_are_read_in_order_or_not_at_all() -> None:
    reply = "First " + call_json('{"id": 1}') + " then " + call_json('{"id": 2}')
    message = parse(reply, turn=4)
    ids = [(call.arguments["id"], call.id) for call in message.calls]
    assert ids == [(1, "call_4_0"), (2, "call_4_1")]
    assert (message.text, message.id, message.raw) == ("First  then", "4:0", reply)
    assert parse(reply + call_json("{")).calls == ()


def test_thinking_is_split_off() -> None:
    message = parse(
        "<think>I could ```python\npop(id=9)\n``` or not</think>So:\n" + fence("pop(id=1)")
    )
    assert message.thinking == "I could ```python\npop(id=9)\n``` or not"
    assert (message.text, message.calls[0].arguments) == ("So:", {"id": 1})
    opened_by_the_template = parse(
        "I could " + fence("pop(id=9)") + "</think>" + fence("pop(id=1)")
    )
    assert opened_by_the_template.calls == (ToolCall("pop", {"id": 1}),)
    assert opened_by_the_template.thinking.startswith("I could")
    assert parse("<think>a</think>x<think>b</think>y").thinking == "a\nb"
    assert parse("<think>never closed " + call_json("{}")).thinking.startswith("never closed")


def test_each_dialect_reads_its_own_form_only() -> None:
    assert parse(fence("pop(id=1)"), "json").calls == ()
    assert parse(call_json('{"id": 1}'), "python").calls == ()
    assert "```python" in explain("x", "python")
    assert "<tool_call>" in explain("x", "json")


def test_as_many_blocks_lists_and_values_as_are_allowed_are_read() -> None:
    assert len(parse(call_json("{}") * 1_024).calls) == 1_024
    (call,) = parse(call_json('{"id": [' + "[]," * 9_990 + '"[{[{"]}')).calls
    assert len(call.arguments["id"]) == 9_991
    (call,) = parse(fence("pop(id=[" + "1, " * 4_990 + "])")).calls
    assert len(call.arguments["id"]) == 4_990
    (call,) = parse(call_json('{"id": "' + "{[" * 50_000 + '"}')).calls
    assert len(call.arguments["id"]) == 100_000, "brackets in a text do not count"


@pytest.mark.parametrize("kind", REPLIES)
def test_hostile_replies_are_read_in_one_go(kind: str) -> None:
    text = REPLIES[kind]("pop", "id", 300_000)
    for dialect in ("auto", *DIALECTS):
        assert bool(parse(text, dialect).calls) != bool(explain(text, dialect))


@pytest.mark.parametrize(
    "text",
    ["</think>" * 25_000, "<think>" * 30_000, "<tool_call>" * 20_000, '"' * 200_000, fence("f(a=" + '"""' + "x" * 200_000),
     fence("f(a='" + "\\'" * 100_000), call_json('{"a": ' + '"\\"' * 60_000 + "[" * 100), fence("f(" + "a=" * 100_000),
     "```python" * 20_000, fence(")" * 200_000), fence("f" + " " * 200_000 + "x")],
    ids=range(11),
)  # fmt: skip
def test_long_pathological_replies_are_read_in_one_go(text: str) -> None:
    """If any part of the parser took quadratic time, this test would run for minutes."""
    assert parse(text).calls == ()
    assert explain(text)


POP = '<tool_call>\n{"name": "pop", "arguments": {"id": 0}}\n</tool_call>'
around = st.sampled_from(
    ["", " ", "so: ", "a < b ", "`x` ", "<think>a <b> `c`</think>\n", "no opener</think>", *TRICKY,
     "<think>one</think> <think>two</think>", "<think><tool_call></think>", "```python"]
)  # fmt: skip
written: st.SearchStrategy[str] = st.builds(render, calls, st.sampled_from(DIALECTS))


@given(
    st.tuples(around, st.lists(written, max_size=3).map("".join), around),
    st.sampled_from(["auto", "json", "python"]),
)
@settings(max_examples=200, deadline=None)
def test_the_shortcut_gives_the_full_result(parts: tuple[str, str, str], reader: Any) -> None:
    reply = "".join(parts)
    assert same(parse(reply, reader, (), 3), _read(reply, reader, (), 3)[0])


@pytest.mark.parametrize("call", [POP, POP.replace("0", '"naïve \U0001f600 <b>"')])
def test_a_thought_and_prose_around_a_call_are_kept_apart(call: str) -> None:
    for before, thinking, prose in (
        ("<think>Is 1 < 2? `yes`: [</think>\n\n", "Is 1 < 2? `yes`: [", ""),
        ("thought of the template\n</think>\n\n", "thought of the template", ""),
        ("so ", "", "so"),
    ):
        message = parse(before + call)
        assert (message.thinking, message.text, len(message.calls)) == (thinking, prose, 1)


@pytest.mark.parametrize(
    "arguments",
    ['"a": 1, "a": 2', '"a": {"b": 1, "b": 2}', '"a": [{"b": ":", "b": 2}]',
     '"a": "\\u003a", "a": 1', '"a": "::", "a": ":"'],
)  # fmt: skip
def test_a_repeated_name_is_refused_at_any_depth(arguments: str) -> None:
    reply = f'<tool_call>{{"name": "f", "arguments": {{{arguments}}}}}</tool_call>'
    assert not parse(reply).calls
    assert "is given twice" in explain(reply)


OBJECT = '{"name": "pop", "arguments": {"id": 0}}'
STRING = '{"name": "pop", "arguments": "{\\"id\\": 0}"}'
UNTAGGED = [
    OBJECT,
    f"\n {STRING}\n",
    f"```json\n{OBJECT}\n```",
    f"So I pop.\n```json\n{STRING}```\nDone.",
]


@pytest.mark.parametrize("thought", ["", "<think>``` {</think>\n", "no opener</think>"])
@pytest.mark.parametrize("reply", [*UNTAGGED, f"<tool_call>{STRING}</tool_call>"])
def test_a_call_may_stand_alone_or_in_a_fence_and_have_arguments_as_a_string(
    reply: str, thought: str
) -> None:
    (call,) = parse(thought + reply).calls
    assert (call.name, call.arguments) == ("pop", {"id": 0})
    assert not parse(thought + reply, "python").calls


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (f"{OBJECT}{OBJECT}", "unexpected text after a call"),
        (f"{OBJECT} is my call", "unexpected text after a call"),
        (f"My call is {OBJECT}", NO_CALL),
        (f"```json\n{OBJECT}\n```" * 2, NO_CALL),
        (f"```json\n{OBJECT}", NO_CALL),
        (f"```json\n[{OBJECT}]\n```", NO_CALL),
        ('{"answer": 3}', NO_CALL),
        ('```json\n{"id": 0}\n```', NO_CALL),
        ('{"name": "pop", "arguments": {"id": 0, "id": 1}}', "given twice"),
        ('{"name": "pop", "arguments": "{\\"id\\": 0, \\"id\\": 1}"}', "given twice"),
        ('{"name": "pop", "arguments": "id=0"}', "not valid JSON"),
        ('{"name": "pop", "arguments": "[0]"}', "must be a JSON object"),
        ('{"name": "pop", "arguments": "\\"{}\\""}', "must be a JSON object"),
        ('{"name": "pop", "arguments": "{\\"id\\": NaN}"}', "finite"),
        ('{"name": "pop", "arguments": "{\\"id\\": \\"\\\\ud800\\"}"}', "surrogate"),
    ],
)  # fmt: skip
def test_what_is_no_single_call_is_not_guessed(reply: str, why: str) -> None:
    assert not parse(reply).calls
    assert why in explain(reply)


def test_json_beside_a_tagged_call_stays_prose() -> None:
    message = parse(f'```json\n{{"name": "x"}}\n```\n<tool_call>{OBJECT}</tool_call>')
    assert [call.name for call in message.calls] == ["pop"]
    assert '{"name": "x"}' in message.text
