from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import gymnasium
import pytest

import agentgym
from agentgym import Message
from agentgym.wrappers import ContextAwareness, ContextBudget, EditMessages, Trim, Turns
from agentgym.wrappers.context import MessageEdit
from tests.wrappers.context_checks import Checked
from tests.wrappers.context_worlds import Stack, read

NOTE = Message("user", "Earlier pages were removed.")


def keep_last_four(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[-4:]


def shorten_results(messages: Sequence[Message]) -> Sequence[Message]:
    old = [
        replace(message, text="[gone]") if message.role == "tool" else message
        for message in messages[:-1]
    ]
    return [*old, messages[-1]] if messages else []


def keep_two_and_say_so(messages: Sequence[Message]) -> Sequence[Message]:
    return [*messages[-2:], NOTE] if len(messages) > 8 else messages


def drop_all(messages: Sequence[Message]) -> Sequence[Message]:
    return ()


def drop_every_second(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[::2]


def grow(messages: Sequence[Message]) -> Sequence[Message]:
    return [*messages, NOTE]


def play(edit: MessageEdit, pages: int = 12) -> Checked:
    layers = ((EditMessages, {"edit": edit}), (Trim, {}), (ContextAwareness, {}))
    return Checked(Stack(layers, 4_000)).play([read(page) for page in range(pages)])


def roles(episode: Checked) -> list[str]:
    return [message.role for message in episode.chat.messages]


def test_messages_are_left_out_or_replaced() -> None:
    assert roles(play(keep_last_four)) == ["system", "user", *["assistant", "tool"] * 2]
    messages = play(shorten_results).chat.messages
    *old, newest = [message.text for message in messages if message.role == "tool"]
    assert old == ["[gone]"] * 11
    assert not newest.startswith("[gone]")


def test_new_messages_stand_at_the_end_and_stay() -> None:
    episode = play(keep_two_and_say_so, 7)
    shown = [message.text.split("\n")[0] for message in episode.chat.messages]
    assert shown.count(NOTE.text) == 1
    assert "edit_messages:1" in [message.id for message in episode.chat.messages]
    assert roles(episode)[2:] == ["assistant", "tool", "user", *["assistant", "tool"] * 2]


@pytest.mark.parametrize("edit", [drop_all, drop_every_second, grow])
def test_the_invariants_hold_whatever_the_function_returns(edit: MessageEdit) -> None:
    episode = play(edit)
    assert roles(episode)[:2] == ["system", "user"]
    if edit is drop_all:
        assert roles(episode)[2:] == ["assistant", "tool"], "the newest turn stays"
    if edit is grow:
        assert not episode.info["context"].edits, "an edit that makes the chat longer is not made"


def test_the_trigger_and_the_spec() -> None:
    path = f"{__name__}:keep_last_four"
    env = EditMessages(
        agentgym.make("ListWorld"), path, ContextBudget(window=8_000), Turns(5), lossy=True
    )
    assert env.spec is not None
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    for each in (env, again):
        each.reset(seed=0)
        assert [len(each.step("no call")[0].messages) for _ in range(5)] == [4, 6, 8, 10, 6]


@pytest.mark.parametrize("order", [slice(None, None, -1), (0, 0), "new"])
def test_another_order_is_refused(order: slice | tuple[int, ...] | str) -> None:
    def edit(messages: Sequence[Message]) -> Sequence[Message]:
        if len(messages) < 4:
            return messages
        if isinstance(order, slice):
            return messages[order]
        return [NOTE, *messages] if order == "new" else [messages[0], messages[0]]

    with pytest.raises(ValueError, match="must append new messages last"):
        play(edit)
    with pytest.raises(ValueError, match="edit 'nowhere:at_all' cannot be imported"):
        EditMessages(agentgym.make("ListWorld"), "nowhere:at_all")
