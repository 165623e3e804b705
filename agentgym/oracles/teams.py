"""Scripted teams: every agent plays what a scripted policy would, and passes on what it knows when the call is not its own.

They read the text of one chat at a time, and what they tell is a state in words (`World.state`), which suffices for optimal play.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentgym.messages import Chat, Message, ToolCall
from agentgym.oracles.hints import split_hints
from agentgym.oracles.policies import OraclePolicy, ParsedChat, ScriptedPolicy
from agentgym.parsing import Dialect, render
from agentgym.policy import Reply
from agentgym.prompts import SUMMARY_FOLLOWS
from agentgym.arguments import check_int

TEAM_TOOLS = frozenset({"tell", "wait", "delegate", "report"})

_STATE = re.compile(r"<state>\n(.*?)\n</state>", re.DOTALL)
_MINE, _THEIRS = "It is my turn.", "It is another agent's turn."
_YOU = re.compile(r"You are ([a-z]+_[0-9]+)[.,]")
_AGENT = re.compile(r"^- ([a-z]+_[0-9]+): (.*)$", re.MULTILINE)
_HOST = "\n# Host\nYou are host_0"
_ANSWER = "host_0 answers:\n"
_MAIL = re.compile(r"[a-z]+_[0-9]+ (?:tells you|reports) \([0-9]+ characters\):\n")


@dataclass
class _View:
    """What an agent of a team can tell from its chat.

    Attributes:
        state: The state that it was told or has summed up last.
        known: Its replies to the world since then, with what answered them.
        floor: Whether it is to act: True after it was told something or has acted, False after it has told somebody, None if
            nothing shows it.
    """

    state: str = ""
    known: list[Message] = field(default_factory=list)
    floor: bool | None = None

    @classmethod
    def of(cls, chat: Chat) -> _View:
        """Read what follows the task."""
        view = cls()
        said, names = "", set[str]()
        for message in chat.messages[chat.pinned() :]:
            text = split_hints(message.text)[0]
            if message.role == "assistant":
                names = {call.name for call in message.calls}
            if text.startswith(SUMMARY_FOLLOWS):
                view.take(said)
                view.floor = True if said.endswith(_MINE) else False if said.endswith(_THEIRS) else None
            elif message.role == "user" and _MAIL.match(text):
                view.take(text)
                view.floor = True
            elif text.startswith(_ANSWER) and view.known:
                view.known[-1] = replace(view.known[-1], text=text.removeprefix(_ANSWER))
            elif not names or names - TEAM_TOOLS:
                view.known.append(message)
            if message.role == "tool" and not text.startswith("error:"):
                view.floor = True if names - TEAM_TOOLS else False if "tell" in names else view.floor
            said = text
        return view

    def take(self, text: str) -> None:
        """Take in a text that tells a state."""
        if told := _STATE.findall(text):
            self.state, self.known = told[-1], []

    def reading(self, chat: Chat) -> ParsedChat:
        """The chat as that of a single agent."""
        whole = ParsedChat.of(chat)
        return ParsedChat(whole.task, tuple(self.known), whole.hints, self.state, whole.summarize)


class TeamPolicy:
    """Plays every agent of a team as one scripted policy; it is batched and stateless, as all policies are.

    In a split team, who has the tool for the next call plays it; any other tells the state to the one who has it, and waits. A
    manager plays its own calls and delegates the rest with the task and the state; a worker plays up to `patience` turns and
    reports the state. A host answers from the text of the question. Rivals in a duel play for themselves.

    Args:
        env_id: The id of the team.
        player: Who chooses the calls; by default `OraclePolicy`.
        dialect: How calls are written.
        patience: The most turns of a sub-task.

    Example:
        >>> policy = TeamPolicy("ListWorld-team")
    """

    def __init__(self, env_id: str, player: ScriptedPolicy | None = None, dialect: Dialect = "auto", patience: int = 8) -> None:
        check_int("patience", patience, 1, 1_000_000)
        self.player = player or OraclePolicy(env_id, dialect=dialect)
        self.dialect, self.patience = dialect, patience

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Write one call for each chat."""
        return [Reply(self._write(chat)) for chat in chats]

    def _write(self, chat: Chat) -> str:
        view, tools = _View.of(chat), {tool.name for tool in chat.tools}
        if "report" in tools and not view.state:
            view.state = next(iter(_STATE.findall(chat.messages[chat.pinned() - 1].text)), "")
        reading = view.reading(chat)
        if reading.summarize:
            floor = "" if view.floor is None else _MINE if view.floor else _THEIRS
            return f"{self._state(self.player.remember(reading).state())}\n{floor}".rstrip()
        if _HOST in chat.messages[0].text:
            hosted: Any = self.player.world
            return render(ToolCall("answer", {"text": hosted.host_reply(reading.task)}), self.dialect)
        call = self.player.act(reading)
        if "tell" in tools:
            call = self._share(chat, view, reading, call)
        elif "delegate" in tools and call.name not in tools:
            call = ToolCall("delegate", {"task": f"{reading.task}\n\n{self._known(reading)}"})
        elif "report" in tools and (call.name not in tools or len(reading.turns()) >= self.patience):
            call = ToolCall("report", {"text": self._known(reading)})
        return render(call, self.dialect)

    def _share(self, chat: Chat, view: _View, reading: ParsedChat, call: ToolCall) -> ToolCall:
        """The call itself, if it is this agent's turn and tool; else telling, or waiting."""
        rules = chat.messages[0].text.rpartition("\n# Team\n")[2].partition("\n# Tools\n")[0]
        me = "".join(_YOU.findall(rules)[:1])
        agents = {name: tools.split(", ") for name, tools in _AGENT.findall(rules)}
        owners = [name for name, tools in agents.items() if call.name in tools]
        mine = me in owners
        if mine and (view.floor or (view.floor is None and owners[0] == me)):
            return call
        others = [name for name in owners if name != me]
        # Where the history is hidden, it cannot be seen who was told what; but then a hint tells the state to all, so that telling
        # it once more does no harm.
        if others and (view.floor or (view.floor is None and "state" in reading.hints)):
            return ToolCall("tell", {"agent": others[0], "text": self._known(reading), "wait": True})
        return ToolCall("wait", {})

    def _known(self, reading: ParsedChat) -> str:
        return self._state(self.player.recall(reading).state())

    @staticmethod
    def _state(text: str) -> str:
        return f"<state>\n{text}\n</state>"
