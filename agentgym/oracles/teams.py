"""Scripted teams, whose agents send their state to the agent that must act next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentgym.multi.channel import NOISE_NOTE
from agentgym.multi.team import HEADING
from agentgym.oracles.hints import HISTORY_NOTE, split_hints
from agentgym.oracles.policies import OraclePolicy, ScriptedPolicy, ask_for_state
from agentgym.oracles.reading import ChatReading, ParsedChat, PastCalls, Readings
from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message, ToolCall
from agentgym.text.parsing import Dialect, render
from agentgym.text.validation import check_int
from agentgym.world.world import World, check_hooks
from agentgym.wrappers.compaction import SUMMARY_FOLLOWS

TEAM_TOOLS = frozenset({"tell", "wait", "delegate", "report"})

_STATE_END = "\n</state>"
_STATE = re.compile(rf"<state>\n(.*?){_STATE_END}", re.DOTALL)
_MINE, _THEIRS = "It is my turn.", "It is another agent's turn."
_YOU = re.compile(r"You are ([a-z]+_[0-9]+)[.,]")
_AGENT = re.compile(r"^- ([a-z]+_[0-9]+): (.*)$", re.MULTILINE)
_HOST = "\n# Host\nYou are host_0"
# These headings start messages that replace the provisional result of a call.
_FINAL = re.compile(r"(?:host_0 answers|The moves since your last turn):\n")
_ROOM = re.compile(r"you send another agent at most ([0-9]{1,9}) characters")
_PART = re.compile(r"<part ([0-9]{1,6}) of ([0-9]{1,6})>\n(.*)\n</part>", re.DOTALL)
_BEGUN = "\n<part "
_PART_TAGS = len("<part 1000 of 1000>\n\n</part>")


class _TeamReading(ChatReading):
    """State of a team agent's chat, including whether it is the agent's turn.

    Attributes:
        has_floor: Whether it is the agent's turn; None if unknown.
        parts: The number of the last received part of a long state, and the total number of parts.
    """

    def __init__(self, chat: Chat) -> None:
        super().__init__(chat)
        self.has_floor: bool | None = None
        self.parts = (0, 0)
        self.begun = ""
        self.parts_sent = 0
        self._calls: tuple[ToolCall, ...] = ()

    def take(self, message: Message, before: str) -> None:
        text = split_hints(message.text)[0]
        if message.role == "assistant":
            self._calls = message.calls
        names = {call.name for call in self._calls}
        if text.startswith(SUMMARY_FOLLOWS):
            self.take_summary(split_hints(before)[0])
        elif message.role == "user" and (heading := HEADING.match(text)):
            self.take_mail(text[heading.end() :])
        elif (final := _FINAL.match(text)) and not self.past.empty:
            self.past.replace_newest(text[final.end() :])
        elif not names or names - TEAM_TOOLS:
            self.past.take(message)
        if message.role == "tool" and not text.startswith("error:"):
            if names - TEAM_TOOLS:
                self.has_floor, self.parts_sent = True, 0
            elif "tell" in names:
                self.note_sent(str(self._calls[0].arguments.get("text")))

    def take_mail(self, text: str) -> None:
        part = _PART.match(text)
        if part is None:
            self.take_state(text)
            self.has_floor = True
            return
        number, count = int(part[1]), int(part[2])
        if number == 1:
            self.begun = part[3]
        elif self.parts == (number - 1, count):
            self.begun += part[3]
        else:  # a part is missing, so keep the older state
            number = count + 1
        self.parts = (number, count)
        if number == count:
            self.take_state(self.begun)
        self.has_floor = number >= count

    def take_summary(self, text: str) -> None:
        self.take_state(text)
        self.has_floor = text.endswith(_MINE) if text.endswith((_MINE, _THEIRS)) else None
        if part := _PART.match(text, text.find(_BEGUN) + 1):
            self.parts = int(part[1]), int(part[2])
            self.begun = part[3]

    def write_summary(self, state: str) -> str:
        number, count = self.parts
        begun = f"{_BEGUN}{number} of {count}>\n{self.begun}\n</part>" if number < count else ""
        whose_turn = {None: "", True: _MINE, False: _THEIRS}[self.has_floor]
        return f"{state}{begun}\n{whose_turn}".rstrip()

    def note_sent(self, text: str) -> None:
        part = _PART.fullmatch(text)
        self.has_floor, self.parts_sent = False, 0
        if part and part[1] != part[2]:
            self.has_floor, self.parts_sent = True, int(part[1])

    def take_state(self, text: str) -> None:
        # Drop unclosed blocks, because matching the pattern to them would take quadratic time.
        closed, end, _ = text.rpartition(_STATE_END)
        if states := _STATE.findall(closed + end):
            self.summary, self.past = states[-1], PastCalls()


class TeamPolicy:
    """Policy that plays all agents of a team with one scripted policy.

    In a split team, the agent that has the tool makes the next call; the other agents send that
    agent the state and wait. A manager delegates the calls that it cannot make. A host
    computes its answer from the question alone.

    Args:
        env_id: The id of the team.
        player: The policy that chooses the calls; by default `OraclePolicy`.
        dialect: The format of calls.
        patience: The maximum number of turns of a sub-task.

    Example:
        >>> policy = TeamPolicy("ListWorld-team")
    """

    def __init__(
        self,
        env_id: str,
        player: ScriptedPolicy | None = None,
        dialect: Dialect = "auto",
        patience: int = 8,
    ) -> None:
        check_int("patience", patience, 1, 1_000_000)
        self.player = player or OraclePolicy(env_id, dialect=dialect)
        check_hooks(self.player.world, ("state", "read_state"), "TeamPolicy")
        self.dialect, self.patience = dialect, patience
        self._readings = Readings(_TeamReading)

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        with self._readings.read(chat) as view:
            try:
                return Reply(self._write(chat, view))
            except (ValueError, LookupError):
                if NOISE_NOTE not in chat.messages[0].text:
                    raise
                return Reply(self._excuse(chat))

    def _excuse(self, chat: Chat) -> str:
        if "report" in {tool.name for tool in chat.tools}:
            call = ToolCall("report", {"text": "I cannot read the sub-task."})
        else:
            call = ToolCall("wait", {})
        return render(call, self.dialect)

    def _write(self, chat: Chat, view: _TeamReading) -> str:
        parsed, tools = view.parsed(chat), {tool.name for tool in chat.tools}
        if "report" in tools and not parsed.summary:
            task = chat.messages[chat.pinned() - 1].text
            parsed = replace(parsed, summary=next(iter(_STATE.findall(task)), ""))
        if parsed.summarize:
            return view.write_summary(_tag(self.player.remember(parsed)))
        if _HOST in chat.messages[0].text:
            hosted: Any = self.player.world
            return parsed.render(
                ToolCall("answer", {"text": hosted.host_reply(parsed.task)}), self.dialect
            )
        if _is_hidden(chat) and (request := ask_for_state(parsed)):
            return parsed.render(request, self.dialect)  # the agent knows only the state
        call = self.player.act(parsed)
        if "tell" in tools:
            call = self._share(chat, view, parsed, call)
        elif "delegate" in tools and call.name not in tools:
            call = ToolCall(
                "delegate", {"task": f"{parsed.task}\n\n{_tag(self.player.recall(parsed))}"}
            )
        elif "report" in tools and (call.name not in tools or parsed.past.turns >= self.patience):
            call = ToolCall("report", {"text": _tag(self.player.recall(parsed))})
        return parsed.render(call, self.dialect)

    def _share(
        self, chat: Chat, view: _TeamReading, parsed: ParsedChat, call: ToolCall
    ) -> ToolCall:
        rules = chat.messages[0].text.rpartition("\n# Team\n")[2].partition("\n# Tools\n")[0]
        me = "".join(_YOU.findall(rules)[:1])
        agents = {name: tools.split(", ") for name, tools in _AGENT.findall(rules)}
        owners = [name for name, tools in agents.items() if call.name in tools]
        if me in owners and (view.has_floor or (view.has_floor is None and owners[0] == me)):
            return call
        others = [name for name in owners if name != me]
        # If the history is hidden, the agent may send the state twice, which is harmless.
        if others and (view.has_floor or (view.has_floor is None and _is_hidden(chat))):
            room = int(next(iter(_ROOM.findall(rules)), 0))
            text, last = _message(_tag(self.player.recall(parsed)), view, room)
            return ToolCall("tell", {"agent": others[0], "text": text, "wait": last})
        return ToolCall("wait", {})


def _is_hidden(chat: Chat) -> bool:
    return HISTORY_NOTE in chat.messages[0].text


def _tag(world: World[Any]) -> str:
    return f"<state>\n{world.state()}\n</state>"


def _message(state: str, view: _TeamReading, room: int) -> tuple[str, bool]:
    if not room or len(state) <= room:
        return state, True
    if view.has_floor is None:  # a hint shows all agents the state
        return "It is your turn.", True
    size = max(1, room - _PART_TAGS)
    count, start = -(-len(state) // size), view.parts_sent * size
    number = view.parts_sent + 1
    return f"<part {number} of {count}>\n{state[start : start + size]}\n</part>", number >= count
