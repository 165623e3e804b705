"""Episode data for the page, with each message version stored once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentgym.text.messages import Message, ToolCall
from agentgym.text.parsing import DIALECTS, parse
from agentgym.text.tokens import TokenCounter, counter
from agentgym.training.rollout.token_usage import prompt_tokens
from agentgym.training.viewer.knowledge import known_by_seat
from agentgym.training.viewer.log_lines import (
    LoggedChat,
    LoggedEpisode,
    LoggedStep,
    decode,
    short_world,
    wrapper_names,
)

# a message's number in the pool, and its origin or edit, such as `by compaction` or `cleared`
Entry = tuple[int, str]

# the tags of appended blocks, mapped to the wrappers that append the blocks
NOTES = {
    "plan": "PlanOracle",
    "note": "PlanOracle",
    "state": "StateOracle",
    "remark": "StateOracle",
    "team": "CommunicationOracle",
    "aside": "CommunicationOracle",
    "system_warning": "ContextAwareness",
    "context_warning": "MemoryTool",
    "budget:token_budget": "ContextAwareness",
}

DROPPED = "dropped"
# Number of leading characters that a shortened result shares with the original result.
_SAME_START = 16
_WINDOW_BY_DEFAULT = 128_000


def split_notes(text: str, tags: frozenset[str]) -> list[tuple[str, str]]:
    """Split a text into tagged parts: the original, with an empty tag, and the appended blocks."""
    notes: list[tuple[str, str]] = []
    end = len(text.rstrip())
    while end:
        tag = next((tag for tag in tags if text.endswith(f"</{tag}>", 0, end)), None)
        if tag is None:
            break
        start = text.rfind(f"\n\n<{tag}>", 0, end)
        if start < 0:
            break
        block = text[start + len(tag) + 4 : end - len(tag) - 3]
        notes.append((tag, block.strip("\n")))
        end = start
    return [("", text[:end] if notes else text), *reversed(notes)]


def mark_of(first: Message, now: Message, tags: frozenset[str]) -> str:
    """Describe how a message differs from its first version, ignoring appended notes."""
    made = _made_by_wrapper(now)
    if made or first == now:
        return made
    (_, before), *old_notes = split_notes(first.text, tags)
    (_, text), *notes = split_notes(now.text, tags)
    if before != text or (first.images and not now.images):
        if now.role != "tool":
            return "rewritten"
        return "cut" if text and text[:_SAME_START] == before[:_SAME_START] else "cleared"
    if first.thinking and not now.thinking:
        return "thinking cleared"
    if first.calls != now.calls:
        return "arguments cleared"
    gone = {tag for tag, _ in old_notes} - {tag for tag, _ in notes}
    return "note removed" if gone else ""


def _made_by_wrapper(message: Message) -> str:
    wrapper, _, rest = message.id.partition(":")
    if wrapper != "compaction":
        # Mail comes from other agents of the team, not from wrappers.
        unmarked = wrapper.isdecimal() or wrapper in ("", "mail")
        return "" if unmarked else f"by {wrapper}"
    if message.role == "assistant":
        return "summary"
    return "request" if rest.endswith(":request") else "by compaction"


class MessagePool:
    """Pool that stores each message version once."""

    def __init__(self, tags: frozenset[str]) -> None:
        self.messages: list[Message] = []
        self.tags = tags

    def add(self, message: Message) -> int:
        """Store a new version and return its number."""
        self.messages.append(message)
        return len(self.messages) - 1

    def data(self) -> list[dict[str, Any]]:
        """Return all message versions as JSON-able data."""
        return [self._data(message) for message in self.messages]

    def _data(self, message: Message) -> dict[str, Any]:
        data: dict[str, Any] = {"id": message.id, "role": message.role}
        if message.role == "assistant":
            data["parts"] = [("", message.text)]
            data["thinking"], data["calls"] = message.thinking, call_data(message.calls)
        else:
            data["parts"] = split_notes(message.text, self.tags)
        for image in message.images:
            data.setdefault("images", []).append({"url": image.to_data_url(), "alt": image.alt})
        return data


class Timeline:
    """All messages that one agent has seen; each message keeps its position. `new` contains the
    messages first shown by the last update.
    """

    def __init__(self, pool: MessagePool, tokens: TokenCounter) -> None:
        self.tokens = 0
        self.new: list[int] = []
        self._pool, self._counter = pool, tokens
        self._entries: list[Entry] = []
        self._first: dict[str, Message] = {}
        self._places: dict[str, int] = {}
        self._shown: list[int] = []

    def __len__(self) -> int:
        return len(self._shown)

    def update(
        self, kept: int, messages: Sequence[Message], *, new_chat: bool = False
    ) -> dict[str, Any]:
        """Apply a turn's chat: `kept` messages of the previous chat, followed by `messages`. A new
        chat reuses message ids.

        In the result, `set` replaces entries by position, `add` appends entries, and `clear`
        removes all earlier entries. If `kept` is too large, `ValueError` is raised.
        """
        if not 0 <= kept <= len(self._shown):
            raise ValueError(f"kept must be in [0, {len(self._shown)}], got {kept}")
        self.new = []
        gone = dict.fromkeys(self._shown[kept:])
        del self._shown[kept:]
        self.tokens -= sum(map(self._count, gone))
        if new_chat:
            self._first = {}
            changes = self._rebuild(messages)
            self.new = []  # a chat's opening messages are not results of an earlier reply
            return changes
        if not self._fits(messages):
            return self._rebuild(messages)
        changed: dict[int, Entry] = {}
        added: list[Entry] = []
        for message in messages:
            place = self._places.get(message.id)
            if place is None:
                added.append(self._append(message))
            else:
                gone.pop(place, None)
                self._replace(place, message, changed)
                self._shown.append(place)
                self.tokens += self._count(place)
        for place in gone:
            changed[place] = self._entries[place] = self._entries[place][0], DROPPED
        return {"set": [(place, *entry) for place, entry in changed.items()], "add": added}

    def _fits(self, messages: Sequence[Message]) -> bool:
        place, ends = self._shown[-1] if self._shown else -1, len(self._entries)
        for message in messages:
            known = self._places.get(message.id, ends)
            if known <= place and known != ends:
                return False
            place = known
        return len({message.id for message in messages}) == len(messages)

    def _append(self, message: Message) -> Entry:
        number = self._pool.add(message)
        if message.id not in self._first:
            self._first[message.id] = message
            self.new.append(number)
        entry = number, self._mark(message)
        self._places[message.id] = len(self._entries)
        self._shown.append(len(self._entries))
        self._entries.append(entry)
        self.tokens += self._counter.count(message)
        return entry

    def _replace(self, place: int, message: Message, changed: dict[int, Entry]) -> None:
        old = self._entries[place]
        number = old[0] if self._message(place) == message else self._pool.add(message)
        entry = number, self._mark(message)
        if entry != old:
            changed[place] = self._entries[place] = entry

    def _mark(self, message: Message) -> str:
        return mark_of(self._first[message.id], message, self._pool.tags)

    def _rebuild(self, messages: Sequence[Message]) -> dict[str, Any]:
        shown = list(map(self._message, self._shown))
        self._entries, self._places, self._shown, self.tokens = [], {}, [], 0
        return {"clear": True, "add": list(map(self._append, [*shown, *messages]))}

    def _count(self, place: int) -> int:
        return self._counter.count(self._message(place))

    def _message(self, place: int) -> Message:
        return self._pool.messages[self._entries[place][0]]


def build_view(line: bytes, best: Sequence[Any] = ()) -> dict[str, Any]:
    """Return an episode's data for the page; `best` is the output of `optimal_calls`.

    Raises:
        ValueError: The line is not a trajectory.
    """
    try:
        return _Builder(decode(line, LoggedEpisode), best).build()
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"the line must be a trajectory ({error!r})") from None


class _Builder:
    def __init__(self, episode: LoggedEpisode, best: Sequence[Any]) -> None:
        self._episode, self._best = episode, best
        names = wrapper_names(episode.spec)
        # A team's wrappers are given as env options.
        team = "team" in episode.spec.get("kwargs", {})
        self._pool = MessagePool(
            frozenset(tag for tag, wrapper in NOTES.items() if team or wrapper in names)
        )
        self._timelines: defaultdict[str, Timeline] = defaultdict(
            lambda: Timeline(self._pool, counter("heuristic"))
        )
        self._records: dict[str, Mapping[str, Any]] = {}
        # the number of each agent's current chat
        self._tasks: dict[str, Any] = {}
        # for each step, the agent and the messages first shown in the agent's chat
        self._news: list[tuple[str, list[int]]] = []

    def build(self) -> dict[str, Any]:
        episode = self._episode
        turns = [self._turn(k, step) for k, step in enumerate(episode.steps)]
        agent = turns[-1]["agent"] if turns else ""
        changes, edits = self._update(agent, episode.last)
        end = {
            "agent": agent,
            "changes": changes,
            "shown": len(self._timelines[agent]),
            "edits": edits,
        }
        self._add_results(turns)
        messages = self._pool.data()
        return {
            "world": short_world(episode.spec),
            "seed": episode.seed,
            "labels": episode.labels,
            "failure": episode.failure,
            "spec": episode.spec,
            "window": _window(episode.spec),
            "turns": turns,
            "end": end,
            "messages": messages,
            "knowledge": known_by_seat([*turns, end], messages),
            "tools": self._tools(),
        }

    def _update(
        self, agent: str, chat: LoggedChat, *, new_chat: bool = False
    ) -> tuple[dict[str, Any], list[Any]]:
        timeline, messages = self._timelines[agent], list(map(Message.from_dict, chat.messages))
        changes = timeline.update(chat.kept, messages, new_chat=new_chat)
        self._news.append((agent, timeline.new))
        return changes, self._records.get(agent, {}).get("edits", [])

    def _turn(self, number: int, step: LoggedStep) -> dict[str, Any]:
        info = step.info
        agent = str(info.get("agent") or "")
        task = info.get("task")
        changed = task != self._tasks.setdefault(agent, task)
        self._tasks[agent] = task
        changes, edits = self._update(agent, step, new_chat=changed)
        record = self._records[agent] = info.get("context") or {}
        turn = {
            "agent": agent,
            "changes": changes,
            "shown": len(self._timelines[agent]),
            "tokens": prompt_tokens(record) if record else self._timelines[agent].tokens,
            "counter": record.get("counter", ""),
            "edits": edits,
            "reply": self._reply(step.reply.text, record.get("phase") == "summary"),
            "reward": step.reward,
            "info": {name: value for name, value in info.items() if name != "agent"},
        }
        if number < len(self._best):
            turn["best"] = self._best[number]
        return turn

    def _reply(self, text: str, summary: bool) -> dict[str, Any]:
        dialect = self._episode.spec.get("kwargs", {}).get("dialect", "auto")
        message = parse(text, dialect if dialect in DIALECTS else "auto")
        return {
            "summary": summary,
            "raw": text,
            "text": message.text,
            "thinking": message.thinking,
            "calls": [] if summary else call_data(message.calls),
        }

    def _add_results(self, turns: Sequence[dict[str, Any]]) -> None:
        """Attach to each reply its tool results, which are in the agent's next chat. If the last
        chat is the first to show the results of earlier turns, store these as `hidden`.
        """
        if not turns:
            return
        following: dict[str, list[int]] = {}
        for place in range(len(turns), -1, -1):
            agent, new = self._news[place]
            if place < len(turns):
                turns[place]["results"] = following.get(agent, [])
            following[agent] = [k for k in new if self._pool.messages[k].role != "assistant"]
        by_turn: dict[str, list[int]] = {}
        for number in turns[-1]["results"]:
            turn_id = self._pool.messages[number].id.partition(":")[0]
            by_turn.setdefault(turn_id, []).append(number)
        if len(by_turn) > 1 and not turns[-1]["agent"]:
            for turn in turns:
                turn["hidden"] = by_turn.get(str(turn["info"].get("turn")), [])
            last = turns[-1]
            last["results"], last["hidden"] = last["hidden"], []

    def _tools(self) -> list[dict[str, Any]]:
        tools: dict[str, dict[str, Any]] = {}
        for step in self._episode.steps:
            for tool in step.tools or ():
                tools[str(tool["name"])] = tool
        return list(tools.values())


def call_data(calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
    """Return calls as JSON-able data."""
    return [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]


def _window(spec: Mapping[str, Any]) -> int | None:
    default = None
    for item in spec.get("additional_wrappers") or ():
        arguments = item.get("kwargs") or {}
        if arguments.get("budget"):
            return int(arguments["budget"]["window"])
        if "budget" in arguments:
            default = _WINDOW_BY_DEFAULT
    window = spec.get("kwargs", {}).get("window")
    return window if isinstance(window, int) else default
