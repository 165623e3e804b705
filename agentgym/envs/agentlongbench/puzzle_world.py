"""PuzzleWorld: find a hidden item by queries and guesses, live (AgentLongBench, sections 2.1 and
C.1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym.arguments import check_int
from agentgym.envs.agentlongbench.belief import Belief
from agentgym.envs.agentlongbench.config import FULL, ItemsConfig
from agentgym.envs.agentlongbench.engine import (
    TOOL,
    Condition,
    explain_game,
    read_feedback,
    search,
    write_feedback,
)
from agentgym.envs.agentlongbench.hosting import (
    ASK,
    HOSTED,
    RULES,
    QuestionTool,
    learn,
    object_to,
    reply_to,
    write_question,
)
from agentgym.envs.agentlongbench.items import ItemTable
from agentgym.envs.agentlongbench.scoring import last_tag
from agentgym.messages import ToolCall
from agentgym.registry import register
from agentgym.tools import tool
from agentgym.turn_budget import TurnBudget
from agentgym.world import CallSet, World

_TASK = re.compile(r"Puzzle ([0-9]+) of ([0-9]+)\.")
_BUDGET = re.compile(r"\nTurn budget: ([0-9]+)$")
_NEXT = re.compile(r"\nPuzzle ([0-9]+) of ")
_LEFT = re.compile(r"(.*)\nTurns left: ([0-9]+)", re.DOTALL)
_QUERY = "Query the items that meet all that is known of the hidden item."
_GUESS = "Guess "
_LOST = "No turn is left to find the hidden item."
_TURNS = 3.85
"""Average turns of a puzzle of 60 items."""
_QUICKEST = 2
"""Fewest turns of a puzzle, a query and a guess: no name but a wrong one is known before a query."""


@dataclass(frozen=True, kw_only=True)
class PuzzleConfig(ItemsConfig, TurnBudget):
    """Options of PuzzleWorld.

    Attributes:
        rounds: The guesses that a puzzle allows, including the first, which is drawn.
        puzzles: The number of puzzles, one after the other, each with a table of its own.
    """

    rounds: Annotated[int, Field(ge=2, le=100_000)] = 50
    puzzles: Annotated[int, Field(ge=1, le=10_000)] = 1


class PuzzleWorld(World[PuzzleConfig]):
    """Find a hidden item by guessing, with feedback on each guess and a tool that lists items.

    Optimal are, where the candidates are not known exactly, the queries whose result makes them so,
    and then a guess of any candidate: any item that agrees with all feedback. That is what is
    exact: such a guess may be right, and whatever the feedback, it is never repeated. It is not
    claimed that no other way needs fewer guesses on average. The turn budget counts what this way
    of playing takes, if it always guesses the first candidate. Lists of earlier
    puzzles do not count as knowledge.

    Attributes:
        table: The items of the present puzzle; a world that was read from a chat has none, and
            neither has it a target.
        target: The hidden item.
        belief: The knowledge so far.
    """

    Config = PuzzleConfig
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {"searcher": (TOOL,), "guesser": ("guess",)}
    parallel_calls = False
    table: ItemTable
    target: int
    belief: Belief

    def generate(self) -> None:
        """Draw the puzzles, and count the turns that they take."""
        self._seeds = self.rng.integers(2**63, size=self.config.puzzles).tolist()
        self._puzzles, self._found = self.config.puzzles, 0
        self.max_turns = self.config.budget(
            sum(self._begin(k) for k in reversed(range(self._puzzles)))
        )

    def _begin(self, number: int) -> int:
        """Set up a puzzle.

        Returns:
            The turns that it takes.
        """
        rng = np.random.default_rng(self._seeds[number])
        self.table = self.config.table(rng)
        for target in self.config.targets(self.table, rng):
            first = int((target + rng.integers(1, len(self.table))) % len(self.table))
            opening = write_feedback(self.table, 1, first, target, self.config.rounds - 1)
            turns = count_turns(self.table, target, opening, self.config)
            if turns:
                break
        self.target, self._round, self._opening = target, 1, opening
        self.belief = _hear(opening, number + 1)
        return turns

    def rules(self) -> str:
        """The system message."""
        return (
            f"{explain_game(self.config.style)}\nGuess with the tool guess, or reply with "
            "<answer>name</answer>. A puzzle allows "
            "a number of rounds, one for each guess; the guess of round 1 was drawn for you. A "
            "wrong guess in the last round, or "
            "the end of the turn budget, ends the task. Every query and every guess takes a turn."
        )

    def task(self) -> str:
        """The first puzzle with the feedback of its first round, and the budget."""
        return f"{self.restate()}\n\n{self._opening}\nTurn budget: {self.max_turns}"

    def restate(self) -> str:
        """The present puzzle; the state has what feedback has shown of it."""
        kinds = ", ".join(
            s.name + (" (a number)" if s.numeric else "") for s in self.table.sections
        )
        return (
            f"Puzzle {min(self._found + 1, self._puzzles)} of {self._puzzles}. There are "
            f"{len(self.table)} items. The sections of a profile: {kinds}."
        )

    @tool(name=TOOL)
    def query(self, conditions: list[Condition]) -> str:
        """Find the items that meet conditions.

        Args:
            conditions: What the items have to meet, for example {"type": "value", "section": S, "values": [V], "exclude": true} or
                {"type": "numeric", "section": S, "comparator": ">", "threshold": 300}.
        """
        result = search(self.table, conditions, self.config.style)
        self.belief.add_result(conditions, result)
        return result

    @tool
    def guess(self, name: str) -> str:
        """Guess the hidden item.

        Args:
            name: The name of an item.
        """
        place = self.table.find(name)
        self._round += 1
        text = write_feedback(
            self.table, self._round, place, self.target, self.config.rounds - self._round
        )
        if place != self.target:
            self.belief.add_feedback(read_feedback(text)[0])
            self.done = self._round >= self.config.rounds
            return text
        self._found += 1
        if self._found == self._puzzles:
            self.done = True
            return f"{text}\nAll is found."
        self._begin(self._found)
        return f"{text}\n\nPuzzle {self._found + 1} of {self._puzzles}.\n{self._opening}"

    def final_answer(self, text: str) -> ToolCall | None:
        """Read the last `<answer>name</answer>` of a reply without a call."""
        name = last_tag(text)
        return None if name is None else ToolCall("guess", {"name": name})

    def score(self) -> float:
        """The share of the puzzles that were solved."""
        return self._found / self._puzzles

    def report(self) -> Mapping[str, Any]:
        """The numbers of puzzles and of solved ones, and the last round."""
        return {"puzzles": self._puzzles, "found": self._found, "round": self._round}

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        """One puzzle of few items, or as many puzzles of 60 as take that many turns on average."""
        check_int("horizon", steps, 2, 38_000)
        return {"items": 8} if steps < _TURNS else {"items": 60, "puzzles": round(steps / _TURNS)}

    # What a host does in the world's place (`agentgym.multi.host`).

    def host_rules(self) -> str:
        """The rules of the host's part."""
        return RULES

    def questions(self) -> object:
        """The tool for questions."""
        return QuestionTool(self)

    def question(self, call: ToolCall) -> str:
        """The guess or the question with the profiles; nothing for a query."""
        return (
            write_question(self.table, self.target, call.name, call.arguments)
            if call.name in HOSTED
            else ""
        )

    @classmethod
    def host_reply(cls, question: str) -> str:
        """The right verdicts, or yes or no."""
        return reply_to(question)

    def objection(self, answer: str, result: str) -> str:
        """Return the objection to verdicts, a yes or a no."""
        return object_to(answer, result)

    # What can be known.

    def optimal_calls(self) -> Sequence[ToolCall]:
        """A query that makes the candidates exact, or a guess of any of them; on the last turn only
        a guess can succeed.
        """
        spare = self.turns_left - _QUICKEST * (self._puzzles - self.belief.puzzle)
        pool = self.belief.pool or ()
        if self.done or spare < (1 if pool else _QUICKEST):
            return ()
        if self.belief.exact or spare == 1:
            return CallSet("guess", "name", pool)
        return _Queries(self.belief)

    def legal_calls(self) -> Sequence[ToolCall]:
        """The query of all that is known, and a guess of each candidate."""
        query = ToolCall(TOOL, {"conditions": self.belief.conditions()})
        return (query, *CallSet("guess", "name", self.belief.pool or ()))

    def action_catalog(self) -> Sequence[ToolCall]:
        """The query of all that is known, and a guess of each candidate in order: `items + 1`
        calls. A candidate that there is not has an empty name.
        """
        pool = self.belief.pool or []
        names = [*pool, *[""] * (self.config.items - len(pool))]
        return (
            ToolCall(TOOL, {"conditions": self.belief.conditions()}),
            *(ToolCall("guess", {"name": name}) for name in names),
        )

    def features(self) -> NDArray[np.float32]:
        """Return the progress of the search.

        Returns:
            float32, shape `(6,)`, in [0, 1]: whether there are candidates, whether they are exact,
            the logarithm of their number as a share of that of all items, the rounds and the turns
            left as shares of 50, and the share of puzzles that are solved.
        """
        belief, count = self.belief, len(self.belief.pool or ())
        size = log(1 + count) / log(1 + self.config.items)
        counts = (
            min(belief.left / 50, 1),
            min(self.turns_left / 50, 1),
            (belief.puzzle - 1) / self._puzzles,
        )
        return np.array([belief.pool is not None, belief.exact, size, *counts], np.float32)

    def state(self) -> str:
        """The knowledge of the hidden item and of the candidates, and the turns left."""
        return "\n".join([*self.belief.lines(), f"Turns left: {self.turns_left}"])

    def subtask(self, with_state: bool) -> str:
        """Query all that is known, or guess the first candidate."""
        calls = self.optimal_calls()
        if not calls:
            return _LOST
        if calls[0].name == "guess":
            return f"{_GUESS}{json.dumps(calls[0].arguments['name'])}."
        return _QUERY

    def reasoning(self, call: ToolCall) -> str:
        """The knowledge, and the number of candidates that agree with it."""
        known, _, count, *_ = self.belief.lines()
        return f"{known}\n{count.partition(':')[0]}."

    # Reading what the hooks above wrote.

    @classmethod
    def read_task(cls, task: str) -> Self:
        """Read the first feedback, the number of puzzles and the budget."""
        world = cls(PuzzleConfig(), 0)
        puzzles, budget = _TASK.search(task), _BUDGET.search(task)
        if puzzles is None:
            raise ValueError(f"this is not a task of PuzzleWorld: {task[:100]!r}")
        number, world._puzzles = map(int, puzzles.groups())
        world._found = number - 1
        world.max_turns = int(budget[1]) if budget else None
        world.belief = _hear(task, number) if budget else Belief(puzzle=number)
        return world

    def read_result(self, call: ToolCall, result: str) -> None:
        """Take in a list or feedback; after the right guess, the next puzzle."""
        if call.name == TOOL:
            self.belief.add_result(call.arguments["conditions"], result)
            return
        if call.name == ASK:
            learn(self.belief, call.arguments["condition"], result)
            return
        following = _NEXT.search(result)
        if following:
            self.belief = _hear(result[following.start() :], int(following[1]))
            return
        for feedback in read_feedback(result)[:1]:
            self.belief.add_feedback(feedback)
            self.done = feedback.right or not feedback.left

    def read_state(self, state: str) -> None:
        """Take the knowledge and the turns from the text."""
        match = _LEFT.fullmatch(state)
        if match is None:
            raise ValueError(f"this is not a state of PuzzleWorld: {state[:100]!r}")
        self.belief = Belief.from_lines(match[1])
        self.set_turns_left(int(match[2]))

    def read_subtask(self, subtask: str) -> ToolCall | None:
        """Read which of the two steps it is, and the name."""
        if subtask == _QUERY:
            return ToolCall(TOOL, {"conditions": self.belief.conditions()})
        if subtask.startswith(_GUESS):
            return ToolCall("guess", {"name": json.loads(subtask[len(_GUESS) : -1])})
        return None


class _Queries(Sequence[ToolCall]):
    """All queries that make the candidates exact; the one that is listed asks for all that is
    known.
    """

    def __init__(self, belief: Belief) -> None:
        self._belief = belief

    def __contains__(self, call: object) -> bool:
        return (
            isinstance(call, ToolCall)
            and call.name == TOOL
            and self._belief.makes_exact(call.arguments.get("conditions"))
        )

    def __iter__(self) -> Iterator[ToolCall]:
        yield ToolCall(TOOL, {"conditions": self._belief.conditions()})

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __len__(self) -> int:
        return 1


def count_turns(table: ItemTable, target: int, opening: str, config: PuzzleConfig) -> int:
    """Count the turns that a puzzle takes if the first candidate is always guessed; 0 if it takes
    more rounds than there are.
    """
    belief, name = _hear(opening, 1), table.names[target]
    for turns in range(1, 2 * config.rounds):
        if not belief.exact:
            conditions = belief.conditions()
            belief.add_result(conditions, search(table, conditions, config.style))
        elif belief.pool and belief.pool[0] == name:
            return turns
        elif belief.pool and belief.left > 1:
            guess = table.find(belief.pool[0])
            belief.add_feedback(
                read_feedback(write_feedback(table, 0, guess, target, belief.left - 1))[0]
            )
        else:
            break
    return 0


def _hear(text: str, puzzle: int) -> Belief:
    """Return the knowledge from the opening of a puzzle.

    Raises:
        ValueError: There is no feedback in it.
    """
    feedback = read_feedback(text)
    if not feedback:
        raise ValueError(f"there is no feedback in {text[:100]!r}")
    belief = Belief(puzzle=puzzle)
    belief.add_feedback(feedback[-1])
    return belief


register(
    PuzzleWorld,
    presets={
        "easy": {"items": 12},
        "medium": {"items": 200},
        "hard": {"items": 600, "style": "verbose", "source": "synthetic"},
        "long": {"items": 200, "puzzles": 30},
        "extreme": {"puzzles": 400},
        **{name: {**FULL[name], "rounds": 2010 if name.endswith("c") else 260} for name in FULL},
    },
    teams=("host", "duel"),
)
