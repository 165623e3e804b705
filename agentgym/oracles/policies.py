"""Scripted policies; like models, they are stateless functions of the chats.

Random choices depend only on the seed, the instance and the turn (`Message.moment`), not on the
oracles.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agentgym.assemble.registry import resolve
from agentgym.oracles.choices import best_call, choose, wrong_call
from agentgym.oracles.reading import (
    ChatReading,
    ParsedChat,
    Readings,
    apply_event,
    read_state,
    read_task,
)
from agentgym.oracles.recall import TOOL, read_pages
from agentgym.play.policy import Reply
from agentgym.play.spaces import sample_call
from agentgym.text.messages import Chat, ToolCall
from agentgym.text.parsing import Dialect
from agentgym.text.validation import check_bool, check_float, check_int
from agentgym.world.config import Config, Share
from agentgym.world.world import World, check_hooks, has_hook, load_world
from agentgym.wrappers.memory_store import ROOT

NOTE = f"{ROOT}/state.md"
"""The file in which scripted policies save the state with `agentgym.wrappers.MemoryTool`."""
_MEMORY = "memory"
_LINE_NUMBER = re.compile(r"(?m)^[0-9]+\t")


class ScriptedPolicy:
    """Policy for one world that chooses a call from the chat.

    Args:
        env_id: The id of the world or of a preset.
        seed: The seed of the random choices.
        dialect: The format of calls; `auto` uses the format that the system message requests.
        notes: Whether to save the state with `MemoryTool`, if the chat offers it, before older
            messages are removed.
    """

    hooks: ClassVar[tuple[str, ...]] = ("read_task", "read_result")

    def __init__(
        self, env_id: str, seed: int = 0, dialect: Dialect = "auto", notes: bool = False
    ) -> None:
        check_int("seed", seed, 0, 2**32 - 1)
        check_bool("notes", notes)
        self.world = load_world(gymnasium.spec(resolve(env_id)).kwargs["world"])
        check_hooks(self.world, self.hooks, type(self).__name__)
        self.seed = seed
        self.dialect = dialect
        self.notes = notes
        self._readings = Readings(ChatReading)

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        with self.read(chat) as parsed:
            return Reply(self.write(parsed))

    @contextmanager
    def read(self, chat: Chat) -> Iterator[ParsedChat]:
        """Yield the parsed chat, which changes when the policy reads the next observation."""
        with self._readings.read(chat) as reading:
            yield reading.parsed(chat)

    def write(self, parsed: ParsedChat) -> str:
        """Write the requested summary or a call; if a state hint is partial, request the rest."""
        if parsed.summarize:
            return f"<state>\n{self.remember(parsed).state()}\n</state>"
        call = ask_for_state(parsed) or self.take_note(parsed) or self.act(parsed)
        return parsed.render(call, self.dialect)

    def take_note(self, parsed: ParsedChat) -> ToolCall | None:
        """Return the memory call that must precede the next action, or None."""
        if not self.notes:
            return None
        return choose_memory_call(parsed, lambda: self.remember(parsed).state())

    def act(self, parsed: ParsedChat) -> ToolCall:
        """Choose a call."""
        raise NotImplementedError

    def remember(self, parsed: ParsedChat) -> World[object]:
        """Return the world that the policy's summary describes."""
        return self.recall(parsed)

    def recall(self, parsed: ParsedChat) -> World[object]:
        """Return the world described by a hint, a note, or the summary and the calls after it."""
        state, _ = read_pages(parsed.hints.get("state", ""))
        if state:
            world = read_task(self.world, parsed.task)
            if read_state(world, state):
                return world
        if self.notes and (noted := recall_from_note(self.world, parsed)):
            return noted
        return parsed.past.world(self.world, parsed.task, parsed.summary)

    def draw(self, parsed: ParsedChat) -> np.random.Generator:
        """Return a random generator that depends only on the seed, the instance and the turn.

        In chats parsed from plain text, the text of the task identifies the instance.
        """
        moment = parsed.moment or f"{parsed.task}:{parsed.past.turns}"
        return np.random.default_rng((self.seed, zlib.crc32(moment.encode())))


def ask_for_state(parsed: ParsedChat) -> ToolCall | None:
    """Return the call that requests the rest of a state hint, or None."""
    _, pages = read_pages(parsed.hints.get("state", ""))
    return ToolCall(TOOL, {"pages": [*pages]}) if pages else None


class OraclePolicy(ScriptedPolicy):
    """Policy that plays the first optimal call, or a legal call if the state is lost."""

    hooks = (*ScriptedPolicy.hooks, "optimal_calls")

    def act(self, parsed: ParsedChat) -> ToolCall:
        return best_call(self.recall(parsed))


class RandomPolicy(ScriptedPolicy):
    """Policy that plays random calls, and only legal calls if the world lists them."""

    hooks = ()

    def __init__(self, env_id: str, seed: int = 0, dialect: Dialect = "auto") -> None:
        super().__init__(env_id, seed, dialect)
        self._reads_chat = self._has(*ScriptedPolicy.hooks, "legal_calls")
        self._sums_up = self._reads_chat and self._has("state", "read_state")

    def _has(self, *hooks: str) -> bool:
        return all(has_hook(self.world, hook) for hook in hooks)

    def write(self, parsed: ParsedChat) -> str:
        return "" if parsed.summarize and not self._sums_up else super().write(parsed)

    def act(self, parsed: ParsedChat) -> ToolCall:
        if not self._reads_chat:
            return sample_call(parsed.tools, self.draw(parsed))
        return choose(self.recall(parsed).legal_calls(), self.draw(parsed))


class NoisyPolicy(ScriptedPolicy):
    """Policy that errs with probability `p` and otherwise plays optimally."""

    hooks = (*OraclePolicy.hooks, "legal_calls")

    def __init__(
        self,
        env_id: str,
        p: float,
        seed: int = 0,
        dialect: Dialect = "auto",
        notes: bool = False,
    ) -> None:
        check_float("p", p, 0.0, 1.0)
        super().__init__(env_id, seed, dialect, notes)
        self.p = p

    def act(self, parsed: ParsedChat) -> ToolCall:
        world = self.recall(parsed)
        rng = self.draw(parsed)
        return wrong_call(world, rng) if rng.random() < self.p else best_call(world)


@dataclass(frozen=True)
class Deficits(Config):
    """Deficits of an agent, as probabilities in [0, 1].

    Attributes:
        planning: The probability that a call is wrong even if the state is known; a plan hint in
            the newest message prevents this.
        tracking: The probability, at each step and for each earlier tool result, that the agent
            forgets the result; a state hint in the newest message prevents this.
        distraction: The probability, per reply in the history, that the next call is random;
            removing the history prevents this.
    """

    planning: Share = 0.0
    tracking: Share = 0.0
    distraction: Share = 0.0


class ControlPolicy(ScriptedPolicy):
    """Policy that plays optimally except for its deficits.

    This policy is a positive control: an oracle ablation must detect its known deficits.
    The policy follows plan hints and takes the state from state hints.
    """

    hooks = NoisyPolicy.hooks

    def __init__(
        self, env_id: str, deficits: Deficits, seed: int = 0, dialect: Dialect = "auto"
    ) -> None:
        super().__init__(env_id, seed, dialect)
        self.deficits = deficits

    def act(self, parsed: ParsedChat) -> ToolCall:
        world = self.recall(parsed)
        # Each deficit has its own random stream, so that no deficit changes another's draws.
        distracted, planning, tracking = self.draw(parsed).spawn(3)
        if distracted.random() >= (1 - self.deficits.distraction) ** parsed.past.turns:
            return choose(world.legal_calls(), distracted)
        if "state" not in parsed.hints:
            world = self._recall_with_gaps(parsed, tracking)
        if "plan" in parsed.hints:
            return world.read_subtask(parsed.hints["plan"]) or best_call(world)
        if planning.random() < self.deficits.planning:
            return wrong_call(world, planning)
        return best_call(world)

    def remember(self, parsed: ParsedChat) -> World[object]:
        if "state" in parsed.hints:
            return self.recall(parsed)
        return self._recall_with_gaps(parsed, self.draw(parsed).spawn(3)[2])

    def _recall_with_gaps(self, parsed: ParsedChat, rng: np.random.Generator) -> World[object]:
        if not self.deficits.tracking:
            return parsed.past.world(self.world, parsed.task, parsed.summary)
        world = read_task(self.world, parsed.task)
        read_state(world, parsed.summary)
        for event in parsed.past.events:
            if event is None or rng.random() >= self.deficits.tracking:
                apply_event(world, event)
        return world


class ThinkingPolicy:
    """Policy that adds the world's reasoning to another policy's calls, to teach small models.

    Only calls of world tools get reasoning, unless the chat shows both a plan and a state hint.

    Example:
        >>> teacher = ThinkingPolicy(NoisyPolicy("ListWorld", 0.2))
    """

    def __init__(self, policy: ScriptedPolicy) -> None:
        self.policy = policy

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        with self.policy.read(chat) as parsed:
            told = {"plan", "state"} <= parsed.hints.keys()
            if parsed.summarize or told or ask_for_state(parsed) or self.policy.take_note(parsed):
                return Reply(self.policy.write(parsed))
            call = self.policy.act(parsed)
            thought = self.policy.recall(parsed).reasoning(call)
            return Reply(f"<think>{thought}</think>{parsed.render(call, self.policy.dialect)}")


def choose_memory_call(parsed: ParsedChat, describe: Callable[[], str]) -> ToolCall | None:
    """Return the memory call that must precede the next action, or None.

    The policy saves the state that `describe` returns when the context is nearly full, and looks
    for a note whenever the chat shows no memory call.
    """
    # A state hint or a summary already contains the note's contents.
    if "state" in parsed.hints or not any(tool.name == _MEMORY for tool in parsed.tools):
        return None
    used = [event for event in parsed.past.events if event and event[0].name == _MEMORY]
    newest = used[-1][0].arguments if used else {}
    read_back = newest.get("command") == "view" and newest.get("path") == NOTE
    # After reading a note, save the state again, because later calls may have changed it.
    if parsed.warned or read_back:
        return ToolCall(_MEMORY, {"command": "create", "path": NOTE, "file_text": describe()})
    if not used and not parsed.summary:
        return ToolCall(_MEMORY, {"command": "view", "path": ROOT})
    if newest.get("path") == ROOT and NOTE in used[-1][1]:
        return ToolCall(_MEMORY, {"command": "view", "path": NOTE})
    return None


def recall_from_note(kind: type[World[Any]], parsed: ParsedChat) -> World[object] | None:
    """Return the world implied by the newest visible note and the calls after it, or None."""
    events = parsed.past.events
    for place in reversed(range(len(events))):
        event = events[place]
        if event is None or not (note := _read_note(event)):
            continue
        world = kind.read_task(parsed.task)
        if not read_state(world, note):
            return None
        if event[0].arguments["command"] == "create":
            world.turn += 1
            events = events[place + 1 :]
        # If the note was read with `view`, all visible calls are newer than the note.
        for later in events:
            apply_event(world, later)
        return world
    return None


def _read_note(event: tuple[ToolCall, str]) -> str:
    call, result = event
    if call.name != _MEMORY or call.arguments.get("path") != NOTE:
        return ""
    if call.arguments["command"] == "create":
        return str(call.arguments["file_text"])
    return _LINE_NUMBER.sub("", result)
