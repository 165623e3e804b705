"""Scripted policies: they read the text of the chat and nothing else, so what they can do, a model
can do.

They are batched, stateless functions of the chats. What they draw depends on their seed, the
instance and the turn (`Message.moment`), so the same moment is played alike in every arm of an
ablation, which makes paired comparisons sharp, and no two instances and turns are.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import gymnasium
import numpy as np

from agentgym.arguments import check_float, check_int
from agentgym.messages import Chat, Message, ToolCall
from agentgym.oracles.choices import best_call, choose, wrong_call
from agentgym.oracles.hints import split_hints
from agentgym.parsing import Dialect, render
from agentgym.policy import Reply
from agentgym.prompts import read_dialect
from agentgym.registry import resolve
from agentgym.spaces import sample_call
from agentgym.tools import Tool
from agentgym.world import World, check_hooks, has_hook, load_world
from agentgym.wrappers.compaction import SUMMARY_FOLLOWS, SUMMARY_REQUEST

_FROM_WRAPPERS = (SUMMARY_REQUEST, SUMMARY_FOLLOWS)


@dataclass(frozen=True, slots=True)
class ParsedChat:
    """The contents of a chat, split up.

    Attributes:
        task: The text of the task message, without hints.
        history: The messages after the task, and after the summary if there is one.
        hints: The hints of the newest message, by tag.
        summary: The state that the policy has written into its last summary; empty if there is
            none.
        summarize: Whether a summary is asked for in place of a call.
        tools: The tools on offer.
        moment: The moment of the newest message that has one (`Message.moment`).
        dialect: The form in which the env asks for calls.
    """

    task: str
    history: tuple[Message, ...]
    hints: dict[str, str]
    summary: str = ""
    summarize: bool = False
    tools: tuple[Tool, ...] = ()
    moment: str = ""
    dialect: Dialect = "auto"

    @classmethod
    def of(cls, chat: Chat) -> ParsedChat:
        """Read a chat."""
        prefix = chat.messages[: chat.pinned()]
        task, _ = split_hints(prefix[-1].text)
        history = tuple(chat.messages[len(prefix) :])
        summarize = chat.messages[-1].text.endswith(SUMMARY_REQUEST)
        observations = [
            m
            for m in (prefix[-1], *history)
            if m.role != "assistant" and not m.text.startswith(_FROM_WRAPPERS)
        ]
        hints = split_hints(observations[-1].text)[1]
        after = max(
            (k for k, message in enumerate(history, 1) if message.text.startswith(SUMMARY_FOLLOWS)),
            default=0,
        )
        summary = (
            split_hints(f"\n\n{history[after - 2].text}")[1].get("state", "") if after > 1 else ""
        )
        return cls(
            task=task,
            history=history[after:],
            hints=hints,
            summary=summary,
            summarize=summarize,
            tools=chat.tools,
            moment=chat.moment(),
            dialect=read_dialect(prefix[0].text),
        )

    def render(self, call: ToolCall, dialect: Dialect) -> str:
        """Return the text of a call in a dialect; `auto` is the one that the env asks for."""
        return render(call, self.dialect if dialect == "auto" else dialect)

    def turns(self) -> list[list[tuple[ToolCall, str]]]:
        """Return the calls that succeeded, with their results, turn by turn; a picture is described
        by a line after the text.
        """
        turns: list[list[tuple[ToolCall, str]]] = []
        calls: dict[str, ToolCall] = {}
        for message in self.history:
            if message.role == "assistant":
                calls = {call.id: call for call in message.calls}
                turns.append([])
            elif message.call_id in calls and not message.text.startswith("error:"):
                lines = [split_hints(message.text)[0], *(image.alt for image in message.images)]
                turns[-1].append((calls[message.call_id], "\n".join(lines)))
        return turns


class ScriptedPolicy:
    """Policy for one world that chooses a call from what the chat shows.

    Args:
        env_id: The id of the world, or one of its presets.
        seed: Seeds whatever the policy draws.
        dialect: The form in which it writes calls; `auto` for the one that the env asks for.

    Attributes:
        hooks: The hooks of `World` that it cannot play without.

    Raises:
        MissingHook: The world lacks one of them.
    """

    hooks: ClassVar[tuple[str, ...]] = ("read_task", "read_result")

    def __init__(self, env_id: str, seed: int = 0, dialect: Dialect = "auto") -> None:
        check_int("seed", seed, 0, 2**32 - 1)
        self.world = load_world(gymnasium.spec(resolve(env_id)).kwargs["world"])
        check_hooks(self.world, self.hooks, type(self).__name__)
        self.seed = seed
        self.dialect = dialect

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Write one call for each chat."""
        return [Reply(self.write(ParsedChat.of(chat))) for chat in chats]

    def write(self, parsed: ParsedChat) -> str:
        """Write a call, or a summary if one is asked for."""
        if parsed.summarize:
            return f"<state>\n{self.remember(parsed).state()}\n</state>"
        return parsed.render(self.act(parsed), self.dialect)

    def act(self, parsed: ParsedChat) -> ToolCall:
        """Choose a call."""
        raise NotImplementedError

    def remember(self, parsed: ParsedChat) -> World[object]:
        """Return the world as the policy would sum it up."""
        return self.recall(parsed)

    def recall(self, parsed: ParsedChat) -> World[object]:
        """Reconstruct the world from the chat: from a state hint if there is one, else from the
        summary and the history since.
        """
        world = self.world.read_task(parsed.task)
        if read_state(world, parsed.hints.get("state", "")):
            return world
        read_state(world, parsed.summary)
        for turn in parsed.turns():
            world.turn += 1
            for call, result in turn:
                apply_result(world, call, result)
        return world

    def draw(self, parsed: ParsedChat) -> np.random.Generator:
        """Return a generator for this moment: the same in every arm, whatever the hints.

        A chat that was read from plain text has no moment; there it is the task and the number of
        replies that are shown.
        """
        moment = parsed.moment or f"{parsed.task}:{len(parsed.turns())}"
        return np.random.default_rng((self.seed, zlib.crc32(moment.encode())))


class OraclePolicy(ScriptedPolicy):
    """Policy that plays the first optimal call; a legal one if success is out of reach."""

    hooks = (*ScriptedPolicy.hooks, "optimal_calls")

    def act(self, parsed: ParsedChat) -> ToolCall:
        """Choose an optimal call."""
        return best_call(self.recall(parsed))


class RandomPolicy(ScriptedPolicy):
    """Policy that plays legal calls at random.

    In a world that cannot be read from the chat, or does not say which calls are legal, these are
    calls that fit the schemas of the tools. Where it cannot tell the state, its summaries are
    empty.
    """

    hooks = ()

    def __init__(self, env_id: str, seed: int = 0, dialect: Dialect = "auto") -> None:
        super().__init__(env_id, seed, dialect)
        self._reads_chat = all(
            has_hook(self.world, hook) for hook in (*ScriptedPolicy.hooks, "legal_calls")
        )
        self._sums_up = (
            self._reads_chat
            and has_hook(self.world, "state")
            and has_hook(self.world, "read_state")
        )

    def write(self, parsed: ParsedChat) -> str:
        """Write a call, or a summary if one is asked for."""
        return "" if parsed.summarize and not self._sums_up else super().write(parsed)

    def act(self, parsed: ParsedChat) -> ToolCall:
        """Choose any legal call."""
        if not self._reads_chat:
            return sample_call(parsed.tools, self.draw(parsed))
        return choose(self.recall(parsed).legal_calls(), self.draw(parsed))


class NoisyPolicy(ScriptedPolicy):
    """Policy that plays optimally, except that with probability `p` in each step it plays a legal
    call that is not optimal.

    Args:
        env_id: The id of the world.
        p: The probability of an error, in [0, 1].
        seed: Seeds the errors.
        dialect: The form in which it writes calls; `auto` for the one that the env asks for.
    """

    hooks = (*OraclePolicy.hooks, "legal_calls")

    def __init__(self, env_id: str, p: float, seed: int = 0, dialect: Dialect = "auto") -> None:
        check_float("p", p, 0.0, 1.0)
        super().__init__(env_id, seed, dialect)
        self.p = p

    def act(self, parsed: ParsedChat) -> ToolCall:
        """Choose an optimal call or, with probability p, a wrong one."""
        world = self.recall(parsed)
        rng = self.draw(parsed)
        return wrong_call(world, rng) if rng.random() < self.p else best_call(world)


def read_state(world: World[object], state: str) -> bool:
    """Read the state in a hint or a summary into a world; False if there is none, or it was cut and
    cannot be read any more.
    """
    if state:
        with suppress(ValueError):
            world.read_state(state)
            return True
    return False


def apply_result(world: World[object], call: ToolCall, result: str) -> None:
    """Read a result into a world; one that was cleared or cut has no content, nor has a call
    without its arguments.
    """
    with suppress(ValueError, KeyError):
        world.read_result(call, result)
