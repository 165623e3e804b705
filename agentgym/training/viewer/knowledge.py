"""The facts of a team's episode, and the turn at which each seat first knows them.

A fact is a tool call with its result or message. The caller knows the fact immediately. The
receiver of a message knows the fact as soon as its chat shows the message. Other seats know the
fact once their chats show it in the log of oracle C or in the list of moves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.multi.host import ANSWERS, GUESSER, HOST
from agentgym.multi.kinds import MANAGER
from agentgym.multi.match import PLAYED
from agentgym.multi.team import HEADING, TeamAction
from agentgym.oracles.communication import describe_action
from agentgym.text.messages import TASK_ID, ToolCall
from agentgym.world.seated import COMMITTED

_REFUSED = ("error:", "The referee:")
_WAITED = "You wait."
_LOG_TAG = "team"


@dataclass
class _Fact:
    """A call, and the seats that know about the call.

    Attributes:
        number: The call's position in the reply.
        result: The number of the message that contains the result; None if no chat shows it.
        receiver: The seat that the call addresses; empty if there is none or it is unknown.
        known: The first turn at which each seat knows the fact.
        arrived: The text that another seat received, if it differs from the call's text.
    """

    turn: int
    agent: str
    number: int
    call: Mapping[str, Any]
    result: int | None
    text: str
    receiver: str
    known: dict[str, int]
    arrived: str = ""

    @property
    def is_message(self) -> bool:
        accepted = not self.text.startswith(_REFUSED)
        return accepted and (bool(self.receiver) or self.call["name"] == "delegate")

    @property
    def sent(self) -> str:
        arguments = self.call["arguments"]
        return str(arguments.get("text") or arguments.get("task") or "")


@dataclass
class _Shown:
    """Log lines and moves shown to a seat."""

    task: int = 1
    read: dict[str, int] = field(default_factory=dict)
    lines: Counter[str] = field(default_factory=Counter)
    moves: int = 0


def known_by_seat(
    steps: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the facts of a team with the turn at which each seat first knows them.

    `steps` are the page's turns, followed by the chat after the last turn; `messages` are the
    page's message versions. Facts have the fields of `_Fact`. If fewer than two seats acted, there
    are no facts.
    """
    if len({step["agent"] for step in steps}) < 2:
        return []
    facts = list(_facts(steps[:-1], messages))
    # Chat numbers exceed 1 only if seats take turns.
    in_turn = any(_task(step) > 1 for step in steps)
    reader = _Reader(facts, messages, in_turn)
    for place, step in enumerate(steps):
        reader.read(place, step)
    names = ("turn", "agent", "number", "result", "known", "arrived")
    return [{name: getattr(fact, name) for name in names} for fact in facts]


def _facts(
    turns: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]
) -> Iterator[_Fact]:
    for place, turn in enumerate(turns):
        agent = turn["agent"]
        results = {}
        for number in turn["results"]:
            if messages[number]["role"] == "tool":
                results[messages[number]["id"].rpartition(":")[2]] = number
        for k, call in enumerate(turn["reply"]["calls"]):
            result = results.get(str(k + 1))
            text = "" if result is None else str(messages[result]["parts"][0][1])
            if call["name"] == "wait" and text in ("", _WAITED):
                continue
            receiver = _receiver(agent, call, text)
            yield _Fact(place, agent, k, call, result, text, receiver, {agent: place})


def _task(step: Mapping[str, Any]) -> int:
    """Return the seat's chat number, or 0 for the chat after the last turn."""
    return int(step.get("info", {}).get("task", 0))


def _receiver(agent: str, call: Mapping[str, Any], result: str) -> str:
    if call["name"] == "tell":
        return str(call["arguments"].get("agent"))
    if call["name"] == "delegate":
        return result.partition(" ")[0]
    if agent == GUESSER and result in ("", f"{HOST} is asked."):
        return HOST
    return {"report": MANAGER, "answer": GUESSER}.get(call["name"], "")


def _mails(text: str) -> Iterator[tuple[str, str]]:
    start = 0
    while found := HEADING.match(text, start):
        end = found.end() + int(found[2])
        yield found[1], text[found.end() : end]
        start = end + len("\n\n")


def _log_lines(message: Mapping[str, Any]) -> Sequence[str]:
    for tag, note in message["parts"][1:]:
        if tag == _LOG_TAG:
            return str(note).split("\n")
    return ()


class _Reader:
    def __init__(
        self, facts: list[_Fact], messages: Sequence[Mapping[str, Any]], in_turn: bool
    ) -> None:
        self.facts, self._messages = facts, messages
        self._shown: defaultdict[str, _Shown] = defaultdict(_Shown)
        self._undelivered: list[_Fact] = []
        self._by_line: defaultdict[str, list[_Fact]] = defaultdict(list)
        for fact in facts:
            if fact.is_message:
                self._undelivered.append(fact)
            elif not fact.text.startswith(_REFUSED):
                call = ToolCall(fact.call["name"], fact.call["arguments"])
                entry = describe_action(TeamAction(fact.agent, call, ""))
                self._by_line[entry.partition("\n")[0]].append(fact)
        # The moves of a match by line number; simultaneous moves share a line.
        self._moves: defaultdict[int, list[_Fact]] = defaultdict(list)
        made: Counter[str] = Counter()
        for fact in facts:
            if fact.text in ("", COMMITTED):
                line = "" if in_turn else fact.agent
                self._moves[made[line]].append(fact)
                made[line] += 1

    def read(self, place: int, step: Mapping[str, Any]) -> None:
        seat, changes = step["agent"], step["changes"]
        numbers = [number for _, number, _ in changes.get("set", ())]
        numbers += [number for number, _ in changes["add"]]
        shown = [self._messages[number] for number in numbers]
        if _task(step) > self._shown[seat].task:
            self._shown[seat] = _Shown(_task(step))
            self._read_opening(place, seat, shown)
        for message in shown:
            if message["id"].startswith("mail:") and message["id"] not in self._shown[seat].read:
                self._read_mail(place, seat, message["parts"][0][1])
            self._read_log(place, seat, message)

    def _read_opening(self, place: int, seat: str, shown: Sequence[Mapping[str, Any]]) -> None:
        if COMMITTED in {fact.text for fact in self.facts}:
            for line, moves in self._moves.items():
                if moves[0].turn < place:
                    self._tell(place, seat, line, "")
                    self._shown[seat].moves = line + 1
            return
        for message in shown:
            if message["id"] == TASK_ID:
                self._deliver(place, seat, "", message["parts"][0][1])

    def _read_log(self, place: int, seat: str, message: Mapping[str, Any]) -> None:
        shown, key = self._shown[seat], message["id"]
        lines = _log_lines(message)
        for line in lines[shown.read.get(key, 0) :]:
            # Equal entries appear in the order of their calls.
            number = shown.lines[line]
            for fact in self._by_line.get(line, [])[number : number + 1]:
                if fact.turn < place:
                    fact.known.setdefault(seat, place)
                    shown.lines[line] += 1
        shown.read[key] = max(shown.read.get(key, 0), len(lines))

    def _read_mail(self, place: int, seat: str, text: str) -> None:
        shown = self._shown[seat]
        if text.startswith(f"{PLAYED}\n"):
            for line in text.split("\n")[1:]:
                self._tell(place, seat, shown.moves, line)
                shown.moves += 1
        elif text.startswith(f"{ANSWERS}\n"):
            self._deliver(place, seat, HOST, text.partition("\n")[2])
        for sender, arrived in _mails(text):
            self._deliver(place, seat, sender, arrived)

    def _tell(self, place: int, seat: str, line: int, text: str) -> None:
        for fact in self._moves.get(line, ()):
            if seat not in fact.known:
                fact.known[seat] = place
                fact.arrived = text

    def _deliver(self, place: int, seat: str, sender: str, text: str) -> None:
        waiting = []
        for fact in self._undelivered:
            if fact.turn < place and fact.receiver in (seat, "") and sender in (fact.agent, ""):
                waiting.append(fact)
        intact = [fact for fact in waiting if fact.sent.startswith(text)]
        for fact in (intact or waiting)[:1]:
            fact.known[seat] = place
            fact.arrived = "" if intact else text
            self._undelivered.remove(fact)
