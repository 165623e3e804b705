"""Play episodes with shortcuts and policies, record transcripts, and collect demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, takewhile

import numpy as np

from agentgym.play.env import ToolEnv
from agentgym.play.policy import Policy
from agentgym.play.spaces import sample_call
from agentgym.text.messages import Chat, ToolCall
from agentgym.text.parsing import render
from agentgym.text.tools import Tool
from agentgym.world.world import has_hook

Exchange = Sequence[tuple[ToolCall, str]]

# Maximum number of replies per episode; demonstrations are shorter.
_MAX_REPLIES = 500
# number of random episodes to try per demonstration if optimal calls are unknown
_SEARCHES = 50


@dataclass(frozen=True)
class Transcript:
    """The chat of an episode as a list of turns: the calls of each reply with their results."""

    task: str
    tools: Sequence[Tool]
    turns: Sequence[Exchange]

    @cached_property
    def last_result(self) -> str:
        if not self.turns:
            return ""
        return "\n".join(result for _, result in self.turns[-1])

    @property
    def calls(self) -> Iterator[ToolCall]:
        for exchange in self.turns:
            for call, _ in exchange:
                yield call

    @property
    def final_call(self) -> ToolCall:
        return self.turns[-1][-1][0]

    def before(self, turn: int) -> Transcript:
        """Return the transcript before a turn, counted from 0, or from the end if negative."""
        return Transcript(self.task, self.tools, self.turns[:turn])


Act = Callable[[Transcript], Sequence[ToolCall]]


def start(env: ToolEnv, seed: int) -> ToolEnv:
    """Return a copy of an env that has been reset with a seed."""
    env.reset(seed=seed)
    return env.clone()


def play(env: ToolEnv, act: Act) -> tuple[float, Transcript]:
    """Play an episode in which `act` chooses the calls; return the score and the transcript.

    If the env limits the calls per reply, one turn of the transcript may take several replies.
    """
    seen = Transcript(env.chat.messages[1].text, env.chat.tools, ())
    for _ in range(_MAX_REPLIES):
        if not (calls := act(seen)):
            break
        exchange: list[tuple[ToolCall, str]] = []
        size = len(calls) if env.most_calls is None else env.most_calls
        for k in range(0, len(calls), size):
            batch = calls[k : k + size]
            chat, reward, *_ = env.step("\n".join(map(render, batch)))
            exchange += zip(batch, _results(chat), strict=False)
            if env.over:
                return float(reward), Transcript(seen.task, seen.tools, (*seen.turns, exchange))
        seen = Transcript(seen.task, seen.tools, (*seen.turns, exchange))
    return env.truncate("gave up")[1], seen


def _results(chat: Chat) -> list[str]:
    after = takewhile(lambda message: message.role != "assistant", reversed(chat.messages))
    return [message.text for message in after][::-1]


def play_policy(env: ToolEnv, policy: Policy) -> float:
    """Play an episode with a policy and return the score."""
    while True:
        (reply,) = policy([env.chat])
        _, reward, *_ = env.step(reply.text)
        if env.over:
            return float(reward)


def play_optimally(env: ToolEnv) -> tuple[float, Transcript]:
    """Play the first optimal call of each turn; return the score and the transcript."""
    return play(env, lambda seen: list(env.world.optimal_calls() or ())[:1])


def demonstrations(
    env: ToolEnv, first_seed: int, count: int
) -> Iterator[tuple[ToolEnv, Transcript]]:
    """Yield an env at the start of each successful episode, and the transcript of the episode.

    Random play finds the episodes if optimal calls are unknown.
    """
    knows = has_hook(env.world_class, "optimal_calls")

    def successes() -> Iterator[tuple[ToolEnv, Transcript]]:
        seeds = count if knows else count * _SEARCHES
        for seed in range(first_seed, first_seed + seeds):
            begun = start(env, seed)
            if knows:
                score, seen = play_optimally(begun.clone())
            else:
                score, seen = play_at_random(begun.clone(), seed)
            if score >= 1.0 and seen.turns and seen.turns[-1]:
                yield begun, seen

    return islice(successes(), count)


def play_at_random(env: ToolEnv, seed: int) -> tuple[float, Transcript]:
    """Play random calls; return the score and the transcript."""
    rng = np.random.default_rng(seed)
    return play(env, lambda seen: [sample_call(seen.tools, rng)])
