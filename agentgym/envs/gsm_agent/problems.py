"""Generate grade-school problems with whole numbers, without using a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Annotated

from pydantic import Field

from agentgym.envs.gsm_agent.drafts import DeadEndError, Draft, words_of
from agentgym.envs.gsm_agent.facts import Fact, Quantity
from agentgym.envs.gsm_agent.questions import Question
from agentgym.envs.gsm_agent.stories import STORIES
from agentgym.world.config import Config

_BETWEEN_TWO = ("gap", "together", "average", "ratio")
_PAIRS = ("excess", "left", "percentage", "share")
MOST_PREMISES = 128  # nine times the longest problem in the paper
LOG_MEAN, LOG_SIGMA, MOST_DRAWN = 1.4116, 0.380, 14
"""Documents per task, as in table 3 of the paper: a rounded log-normal number from 1 to 14."""

# Drafts may fail. With fewer attempts, kinds of question that often fail would become rare.
_PLANS, _DRAFTS = 10, 40
# The minimum and maximum number of people in a problem.
_CAST = (2, 3)


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with the facts that determine its answer."""

    question: Question
    facts: Mapping[Quantity, Fact]
    answer: int

    def premises(self) -> list[tuple[Fact, ...]]:
        """Group the facts by document; the last fact of each group contains a number."""
        order: list[tuple[Fact, ...]] = []
        carried: list[Fact] = []
        pending = list(reversed(self.question.targets))
        while pending:
            fact = self.facts[pending.pop()]
            carried.append(fact)
            if fact.number is not None:
                order.append(tuple(carried))
                carried = []
            pending.extend(reversed(fact.sources))
        return order

    def needs_several_searches(self) -> bool:
        """Return whether a document shares no name or distinctive word with the question."""
        asked = words_of(self.question.targets)
        for facts in self.premises():
            quantities = chain.from_iterable((fact.target, *fact.sources) for fact in facts)
            if asked.isdisjoint(words_of(quantities)):
                return True
        return False


@dataclass(frozen=True, kw_only=True)
class ProblemOptions(Config):
    """Options of the problems.

    Attributes:
        premises: The number of premises per problem; None for the distribution in the paper (1 to
            14, with a mean of 4.4).
        max_answer: The maximum value of any quantity.
    """

    premises: Annotated[int, Field(ge=1, le=MOST_PREMISES)] | None = None
    max_answer: Annotated[int, Field(ge=100, le=1_000_000)] = 2_000


def draw_problem(
    rng: Random, people: Sequence[str], options: ProblemOptions, several_searches: bool = True
) -> Problem:
    """Draw a problem about `people`; raise ValueError if no problem meets the options.

    With `several_searches`, which requires at least three people, at least one document shares no
    name or distinctive word with the question, unless the problem has only one premise.
    """
    budget = options.premises or min(
        max(round(rng.lognormvariate(LOG_MEAN, LOG_SIGMA)), 1), MOST_DRAWN
    )
    for _ in range(_PLANS):
        story = STORIES[rng.choice(tuple(STORIES))]
        kinds = ["total"] * 4
        if budget > 2:
            # With two premises, a question about two people would name everyone in the documents.
            kinds += _PAIRS
            if len(people) > 1:
                kinds += _BETWEEN_TWO
            kinds += [ask.kind for ask in story.asks] * 2
        kind = rng.choice(kinds)
        size = max(_CAST) if kind in _BETWEEN_TWO else rng.choice(_CAST)
        for _ in range(_DRAFTS):
            cast = rng.sample(people, min(size, len(people)))
            asked = frozenset(cast) if several_searches else frozenset()
            draft = Draft(rng, cast, story, asked)
            problem = _draft_problem(draft, kind, budget, options)
            enough = budget == 1 or not several_searches
            if problem and (enough or problem.needs_several_searches()):
                return problem
    raise ValueError(
        f"found no problem with {budget} premises and max_answer={options.max_answer}; increase "
        "max_answer"
    )


def _draft_problem(draft: Draft, kind: str, budget: int, options: ProblemOptions) -> Problem | None:
    try:
        question = draft.question(kind, budget, options.max_answer)
    except DeadEndError:
        return None
    answer = question.answer(draft.facts)
    # Reject an answer of 0, such as the difference between equal numbers.
    if not answer or answer < 0 or max(answer, *draft.values.values()) > options.max_answer:
        return None
    return Problem(question, draft.facts, answer)
