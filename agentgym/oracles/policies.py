"""Scripted policies: they read the text of the chat and nothing else, so what they can do, a model
can do.

They are batched, stateless functions of the chats. What they draw depends on their seed, the
instance and the turn (`Message.moment`), so the same moment is played alike in every arm of an
ablation, which makes paired comparisons sharp, and no two instances and turns are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import gymnasium
import numpy as np

from agentgym.arguments import check_float, check_int
from agentgym.messages import Chat, ToolCall
from agentgym.oracles.choices import best_call, choose, wrong_call
from agentgym.oracles.reading import ChatReading, ParsedChat, Readings, read_state
from agentgym.oracles.recall import TOOL, missing_pages, whole_state
from agentgym.parsing import Dialect
from agentgym.policy import Reply
from agentgym.registry import resolve
from agentgym.spaces import sample_call
from agentgym.world import World, check_hooks, has_hook, load_world


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
        self._readings = Readings(ChatReading)

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Write one call for each chat."""
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        with self.read(chat) as parsed:
            return Reply(self.write(parsed))

    @contextmanager
    def read(self, chat: Chat) -> Iterator[ParsedChat]:
        """Lend the contents of a chat, of which only what is new since the version before is read;
        they and the worlds recalled from them change with the next version.
        """
        with self._readings.read(chat) as reading:
            yield reading.parsed(chat)

    def write(self, parsed: ParsedChat) -> str:
        """Write a call, or a summary if one is asked for; first a request for all that a state hint
        leaves out.
        """
        if parsed.summarize:
            return f"<state>\n{self.remember(parsed).state()}\n</state>"
        return parsed.render(ask_for_state(parsed) or self.act(parsed), self.dialect)

    def act(self, parsed: ParsedChat) -> ToolCall:
        """Choose a call."""
        raise NotImplementedError

    def remember(self, parsed: ParsedChat) -> World[object]:
        """Return the world as the policy would sum it up."""
        return self.recall(parsed)

    def recall(self, parsed: ParsedChat) -> World[object]:
        """Reconstruct the world from the chat: from a state hint if there is one, else from the
        summary and the history since. It is to be looked at and not changed.
        """
        if state := whole_state(parsed.hints.get("state", "")):
            world = self.world.read_task(parsed.task)
            if read_state(world, state):
                return world
        return parsed.past.world(self.world, parsed.task, parsed.summary)

    def draw(self, parsed: ParsedChat) -> np.random.Generator:
        """Return a generator for this moment: the same in every arm, whatever the hints.

        A chat that was read from plain text has no moment; there it is the task and the number of
        replies that are shown.
        """
        moment = parsed.moment or f"{parsed.task}:{parsed.past.turns}"
        return np.random.default_rng((self.seed, zlib.crc32(moment.encode())))


def ask_for_state(parsed: ParsedChat) -> ToolCall | None:
    """Return the call that shows all that a state hint leaves out; None if it is whole."""
    pages = missing_pages(parsed.hints.get("state", ""))
    return ToolCall(TOOL, {"pages": [*pages]}) if pages else None


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


class ThinkingPolicy:
    """Policy that plays as another scripted one does, and writes the reasoning of the world before
    each call: a teacher, since a small model learns to write down what it cannot work out in one
    step.

    Where both the plan and the state are shown, the next call is shown with them: there it does not
    think.

    Args:
        policy: The policy that chooses the calls.

    Example:
        >>> teacher = ThinkingPolicy(NoisyPolicy("ListWorld", 0.2))
    """

    def __init__(self, policy: ScriptedPolicy) -> None:
        self.policy = policy

    def __call__(self, chats: Sequence[Chat]) -> list[Reply]:
        """Write one call for each chat."""
        return [self._reply(chat) for chat in chats]

    def _reply(self, chat: Chat) -> Reply:
        with self.policy.read(chat) as parsed:
            if parsed.summarize or {"plan", "state"} <= parsed.hints.keys():
                return Reply(self.policy.write(parsed))
            call = self.policy.act(parsed)
            thought = self.policy.recall(parsed).reasoning(call)
            return Reply(f"<think>{thought}</think>{parsed.render(call, self.policy.dialect)}")
