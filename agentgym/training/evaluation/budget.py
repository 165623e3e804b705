"""Budgets of a study in cells, tokens or money, and cost estimates before it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Annotated

import gymnasium
from pydantic import Field

from agentgym.assemble.registry import is_team
from agentgym.oracles import OraclePolicy
from agentgym.play.policy import PolicyError
from agentgym.training.evaluation.ablation import Ablation, Cell, count_tokens
from agentgym.training.evaluation.scoring import Result
from agentgym.training.rollout import rollout
from agentgym.world.config import Config, TokenCount
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


@dataclass(frozen=True)
class SpendingLimits(Config):
    """Limits on one policy's cells in a folder, including earlier ones.

    Attributes:
        cells: The maximum number of cells; None for no limit.
        tokens: The maximum number of prompt and reply tokens.
        cost: The maximum cost, in the currency of the price.
        price: The price of the model.

    Raises:
        ValueError: The cost is limited but there is no price.
    """

    cells: Annotated[int, Field(ge=0)] | None = None
    tokens: Annotated[int, Field(ge=0), TokenCount()] | None = None
    cost: Annotated[float, Field(ge=0.0)] | None = None
    price: Price = field(default_factory=Price)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cost is not None and not self.price.prompt + self.price.reply:
            raise ValueError(f"a cost limit of {self.cost:g} requires token prices")

    @property
    def counts_tokens(self) -> bool:
        """Report whether the limits require token counts."""
        return self.tokens is not None or self.cost is not None

    def allow(self, cells: float, tokens: Tokens) -> bool:
        """Report whether an amount is within the limits."""
        spent = (cells, sum(tokens), self.price.of(tokens))
        bounds = (self.cells, self.tokens, self.cost)
        return all(
            bound is None or amount <= bound for amount, bound in zip(spent, bounds, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected tokens by kind of cell; `unknown` counts the cells whose kind was never played."""

    tokens: dict[Kind, Tokens]
    cells: int
    measured: int
    unknown: int
    total: Tokens


def estimate(
    ablation: Ablation,
    cells: Sequence[Cell],
    played: Iterable[Result] = (),
    reply_tokens: int = REPLY_TOKENS,
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
    tokens = {kind: _mean(some) for kind, some in known.items()}
    counts = Counter(cell[:4] for cell in cells)
    first = {cell[:4]: cell for cell in reversed(cells)}
    for kind, count in counts.items():
        if kind not in tokens and (optimal := _play_optimally(ablation, first[kind], reply_tokens)):
            tokens[kind] = optimal
        on_cells(count)
    prompt = reply = 0.0
    for kind, count in counts.items():
        if kind in tokens:
            prompt += count * tokens[kind][0]
            reply += count * tokens[kind][1]
    measured = sum(count for kind, count in counts.items() if kind in known)
    unknown = sum(count for kind, count in counts.items() if kind not in tokens)
    return Estimate(tokens, len(cells), measured, unknown, (prompt, reply))


def _play_optimally(ablation: Ablation, cell: Cell, reply_tokens: int) -> Tokens | None:
    """Return the tokens of an optimal episode; None without a scripted policy."""
    if is_team(cell.world):
        return None
    env = gymnasium.make(ablation.spec(*cell[:4]), disable_env_checker=True)
    try:
        return count_tokens(rollout(OraclePolicy(cell.world), env, cell.seed), reply_tokens)
    except (MissingHook, PolicyError, ValueError):
        return None
    finally:
        env.close()


def _mean(some: Sequence[Tokens]) -> Tokens:
    return sum(each[0] for each in some) / len(some), sum(each[1] for each in some) / len(some)


class Budget:
    """Admit cells while they fit the limits, reserving the expected cost of running cells."""

    def __init__(self, limits: SpendingLimits, expected: dict[Kind, Tokens] | None = None) -> None:
        self.limits, self.stopped = limits, False
        self._expected = dict(expected or {})
        self._seen: dict[Kind, list[Tokens]] = {}
        self._under_way: dict[Cell, Tokens] = {}
        self._cells, self._tokens = 0, (0.0, 0.0)

    def admit(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        """Yield cells while they fit the limits."""
        for cell in cells:
            after = [*self._under_way.values(), self._expect(cell)]
            tokens = self._tokens
            for each in after:
                tokens = tokens[0] + each[0], tokens[1] + each[1]
            if not self.limits.allow(self._cells + len(after), tokens):
                self.stopped = True
                return
            self._under_way[cell] = after[-1]
            yield cell

    def foresees(self, cells: Iterable[Cell]) -> bool:
        """Report whether cells may run concurrently: under token limits, unknown cells must run
        alone.
        """
        known = self._expected.keys() | self._seen.keys()
        return not self.limits.counts_tokens or all(cell[:4] in known for cell in cells)

    def spend(self, cell: Cell, tokens: Tokens | None) -> None:
        """Record a completed cell and its tokens, if known."""
        self._under_way.pop(cell, None)
        self._cells += 1
        if tokens is not None:
            self._seen.setdefault(cell[:4], []).append(tokens)
            self._tokens = self._tokens[0] + tokens[0], self._tokens[1] + tokens[1]

    def _expect(self, cell: Cell) -> Tokens:
        if seen := self._seen.get(cell[:4]):
            return _mean(seen)
        # An unknown cell starts alone, if at all.
        blind = (inf, 0.0) if self._under_way and self.limits.counts_tokens else (0.0, 0.0)
        return self._expected.get(cell[:4], blind)
