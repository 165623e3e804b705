"""Prices of tokens, and cost estimates of a study before it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import gymnasium
from pydantic import Field

from agentgym.assemble.registry import is_team
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import PolicyError
from agentgym.training.evaluation.ablation import Ablation, Cell, count_tokens
from agentgym.training.evaluation.scoring import Result
from agentgym.training.rollout import rollout
from agentgym.world.config import Config
from agentgym.world.world import MissingHook

# world, arm, context strategies and horizon: such cells have similar token counts
Kind = tuple[str, str, str, int]
# prompt and reply tokens
Tokens = tuple[float, float]
# assumed until a reply has been seen: a short thought and a call
REPLY_TOKENS = 200


@dataclass(frozen=True)
class Price(Config):
    """A model's price per million tokens, in any currency.

    Attributes:
        prompt: The price of prompts, ignoring caches.
        reply: The price of replies, including thinking.
    """

    prompt: Annotated[float, Field(ge=0.0, le=1e9)] = 0.0
    reply: Annotated[float, Field(ge=0.0, le=1e9)] = 0.0

    def of(self, tokens: Tokens) -> float:
        """Return the cost of these tokens."""
        return (tokens[0] * self.prompt + tokens[1] * self.reply) / 1e6


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected prompt and reply tokens of cells.

    Attributes:
        measured: The number of cells estimated from played ones; the others from optimal play.
        unknown: The number of cells that neither was possible for, which count nothing.
    """

    cells: int
    measured: int
    unknown: int
    total: Tokens


def estimate(
    ablation: Ablation,
    cells: Sequence[Cell],
    played: Iterable[Result] = (),
    on_cells: Callable[[int], object] = lambda count: None,
) -> Estimate:
    """Estimate the tokens of cells from played cells of their kind, or else from an optimal
    episode.

    Weaker policies take more turns, up to the turn budget, and each turn lengthens the prompt.
    """
    known: dict[Kind, list[Tokens]] = {}
    for row in played:
        if row.policy == ablation.policy.column and row.tokens is not None:
            kind = row.world, row.arm, row.context, row.horizon
            known.setdefault(kind, []).append(row.tokens)
    first: dict[Kind, Cell] = {}
    for cell in cells:
        first.setdefault(cell[:4], cell)
    prompt = reply = 0.0
    measured = unknown = 0
    for kind, count in Counter(cell[:4] for cell in cells).items():
        if some := known.get(kind):
            measured += count
            tokens: Tokens | None = _mean(some)
        else:
            tokens = _play_optimally(ablation, first[kind])
        if tokens is None:
            unknown += count
        else:
            prompt += count * tokens[0]
            reply += count * tokens[1]
        on_cells(count)
    return Estimate(len(cells), measured, unknown, (prompt, reply))


def _play_optimally(ablation: Ablation, cell: Cell) -> Tokens | None:
    """Return the tokens of an optimal episode; None without a scripted policy."""
    if is_team(cell.world):
        return None
    env = gymnasium.make(ablation.spec(*cell[:4]), disable_env_checker=True)
    try:
        return count_tokens(rollout(OraclePolicy(cell.world), env, cell.seed), REPLY_TOKENS)
    except (MissingHook, PolicyError, ValueError):
        return None
    finally:
        env.close()


def _mean(some: Sequence[Tokens]) -> Tokens:
    return sum(each[0] for each in some) / len(some), sum(each[1] for each in some) / len(some)
