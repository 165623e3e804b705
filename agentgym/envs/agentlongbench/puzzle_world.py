"""PuzzleWorld: find hidden items by querying and guessing (AgentLongBench, sections 2.1, C.1)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import log
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from agentgym.envs.agentlongbench.belief import Belief, Hunt, OptimalMoves
from agentgym.envs.agentlongbench.config import PuzzleConfig
from agentgym.envs.agentlongbench.engine import (
    TEXTS,
    TOOL,
    Condition,
    dumps,
    explain_game,
    read_feedback,
    search,
    write_feedback,
)
from agentgym.envs.agentlongbench.hosting import (
    ASK,
    HOSTED,
    QuestionTool,
    learn,
    object_to,
    reply_to,
    write_question,
)
from agentgym.envs.agentlongbench.items import ItemTable
from agentgym.envs.agentlongbench.reference import draw_reference, limits
from agentgym.envs.agentlongbench.scoring import last_tag
from agentgym.envs.reading import expect
from agentgym.text.messages import ToolCall
from agentgym.text.tools import tool
from agentgym.text.validation import check_int
from agentgym.world.world import CallSet, World

_TASK = re.compile(
    r"Puzzle (?P<number>[0-9]+) of (?P<puzzles>[0-9]+)\. There are (?P<items>[0-9]+) items, of "
    r"which (?P<hidden>[0-9]+) (?:is|are) hidden, with (?P<rounds>[0-9]+) rounds each\."
)
_ITEMS = re.compile(r"^All items: (\[.*\])$", re.MULTILINE)
_NEXT_ITEM = "\n\nNext: hidden item "
_BUDGET = re.compile(r"\nTurn budget: ([0-9]+)$")
_NEXT = re.compile(r"\nPuzzle ([0-9]+) of ")
_LEFT = re.compile(r"(.*)\nTurns left: ([0-9]+)", re.DOTALL)
_QUERY = "Query the items that meet all that is known of the hidden item that is next."
_GUESS = "Guess "
_LOST = "No turn is left to find the hidden item."
# An item without known candidates takes at least a query and a guess.
_QUICKEST = 2
# Average turns per hidden item in a puzzle with 100 items, several of them hidden.
_TURNS = 4.85
# A puzzle with one hidden item takes 2.4 turns on average with 8 items, and 3.9 with 100. Puzzles
# for horizons below this threshold have 8 items.
_FEW = 3.2
# The maximum number of hidden items in a puzzle that `for_horizon` chooses. Each item adds about
# 300 tokens to the state, which must fit into the small context windows of ablations.
_GROUP = 4


class PuzzleWorld(World[PuzzleConfig]):
    """Find hidden items by guessing, with feedback on each guess and a tool that lists items.

    With several hidden items, the player moves on to the next item after each guess, right or
    wrong. An optimal query excludes every candidate that contradicts the feedback; after that,
    guessing any candidate is optimal. Another strategy may need fewer guesses on average. The turn
    budget is the same for all seeds and suffices for a player who always guesses the first
    candidate.

    Attributes:
        table: The items of the puzzle; undefined in a world rebuilt from a chat.
    """

    Config = PuzzleConfig
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {"searcher": (TOOL,), "guesser": ("guess",)}
    parallel_calls = False
    table: ItemTable
    targets: Mapping[int, int]
    hunt: Hunt

    def generate(self) -> None:
        self._seeds = self.rng.integers(2**63, size=self.config.puzzles).tolist()
        self._puzzles, self._found = self.config.puzzles, 0
        self._hidden = self.config.hidden
        self.max_turns = self.config.budget(self._puzzles * limits(self.config)[0])
        self._rounds = min(self.config.rounds, self.max_turns)
        self._begin(1)

    def _begin(self, number: int) -> None:
        config, rng = self.config, np.random.default_rng(self._seeds[number - 1])
        most, deepest = limits(config)
        turns = most + 1
        while turns > most:
            self.table = config.table(rng)
            first, counts = draw_reference(config, self.table, rng)
            able = counts.rounds <= deepest
            # With one hidden item, the puzzle starts with a wrong guess.
            able[first] &= self._hidden > 1
            targets = rng.choice(np.flatnonzero(able), self._hidden).tolist()
            turns = int(counts.turns[targets].sum())
        self.targets = dict(enumerate(targets, 1))
        self._opening = f"All items: {dumps(list(self.table.names))}{_NEXT_ITEM}1."
        self.hunt = Hunt.begin(self.table.names, self._hidden, number, self._rounds)
        if self._hidden == 1:
            self._opening = write_feedback(self.table, 1, first, targets[0], self._rounds - 1)
            self.hunt = Hunt.from_opening(self._opening, number)

    @property
    def target(self) -> int:
        return self.targets[self.hunt.number]

    @property
    def belief(self) -> Belief:
        return self.hunt.belief

    def rules(self) -> str:
        several, drawn = "", "; the guess of round 1 was drawn for you"
        if self._hidden > 1:
            drawn = ""
            several = (
                "Several items are hidden, each drawn by itself; you look for them in turn. Each "
                "guess is for the hidden item that is next, and whether it is right or wrong, the "
                "one after it is next, until all are found. A query may be about any of them.\n"
            )
        return (
            f"{explain_game(self.config.style)}\n{several}"
            "Guess with the tool guess, or reply with "
            "<answer>name</answer>. A puzzle allows a number of rounds for each hidden item, one "
            f"for each guess{drawn}. A wrong guess in the last round, or "
            "the end of the turn budget, ends the task. Every query and every guess takes a turn."
        )

    def task(self) -> str:
        return f"{self._describe(1)}\n\n{self._opening}\nTurn budget: {self.max_turns}"

    def restate(self) -> str:
        number = min(self._found // self._hidden + 1, self._puzzles)
        if self._hidden == 1 or number > 1:
            return self._describe(number)
        return f"{self._describe(number)}\n\n{self._opening.partition(_NEXT_ITEM)[0]}"

    def _describe(self, number: int) -> str:
        kinds = ", ".join(s.name + " (a number)" * s.numeric for s in self.table.sections)
        are = "is" if self._hidden == 1 else "are"
        return (
            f"Puzzle {number} of {self._puzzles}. There are {len(self.table)} items, of which "
            f"{self._hidden} {are} hidden, with "
            f"{self._rounds} rounds each. The sections of a profile: {kinds}."
        )

    @tool(name=TOOL)
    def query(self, conditions: list[Condition]) -> str:
        """Find the items that meet conditions.

        Args:
            conditions: What the items have to meet, for example {"type": "value", "section": S, "values": [V], "exclude": true} or
                {"type": "numeric", "section": S, "comparator": ">", "threshold": 300}.
        """
        result = search(self.table, conditions, self.config.style)
        self.hunt.add_result(conditions, result)
        return result

    @tool
    def guess(self, name: str) -> str:
        """Guess the hidden item; of several, the one that is next.

        Args:
            name: The name of an item.
        """
        place, number = self.table.find(name), self.hunt.number
        left = self.belief.left - 1
        text = write_feedback(self.table, self._rounds - left, place, self.target, left)
        if self._hidden > 1:
            text = f"Hidden item {number}.\n{text}"
        if place == self.target:
            self._found += 1
            if not self._found % self._hidden:
                return self._finish_puzzle(text)
            self.hunt.advance(solved=True)
        else:
            self.belief.add_feedback(read_feedback(text)[0])
            self.done = left == 0
            if not self.done:
                self.hunt.advance(solved=False)
        if self._hidden == 1 or self.done:
            return text
        return f"{text}{_NEXT_ITEM}{self.hunt.number}."

    def _finish_puzzle(self, text: str) -> str:
        number = self.hunt.belief.puzzle
        if number == self._puzzles:
            self.done = True
            return f"{text}\nAll is found."
        self._begin(number + 1)
        return f"{text}\n\nPuzzle {number + 1} of {self._puzzles}.\n{self._opening}"

    def final_answer(self, text: str) -> ToolCall | None:
        """Parse the last `<answer>name</answer>` of a reply without a call."""
        name = last_tag(text)
        if name is None:
            return None
        return ToolCall("guess", {"name": name})

    def score(self) -> float:
        """Return the share of hidden items that were found."""
        return self._found / (self._puzzles * self._hidden)

    def report(self) -> Mapping[str, Any]:
        """Count puzzles, hidden items, found items, and the rounds used for the next item."""
        return {
            "puzzles": self._puzzles,
            "hidden": self._puzzles * self._hidden,
            "found": self._found,
            "round": self._rounds - self.belief.left,
        }

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        check_int("horizon", steps, 2, 380_000)
        targets = round(steps / _TURNS)
        if targets < 2:
            return {"items": 8 if steps < _FEW else 100, "hidden": 1}
        puzzles = -(-targets // _GROUP)
        return {"items": 100, "hidden": max(2, round(targets / puzzles)), "puzzles": puzzles}

    # The interface for a host (`agentgym.multi.host`).

    def host_rules(self) -> str:
        """Return the rules for the host."""
        return TEXTS["game"]["host"]

    def questions(self) -> object:
        """Return the tool that asks the host questions."""
        return QuestionTool(self)

    def question(self, call: ToolCall) -> str:
        """Return the question for the host, or an empty string for a query, which needs no host."""
        if call.name not in HOSTED:
            return ""
        return write_question(self.table, self.target, call.name, call.arguments)

    @classmethod
    def host_reply(cls, question: str) -> str:
        return reply_to(question)

    def objection(self, answer: str, result: str) -> str:
        """Return the referee's objection to the host's answer; empty if the answer is right."""
        return object_to(answer, result)

    def optimal_calls(self) -> Sequence[ToolCall]:
        pool = self.belief.pool or ()
        spare = self.turns_left - self._fewest_after()
        if self.done or spare < (1 if pool else _QUICKEST):
            return ()
        if spare == 1:
            return CallSet("guess", "name", pool)
        return OptimalMoves(self.hunt)

    def _fewest_after(self) -> int:
        each = max(_QUICKEST, self._hidden)
        return len(self.hunt.beliefs) - 1 + each * (self._puzzles - self.belief.puzzle)

    def _query(self) -> ToolCall:
        return ToolCall(TOOL, {"conditions": self.belief.conditions()})

    def legal_calls(self) -> Sequence[ToolCall]:
        query, guesses = self._query(), CallSet("guess", "name", self.belief.pool or ())
        if query.arguments["conditions"]:
            return (query, *guesses)
        return tuple(guesses)

    def action_catalog(self) -> Sequence[ToolCall]:
        """Return a query with all known conditions, and a guess for each candidate.

        The list always has `items + 1` calls; surplus guesses have an empty name.
        """
        pool = self.belief.pool or []
        names = [*pool, *[""] * (self.config.items - len(pool))]
        return (self._query(), *(ToolCall("guess", {"name": name}) for name in names))

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [0, 1], shape `(6,)`.

        The features are: whether candidates are known, whether they are exactly the items
        consistent with all feedback, log(1 + candidates) / log(1 + items), the rounds left divided
        by 50, the turns left divided by 50, and the share of hidden items found.
        """
        belief = self.belief
        progress = [
            belief.pool is not None,
            belief.exact,
            log(1 + len(belief.pool or ())) / log(1 + self.config.items),
            min(belief.left / 50, 1),
            min(self.turns_left / 50, 1),
            belief.puzzle / self._puzzles - len(self.hunt.beliefs) / (self._hidden * self._puzzles),
        ]
        return np.array(progress, np.float32)

    def state(self) -> str:
        return "\n".join([*self.hunt.lines(), f"Turns left: {self.turns_left}"])

    def subtask(self, with_state: bool) -> str:
        if calls := self.optimal_calls():
            return self.subtask_for(calls[0], with_state)
        return _LOST

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        if call.name == "guess":
            return f"{_GUESS}{json.dumps(call.arguments['name'])}."
        return _QUERY

    def reasoning(self, call: ToolCall) -> str:
        known, _, count, *_ = self.belief.lines()
        return f"{known}\n{count.partition(':')[0]}."

    @classmethod
    def read_task(cls, task: str) -> Self:
        head = expect(_TASK.match(task), "a task of PuzzleWorld", task)
        number, puzzles, items, hidden, rounds = map(int, head.groups())
        config = PuzzleConfig(
            items=items, source="synthetic", hidden=hidden, rounds=rounds, puzzles=puzzles
        )
        world = cls(config, 0)
        world._puzzles, world._hidden, world._rounds = puzzles, hidden, rounds
        if budget := _BUDGET.search(task):
            world.max_turns = int(budget[1])
            world.hunt = world._hear(task, number)
        else:
            names = _ITEMS.search(task)
            world.hunt = Hunt.begin(json.loads(names[1]) if names else (), hidden, number, rounds)
        return world

    def _hear(self, opening: str, puzzle: int) -> Hunt:
        if self._hidden == 1:
            return Hunt.from_opening(opening, puzzle)
        names = _ITEMS.search(opening)
        if names is None:
            raise ValueError(f"expected a list of items, got {opening[:100]!r}")
        return Hunt.begin(json.loads(names[1]), self._hidden, puzzle, self._rounds)

    def read_result(self, call: ToolCall, result: str) -> None:
        if call.name == TOOL:
            self.hunt.add_result(call.arguments["conditions"], result)
            return
        if call.name == ASK:
            learn(self.belief, call.arguments["condition"], result)
            return
        following = _NEXT.search(result)
        if following:
            self.hunt = self._hear(result[following.start() :], int(following[1]))
            return
        for feedback in read_feedback(result)[:1]:
            if feedback.right:
                self.done = len(self.hunt.beliefs) == 1
            else:
                self.belief.add_feedback(feedback)
                self.done = not feedback.left
            if not self.done:
                self.hunt.advance(solved=feedback.right)

    def read_state(self, state: str) -> None:
        match = expect(_LEFT.fullmatch(state), "a state of PuzzleWorld", state)
        items = next(iter(self.hunt.beliefs.values())).items
        self.hunt = Hunt.from_lines(match[1], items)
        self.set_turns_left(int(match[2]))

    def read_subtask(self, subtask: str) -> ToolCall | None:
        if subtask == _QUERY:
            return self._query()
        if subtask.startswith(_GUESS):
            return ToolCall("guess", {"name": json.loads(subtask[len(_GUESS) : -1])})
        return None
