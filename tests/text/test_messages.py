from __future__ import annotations

import ast
import copy
import dataclasses
import importlib.util
import inspect
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import TypeAdapter
from transformers.utils.chat_template_utils import render_jinja_template

from agentgym import Chat, Content, Image, Message, Reply, ToolCall, make, render
from agentgym.oracles import NoisyPolicy
from agentgym.text.messages import Messages
from tests.helpers import calls_of

TEMPLATE = """{% for tool in tools or [] %}tool {{ tool.function.name }}: {{ tool.function.parameters | tojson }}
{% endfor %}{% for message in messages %}<{{ message.role }}>{{ message.content }}{% for call in message.tool_calls or [] %}
call {{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %}
{% endfor %}"""


def stock_template() -> str:
    # Importing the template's module would require torch.
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent / "models" / "llama4" / "processing_llama4.py"
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "chat_template":
            return str(ast.literal_eval(node.value))
    raise AssertionError("transformers no longer ships this template")


def played(turns: int = 3, **options: Any) -> Chat:
    env = make("TreeWorld", nodes=30, **options)
    chat, _ = env.reset(seed=2)
    for _ in range(turns):
        chat, *_ = env.step("I look.\n" + NoisyPolicy("TreeWorld", 0.2)([chat])[0].text)
    return chat


def message(number: int) -> Message:
    return Message("user", str(number), id=f"{number}:0")


def test_chats_are_read_no_further_than_where_they_part() -> None:
    def work(length: int) -> int:
        shared = [Message("user", str(k)) for k in range(length)]
        chat = Chat().add(*shared)
        longer, other = chat.add(Message("user", "x")), Chat((Message("user", "y"), *shared))
        assert longer.shared_prefix(chat) == chat.shared_prefix(longer) == length
        assert chat.shared_prefix(Chat()) == 0
        assert chat.shared_prefix(other) == other.shared_prefix(chat) == 0
        pairs = [(longer, chat), (chat, longer), (chat, Chat()), (chat, other)]
        return sum(calls_of(one.shared_prefix, two) for one, two in pairs)

    assert work(1_000) == work(10)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_versions_of_a_chat_are_independent_tuples(data: st.DataObject) -> None:
    versions: list[tuple[Chat, tuple[Message, ...]]] = [(Chat((message(0),)), (message(0),))]
    for number in range(1, data.draw(st.integers(1, 25))):
        chat, plain = data.draw(st.sampled_from(versions))
        new = tuple(message(100 * number + k) for k in range(data.draw(st.integers(0, 3))))
        if data.draw(st.booleans()):
            versions.append((chat.add(*new), plain + new))
        else:
            last = message(-number)
            versions.append((chat.without_last().with_last(last), (*plain[:-1], last)))
        for kept, expected in versions:
            assert tuple(kept.messages) == expected
    for chat, plain in versions:
        assert len(chat.messages) == len(plain)
        for part in (-1, 0, slice(1, None), slice(-2, None)):
            assert chat.messages[part] == plain[part]
        assert chat == Chat(plain) == pickle.loads(pickle.dumps(chat))
    left, left_plain = data.draw(st.sampled_from(versions))
    right, right_plain = data.draw(st.sampled_from(versions))
    same = [a == b for a, b in zip(left_plain, right_plain, strict=False)]
    assert left.shared_prefix(right) == (same.index(False) if False in same else len(same))


class Interrupted(Sequence[Message]):
    """Messages that let another thread extend the chat when the iteration reaches a given index."""

    def __init__(self, chat: Chat, place: int) -> None:
        self.others: list[Chat] = []
        self._chat, self._place = chat, place

    def __iter__(self) -> Iterator[Message]:
        for k in range(3):
            if k == self._place and not self.others:
                self.others.append(self._chat.add(message(8), message(9)))
            if k < 2:
                yield message(k)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("tail", [False, True])
def test_threads_may_extend_one_version_of_a_chat(tail: bool, place: int) -> None:
    # The other thread may extend the buffer first.
    first = Chat((message(4),))
    first = first.with_last(message(5)) if tail else first.add(message(5))
    new = Interrupted(first, place)
    grown = first.extend(new)
    (other,) = new.others
    further = grown.add(message(6)), other.add(message(7))
    ids = [[each.text for each in chat.messages] for chat in (first, grown, other, *further)]
    mine, others = ["4", "5", "0", "1"], ["4", "5", "8", "9"]
    assert ids == [["4", "5"], mine, others, [*mine, "6"], [*others, "7"]]


def test_messages_are_a_sequence() -> None:
    messages = Messages([message(0), message(1)])
    assert [*messages, *reversed(messages)] == [message(0), message(1), message(1), message(0)]
    assert message(1) in messages
    assert messages != [message(0)]
    with pytest.raises(IndexError):
        messages[2]
    with pytest.raises(IndexError):
        messages[-3]
    with pytest.raises(IndexError, match="no last message"):
        Messages().without_last()


def test_a_copied_chat_is_the_same_object() -> None:
    chat = played()
    assert copy.copy(chat) is chat
    assert copy.deepcopy([chat])[0] is chat


@pytest.mark.parametrize(
    "thing", [message(1), ToolCall("a", {}, "b"), Content("x"), Image(b"x"), Chat()]
)
def test_everything_is_frozen(thing: Any) -> None:
    name = dataclasses.fields(thing)[0].name
    with pytest.raises(AttributeError, match="immutable"):
        setattr(thing, name, "other")
    assert not hasattr(thing, "__dict__")
    copies = (pickle.loads(pickle.dumps(thing)), copy.deepcopy(thing), dataclasses.replace(thing))
    assert copies == (thing,) * 3


@pytest.mark.parametrize("kind", [ToolCall, Message, Chat, Reply, Content, Image])
def test_signatures_show_the_fields(kind: type[Any]) -> None:
    names = [field.name for field in dataclasses.fields(kind)]
    assert list(inspect.signature(kind).parameters) == names
    assert all(name in kind.__annotations__ for name in names)


def test_records_turn_into_dicts_as_dataclasses_do() -> None:
    call = ToolCall("pop", {"id": 1}, "c")
    assert dataclasses.asdict(Message("assistant", calls=(call,)))["calls"] == (
        dataclasses.asdict(call),
    )
    assert dataclasses.asdict(call) == {"name": "pop", "arguments": {"id": 1}, "id": "c"}


def rich_chat() -> Chat:
    picture = Image(b"\x89PNG\r\n", "a dot")
    calls = (ToolCall("look", {"at": ["x", None, 1.5]}, "c1"), ToolCall("wait", {}, "c2"))
    return Chat(
        (
            Message("system", "rules", id="0:0"),
            Message("user", "task", images=(picture,), id="0:1"),
            Message("assistant", "I look.", "hm", calls, id="1:0"),
            Message("tool", "seen", call_id="c1", id="1:1"),
            Message("tool", "waited", call_id="c2", id="1:2"),
            Message("assistant", "42", id="2:0"),
        )
    )


def test_dicts_hold_all_of_a_message() -> None:
    for each in rich_chat().messages:
        assert Message.from_dict(each.to_dict()) == each
        assert all(each.to_dict().values())


@pytest.mark.parametrize("json_arguments", [True, False])
def test_chat_completions_dicts_round_trip(json_arguments: bool) -> None:
    for chat in (rich_chat(), played()):
        again = Chat.from_openai(chat.to_openai(json_arguments=json_arguments), chat.tools)
        assert len(again.messages) == len(chat.messages)
        for one, other in zip(again.messages, chat.messages, strict=True):
            for name in ("role", "text", "thinking", "calls", "call_id"):
                assert getattr(one, name) == getattr(other, name)
            assert [i.png for i in one.images] == [i.png for i in other.images]
            assert [c.id for c in one.calls] == [c.id for c in other.calls]


@pytest.mark.parametrize("arm", ["", "SP", "SPH"])
def test_the_official_client_s_types_accept_the_chat(arm: str) -> None:
    chat = played(oracles=arm, shots=1)
    messages = TypeAdapter(list[ChatCompletionMessageParam])
    for each in (chat, rich_chat()):
        for checked in messages.validate_python(each.to_openai()):
            # The client's types validate this field lazily.
            calls: Any = checked.get("tool_calls", ())
            assert all(call["function"]["name"] for call in calls)
    tools = TypeAdapter(list[ChatCompletionToolParam]).validate_python(
        [tool.to_openai() for tool in chat.tools]
    )
    assert [tool["function"]["name"] for tool in tools] == ["get_children", "found", "unreachable"]


def test_pictures_of_tools_follow_in_a_user_message() -> None:
    chat = Chat(
        (
            Message("tool", "a", call_id="1", images=(Image(b"1"),)),
            Message("tool", "b", call_id="2"),
            Message("assistant", "x"),
        )
    )
    roles = [message["role"] for message in chat.to_openai()]
    assert roles == ["tool", "tool", "user", "assistant"]
    assert chat.to_openai()[2]["content"][0]["image_url"]["url"].startswith(
        "data:image/png;base64,"
    )
    assert [message["role"] for message in Chat(chat.messages[:1]).to_openai()] == ["tool", "user"]


@pytest.mark.parametrize("template", [TEMPLATE, stock_template()], ids=["plain", "llama4"])
@pytest.mark.parametrize("arm", ["", "SP", "SPH"])
def test_chat_templates_show_every_message(template: str, arm: str) -> None:
    chat = played(oracles=arm, shots=1)
    prompts, _ = render_jinja_template(
        [chat.to_openai(json_arguments=False)],
        tools=[tool.to_openai() for tool in chat.tools],
        chat_template=template,
        bos_token="",
    )
    for each in chat.messages:
        for line in each.text.splitlines():
            assert line.strip() in prompts[0] or line.strip().replace('"', '\\"') in prompts[0]
    assert "get_children" in prompts[0]


def test_what_is_no_chat_is_refused() -> None:
    with pytest.raises(ValueError, match="has role 'robot'; use system, user, assistant or tool"):
        Chat.from_openai([{"role": "robot", "content": "x"}])
    for arguments in ("[1]", "{", None, 3):
        call: Any = {"id": "1", "function": {"name": "f", "arguments": arguments}}
        with pytest.raises(ValueError, match="the arguments of f must be a JSON object"):
            Chat.from_openai([{"role": "assistant", "content": None, "tool_calls": [call]}])
    for call in ({}, {"function": None}, {"function": {"name": "f"}}, "f", None):
        with pytest.raises(ValueError, match="a tool call must have a function with name and arg"):
            Chat.from_openai([{"role": "assistant", "tool_calls": [call]}])
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
    with pytest.raises(ValueError, match="must be a data:image/png"):
        Chat.from_openai([{"role": "user", "content": [picture]}])


def test_people_can_read_a_chat() -> None:
    text = rich_chat().to_text()
    call = '-> look({"at": ["x", null, 1.5]})'
    for part in ("[system]\nrules", "[image: a dot]", "<think>hm</think>", call, "[tool]\nseen"):
        assert part in text
    raw = render(ToolCall("found", {"id": "x"}))
    assert raw in Chat((Message("assistant", raw=raw),)).to_text()
    chat = Chat((Message("system", "Rules."), Message("user", "Do it.")))
    assert str(chat) == chat.to_text() == "[system]\nRules.\n\n[user]\nDo it."
