"""Ceilings of what a policy without understanding may earn, and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from statistics import fmean
from typing import Any

from agentgym.tools import Tool
from agentgym.training.audit.selectors import options
from agentgym.training.audit.transcripts import Transcript
from agentgym.training.evaluation import Interval, wilson

CAP = 0.10
"""The most that a shortcut may earn in any world where chance is lower."""
CONFIDENCE = 0.99
"""A battery holds fifteen policies and more: at 95 % one of them would often be misjudged."""


@dataclass(frozen=True)
class Ceiling:
    """The most that a shortcut may earn, known before any is played.

    Attributes:
        chance: The score of blind luck.
        source: How it is known: `stated` by the world, `enumerated` from the schemas and the
            options of the prompts, or `estimated` by random calls on seeds that nothing else plays.
    """

    chance: float
    source: str

    @property
    def value(self) -> float:
        """The ceiling: chance, but never below the cap."""
        return max(CAP, self.chance)

    def verdict(self, interval: Interval) -> str:
        """Judge the interval of a score: `holds`, `leak`, or `undecided` if more seeds are needed.

        Where chance itself reaches the cap, a score that agrees with it holds.
        """
        if interval.low > self.value:
            return "leak"
        return "holds" if interval.high <= self.value or self.chance >= CAP else "undecided"


def find_ceiling(
    stated: float | None, lessons: Sequence[Transcript], random_scores: Sequence[float]
) -> Ceiling:
    """Return the ceiling of a configuration.

    Args:
        stated: The chance that the world states (`World.chance`), or None.
        lessons: Demonstrations, which say what the prompts offer.
        random_scores: Scores of random calls that fit the schemas.
    """
    if stated is not None:
        return Ceiling(stated, "stated")
    tools = lessons[0].tools
    by_schema = max((1 / n for tool in tools if tool.final and (n := answers_of(tool))), default=0)
    enumerated = max(by_schema, _share_of_options(lessons))
    estimated = score_interval(random_scores)
    if enumerated > estimated.value:
        return Ceiling(enumerated, "enumerated")
    # Chance that lies below the cap does not matter; above it, its own error must not flag a world.
    return Ceiling(estimated.high if estimated.value > CAP else estimated.value, "estimated")


def _share_of_options(lessons: Sequence[Transcript]) -> float:
    """Return the chance of an option that is drawn blindly, where each prompt lists the answer."""
    listed = [options(lesson.task) for lesson in lessons]
    finals = [lesson.final_call for lesson in lessons]
    answers = [[str(v) for v in call.arguments.values()] if call else [] for call in finals]
    if all(set(some) & set(own) for some, own in zip(listed, answers, strict=True)):
        return fmean(1 / len(some) for some in listed)
    return 0.0


def answers_of(tool: Tool) -> int:
    """Return how many different calls of a tool there are: 0 if endlessly many, or only one, which
    is no answer.
    """
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    counts = [_count(schema) for schema in properties.values()]
    total = prod(counts) if counts else 0
    return 0 if total == 1 else total


def _count(schema: Mapping[str, Any]) -> int:
    if "enum" in schema:
        return len(schema["enum"])
    if schema.get("type") == "boolean":
        return 2
    if schema.get("type") == "integer" and {"minimum", "maximum"} <= schema.keys():
        return int(schema["maximum"] - schema["minimum"] + 1)
    return 0


def score_interval(scores: Sequence[float]) -> Interval:
    """Return the mean of scores in [0, 1] with its 99 % interval.

    It is Wilson's of as many successes as the scores sum up to, which is too wide where scores are
    not 0 or 1: no variable in [0, 1] with that mean has a larger variance.
    """
    return wilson(sum(scores), len(scores), CONFIDENCE)
