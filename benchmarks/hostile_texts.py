"""Texts of any length that slow down careless parsers, for `hostile.py` and the growth laws.

`TEXTS` are used as replies and tool arguments; `REPLIES` resemble tool calls.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Mapping

Text = Callable[[int], str]
"""Return a text of at most this many characters."""
Reply = Callable[[str, str, int], str]
"""Return a reply of about this length that calls a tool with one of its arguments."""

MAX_CALL = 262_144  # the parser's limit for one call (agentgym.text.tools.MAX_CALL_CHARS)
WORDS = """a an and are as at be but by can do done each few for found from go has have he her his how i if in
into is it item its just key know last left less like line list look make many may more most my name need new next no
not now number of off old on one only open or order other our out over page part place plan put read right room row same
say see seek she should so some state step still such take task tell than that the their them then there these they thing
think this time to tool total turn two under up use value want was way we well were what when where which who why will
with word work would write yes you your""".split()


def prose(size: int) -> str:
    rng = random.Random(size)
    sentences: list[str] = []
    length = 0
    while length < size:
        words = rng.choices(WORDS, k=rng.randint(4, 20))
        sentences.append(f"{' '.join(words).capitalize()}{rng.choice('.,;?!')} ")
        length += len(sentences[-1])
    return "".join(sentences)[:size]


def repeat(unit: str, head: str = "", tail: str = "") -> Text:
    def make(size: int) -> str:
        count = max(0, size - len(head) - len(tail)) // len(unit)
        return head + unit * count + tail

    return make


def numbered(form: str) -> Text:
    def make(size: int) -> str:
        return "".join(form.format(k) for k in range(size // len(form.format(100_000))))

    return make


def nested(opening: str, closing: str) -> Text:
    def make(size: int) -> str:
        depth = size // (len(opening) + len(closing))
        return opening * depth + closing * depth

    return make


def drawn(alphabet: str) -> Text:
    return lambda size: "".join(random.Random(size).choices(alphabet, k=size))


def quoted_json(size: int) -> str:
    """Nest JSON strings in JSON strings; each level doubles the backslashes."""
    text = '{"a": "b"}'
    while len(longer := json.dumps({"a": text})) <= size:
        text = longer
    return (text + " ") * (size // (len(text) + 1))


LETTERS = "abcdefghijklmnopqrstuvwxyz"
_RUNS = {
    "letter": "a",
    "capital": "A",
    "digit": "7",
    "zero": "0",
    "space": " ",
    "tab": "\t",
    "line feed": "\n",
    "carriage return": "\r",
    "CRLF": "\r\n",
    "no-break space": "\u00a0",
    "line separator": "\u2028",
    "NUL": "\0",
    "control": "\x1f",
    "backslash": "\\",
    "slash": "/",
    "double quote": '"',
    "single quote": "'",
    "backtick": "`",
    "dot": ".",
    "comma": ",",
    "colon": ":",
    "minus": "-",
    "underscore": "_",
    "equals": "=",
    "plus": "+",
    "star": "*",
    "question mark": "?",
    "dollar": "$",
    "percent": "%",
    "at": "@",
    "ampersand": "&",
    "less than": "<",
    "greater than": ">",
    "pipe": "|",
    "caret": "^",
    "tilde": "~",
    "semicolon": ";",
    "exclamation": "!",
    "hash": "#",
    "opening bracket": "[",
    "opening brace": "{",
    "opening parenthesis": "(",
    "closing bracket": "]",
    "closing brace": "}",
    "closing parenthesis": ")",
    "accented": "é",
    "combining mark": "\u0301",
    "letter and mark": "e\u0301",
    "zero-width joiner": "\u200d",
    "bidi override": "\u202e",
    "byte order mark": "\ufeff",
    "ideograph": "漢",
    "kana": "の",
    "hangul": "한",
    "arabic": "ع",
    "thai": "ก",
    "emoji": "😀",
    "family": "👨\u200d👩\u200d👧",
    "flag": "🇩🇪",
    "full-width digit": "７",
    "superscript": "²",
    "sharp s": "ß",
    "dotted capital i": "İ",
    "ligature": "ﬃ",
    "long ligature": "\ufdfa",  # normalises to 18 characters
    "replacement": "\ufffd",
    "noncharacter": "\uffff",
    "lone surrogate": "\ud800",
    "surrogate pair": "\ud83d\ude00",
}
_UNITS = {
    "letter and space": "a ",
    "letter and line": "a\n",
    "space and line": " \n",
    "spaces and letter": "   x",
    "letters and quote": "a'",
    "contraction": "'ll",
    "two quotes": "\"'",
    "escaped quote": '\\"',
    "escaped escape": "\\\\",
    "escape of a surrogate": "\\uD800",
    "escape of NUL": "\\u0000",
    "hex escape": "\\x41",
    "comma and space": ", ",
    "digits and comma": "1,234,",
    "digits and dot": "1.",
    "dates": "2024-01-01",
    "times": "12:34:56 ",
    "mail addresses": "ab@c.de, ",
    "at and dot": "a@a.",
    "URLs": "http://a.b/c?d=e&",
    "parent folders": "../",
    "folders": "a/",
    "globs": "**/",
    "star and letter": "*a",
    "alternatives": "a|",
    "groups": "(a+)+",
    "optional groups": "(a?)",
    "character classes": "[a-z]",
    "word boundaries": "\\b",
    "braces of a pattern": "{a,b}",
    "braces of a template": "{{}}",
    "entities": "&amp;",
    "broken entities": "&#x",
    "tags": "<b>",
    "closed tags": "<b></b>",
    "style tags": "<style>",
    "comments": "<!--",
    "CDATA": "<![CDATA[",
    "table rows": "| a | b |\n",
    "table rules": "|---",
    "headings": "# a\n",
    "list items": "- a\n",
    "quoted lines": "> a\n",
    "links": "[a](",
    "emphasis": "*a _",
    "CSV quotes": '"",',
    "SQL comments": "/* ",
    "SQL ends": "'; --",
    "formula terms": "=A1+",
    "comparisons": "a=1 AND ",
    "or": "a OR ",
    "not": "NOT ",
    "plus and number": "1+",
    "empty JSON": "{},",
    "fences": "```\n",
    "Python fences": "```python\n",
    "fences and spaces": "```python   ",
    "tool tags": "<tool_call>",
    "closing tool tags": "</tool_call>",
    "think marks": "<think>",
    "closing think marks": "</think>",
    "closed think marks": "<think>a</think>",
    "answer tags": "<answer>",
    "closed answer tags": "<answer>1</answer>",
    "final answers": "final answer: ",
    "final answers without an end": "final answer   ",
    "state tags": "\n\n<state>\n",
    "plan tags": "\n\n<plan>\n",
    "warnings": "\n\n<system_warning>",
    "boxed": "\\boxed{",
    "hash answers": "#### ",
    "error lines": "error: ",
    "chat marks": "<|im_start|>user\n",
    "end marks": "<|endoftext|>",
    "roles": "[tool]\n",
    "rounds": "Round 1: Guess a\nSections:\n",
    "yes and no": "yes no ",
    "and": "a and ",
    "number words": "twenty-",
    "mail headers": "From a\n\n",
    "encoded words": "=?utf-8?b?",
    "MIME boundaries": "--a\n",
    "almost a tag": "</tool_cal",
    "almost a fence": "``pytho",
}
TEXTS: Mapping[str, Text] = {
    "prose": prose,
    **{f"run of {name}": repeat(unit) for name, unit in _RUNS.items()},
    **{f"many {name}": repeat(unit) for name, unit in _UNITS.items()},
    "random letters": drawn(LETTERS),
    "random ideographs": drawn("".join(map(chr, range(0x4E00, 0x9FFF)))),
    "random signs": drawn("()[]{}<>\"'`\\/|,.:;!?=+-*&^%$#@~ \n"),
    "random Unicode": drawn("aé\u0301漢😀\u200d\u202e\ufeffß ﬃ\u2028\u00a0٣７"),
    "base64": lambda size: base64.b64encode(random.Random(0).randbytes(size * 3 // 4)).decode(),
    "one bracket after many": repeat("[", tail="x]"),
    "nested brackets": nested("[", "]"),
    "nested braces": nested('{"a":', "}"),
    "nested parentheses": nested("(", ")"),
    "nested tags": nested("<b>", "</b>"),
    "nested groups": nested("(?:a", ")*"),
    "almost a number": repeat("1", tail="x"),
    "almost a float": repeat("1", head="0.", tail="e"),
    "long exponent": repeat("9", head="1e"),
    "long fraction": repeat("3", head="0."),
    "spaces, then a letter": repeat(" ", head="a", tail="a"),
    "almost an address": repeat("a", tail="@"),
    "address of many labels": repeat("a.", head="a@", tail="!"),
    "almost a match": repeat("a", tail="b"),
    "numbered lines": numbered("line {}\n"),
    "numbered words": numbered("w{} "),
    "numbered paths": numbered("dir{}/"),
    "numbered rows": numbered("{},a,b\n"),
    "JSON in JSON": quoted_json,
}


def _in_tag(arguments: str, name: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def calls_of_many(form: Callable[[str, str, int], str]) -> Reply:
    def make(name: str, argument: str, size: int) -> str:
        count = -(-size // MAX_CALL)
        return "".join(form(name, argument, size // count - 100) for _ in range(count))

    return make


def _json_call(members: Text) -> Reply:
    return calls_of_many(lambda name, _, size: _in_tag("{" + members(size) + "}", name))


def _python_call(inside: Text) -> Reply:
    """Return a reply with a single call, because the parser reads only one code fence."""
    return lambda name, _, size: f"```python\n{name}({inside(min(size, MAX_CALL - 200))})\n```"


def _many_calls(size_of_one: str) -> Reply:
    return lambda name, argument, size: repeat(
        size_of_one.replace("NAME", name).replace("ARGUMENT", argument)
    )(size)


REPLIES: Mapping[str, Reply] = {
    "numbered keys": _json_call(lambda size: numbered('"k{}":1,')(size) + '"k": 1'),
    "one key over and over": _json_call(repeat('"a":1,', tail='"a":1')),
    "numbered keys, the last one twice": _json_call(
        lambda size: numbered('"k{}":1,')(size) + '"k": 1, "k": 1'
    ),
    "numbered keys of an inner object": _json_call(
        lambda size: '"a": {' + numbered('"k{}":1,')(size) + '"k": 1, "k": 1}'
    ),
    "one long key": _json_call(repeat("a", head='"', tail='": 1')),
    "a long string": calls_of_many(
        lambda name, argument, size: _in_tag(f'{{"{argument}": "{"a" * size}"}}', name)
    ),
    "a string of escapes": calls_of_many(
        lambda name, argument, size: _in_tag(
            '{{"{}": "{}"}}'.format(argument, "\\u00e9" * (size // 6)), name
        )
    ),
    "a string of surrogates": calls_of_many(
        lambda name, argument, size: _in_tag(
            '{{"{}": "{}"}}'.format(argument, "\\ud800" * (size // 6)), name
        )
    ),
    "a long list": calls_of_many(
        lambda name, argument, size: _in_tag(f'{{"{argument}": [{"1," * (size // 2)}1]}}', name)
    ),
    "a list of objects": calls_of_many(
        lambda name, argument, size: _in_tag(f'{{"{argument}": [{"{}," * (size // 3)}1]}}', name)
    ),
    "a list of lists, 60 deep": calls_of_many(
        lambda name, argument, size: _in_tag(
            '{{"{}": [{}1]}}'.format(argument, ("[" * 60 + "]" * 60 + ",") * (size // 121)), name
        )
    ),
    "a deep list": calls_of_many(
        lambda name, argument, size: _in_tag(f'{{"{argument}": {"[" * size}', name)
    ),
    "a long integer": calls_of_many(
        lambda name, argument, size: _in_tag(f'{{"{argument}": {"7" * size}}}', name)
    ),
    "integers of 4,000 digits": calls_of_many(
        lambda name, argument, size: _in_tag(
            '{{"{}": [{}1]}}'.format(argument, ("7" * 4_000 + ",") * (size // 4_001)), name
        )
    ),
    "a long float": calls_of_many(
        lambda name, argument, size: _in_tag(f'{{"{argument}": 0.{"7" * size}}}', name)
    ),
    "floats of 700 digits": calls_of_many(
        lambda name, argument, size: _in_tag(
            '{{"{}": [{}1]}}'.format(argument, ("0." + "7" * 700 + "e-300,") * (size // 708)), name
        )
    ),
    "constants": calls_of_many(
        lambda name, argument, size: _in_tag(
            '{{"{}": [{}1]}}'.format(argument, "null,true," * (size // 10)), name
        )
    ),
    "a long name": calls_of_many(lambda name, _, size: _in_tag("{}", name + "a" * size)),
    "spaces in a call": calls_of_many(
        lambda name, _, size: f'<tool_call>{" " * size}{{"name": "{name}"}}</tool_call>'
    ),
    "spaces in an almost usual call": lambda name, argument, size: (
        f'<tool_call>{{"name": "{name}", "arguments": {{{" " * min(size, MAX_CALL - 200)}!'
    ),
    "text after a call": calls_of_many(
        lambda name, _, size: f'<tool_call>{{"name": "{name}"}}{"a" * size}</tool_call>'
    ),
    "tiny calls": _many_calls('<tool_call>{"name":"NAME"}</tool_call>'),
    "tiny calls with an argument": _many_calls(
        '<tool_call>{"name":"NAME","arguments":{"ARGUMENT":"a"}}</tool_call>'
    ),
    "tiny calls of no tool": _many_calls('<tool_call>{"name":"a"}</tool_call>'),
    "tiny calls that are no JSON": _many_calls("<tool_call>a</tool_call>"),
    "empty tool tags": _many_calls("<tool_call></tool_call>"),
    "tiny fences": _many_calls("```python\nNAME()\n```"),
    "a call, then prose": lambda name, _, size: _in_tag("{}", name) + prose(size),
    "a call, then tags": lambda name, _, size: _in_tag("{}", name) + "<tool_call>" * (size // 11),
    "prose, then a call": lambda name, _, size: prose(size) + _in_tag("{}", name),
    "a thought, then a call": lambda name, _, size: (
        f"<think>{prose(size)}</think>" + _in_tag("{}", name)
    ),
    "thoughts, then a call": lambda name, _, size: (
        "<think>a</think>" * (size // 16) + _in_tag("{}", name)
    ),
    "thoughts without a beginning": lambda name, _, size: (
        "a</think>" * (size // 9) + _in_tag("{}", name)
    ),
    "a fence of spaces": lambda name, _, size: (
        f"```python{' ' * min(size, MAX_CALL - 200)}!{name}()```"
    ),
    "a fence of lines": lambda name, _, size: (
        f"```python{chr(10) * min(size, MAX_CALL - 200)}!{name}()```"
    ),
    "a fence of spaces inside": lambda name, _, size: (
        f"```python\n{name}{' ' * min(size, MAX_CALL - 200)}!```"
    ),
    "a fence of spaces at the end": lambda name, _, size: (
        f"```python\n{name}(){' ' * min(size, MAX_CALL - 200)}!```"
    ),
    "a fence of parentheses": _python_call(repeat(")", tail="x")),
    "a fence of parentheses and spaces": _python_call(repeat(")  ", tail="x")),
    "a fence of arguments": _python_call(numbered("k{}=1,")),
    "a fence of one argument over and over": _python_call(repeat("a=1,")),
    "a fence of names": _python_call(repeat("a ", head="a=")),
    "a fence of numbers": _python_call(repeat("1 ", head="a=")),
    "a fence of a long number": _python_call(repeat("1", head="a=")),
    "a fence of almost a number": _python_call(repeat("1", head="a=", tail="x")),
    "a fence of a long string": _python_call(repeat("a", head="a='", tail="'")),
    "a fence of an open string": _python_call(repeat("a", head="a='")),
    "a fence of open strings": _python_call(repeat("'a\n", head="a=")),
    "a fence of strings": _python_call(repeat("'a',", head="a=[", tail="]")),
    "a fence of triple quotes": _python_call(repeat('"""', head="a=")),
    "a fence of mixed triple quotes": _python_call(repeat("\"\"\"'''", head="a=")),
    "a fence of escapes": _python_call(repeat("\\x41", head="a='", tail="'")),
    "a fence of backslashes": _python_call(repeat("\\", head="a='", tail="'")),
    "a fence of lists": _python_call(nested("[", "]")),
    "a fence of dicts": _python_call(repeat("{},", head="a=[", tail="]")),
    "a fence of keys": _python_call(
        lambda size: "a={" + numbered("'k{}': 1,")(size) + "'k': 1, 'k': 1}"
    ),
    "a fence of equals": _python_call(repeat("a=")),
    "a fence of commas": _python_call(repeat(",")),
}
