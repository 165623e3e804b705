"""SignalWorld: a speaker names attributes of an object until a listener recognises the object.

The game is a Lewis signalling game ("Convention", 1969) with a known code, played as a reference
game (Frank and Goodman, "Predicting pragmatic reasoning in language games", Science 336, 2012).
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym.envs.games.game import TEXTS, GameWorld, as_row, share
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError, echo, tool
from agentgym.text.validation import check_int
from agentgym.world.digests import digest
from agentgym.world.seated import Move
from agentgym.world.turn_budget import TurnBudget

SPEAKER, LISTENER = "speaker_0", "listener_0"
Object = tuple[str, ...]  # words that describe an object, one of each kind

_TEXTS = TEXTS["signal"]
_NAMES = string.ascii_uppercase
_KINDS = [kind.split() for kind in _TEXTS["words"].splitlines()]
_MAX_ROUNDS = 200
_WORDS_PER_ROUND = 2.1  # average, measured with the default options
_MORE = "more"  # the listener says this to request another word
_NEVER = 1_000_000
_TASK = re.compile(
    r"You are (?P<seat>\w+)\.\nRounds: (?P<rounds>[0-9]+)\nObjects:\n(?P<objects>(?:[A-Z]: .*\n)+)"
    r"(?:Object of each round: (?P<targets>[A-Z, ]+)\n)?(?:Rule: .*\n)?.* (?P<least>[0-9]+) words"
)
_ROUND = (
    r"Said in this round: (?P<said>.*)\. Wrong picks in it: (?P<wrong>.*)\. "
    r"Words and wrong picks so far: (?P<cost>[0-9]+)"
)
_LINE = re.compile(
    rf"Round (?P<round>[0-9]+): (?P<player>{SPEAKER}|{LISTENER}) .*?"
    rf"(?P<right>: right)?(?:: wrong)?\. {_ROUND}"
)
_SITUATION = re.compile(
    rf"Round: (?P<round>[0-9]+) of .*\n(?:Object: .*\n)?Objects that fit: .*\n{_ROUND}"
)


@dataclass(frozen=True, kw_only=True)
class SignalConfig(TurnBudget):
    """Options of SignalWorld.

    Attributes:
        rounds: The number of objects to recognise, one after another.
        objects: The number of objects to choose from, or `values ** kinds` if that is smaller.
        kinds: The number of kinds of words, such as colour and shape.
        values: The number of words of each kind.
    """

    rounds: Annotated[int, Field(ge=1, le=_MAX_ROUNDS)] = 6
    objects: Annotated[int, Field(ge=2, le=26)] = 12
    kinds: Annotated[int, Field(ge=2, le=6)] = 4
    values: Annotated[int, Field(ge=2, le=4)] = 3

    @property
    def count(self) -> int:
        """Number of different objects."""
        possible: int = self.values**self.kinds
        return min(self.objects, possible)


def fitting(objects: Sequence[Object], words: Collection[str]) -> list[int]:
    """Return the indices of the objects that match all words."""
    return [number for number, each in enumerate(objects) if set(each).issuperset(words)]


@lru_cache(maxsize=4096)
def words_needed(
    objects: tuple[Object, ...], target: int, said: frozenset[str], wrong: frozenset[int]
) -> int:
    """Return the minimum number of further words after which only the target matches.

    `target` is an index, and `wrong` contains the indices of wrong picks.
    """
    for count in range(len(objects[target]) + 1):
        for words in combinations(objects[target], count):
            if set(fitting(objects, said.union(words))) - wrong == {target}:
                return count
    return _NEVER


class SignalWorld(GameWorld[SignalConfig]):
    """Describe objects to a listener with as few true words as possible.

    A single agent is the speaker, and the scripted listener picks an object as soon as only one
    matches. In a match, both agents earn the minimum number of words divided by the number of words
    and wrong picks.
    """

    Config = SignalConfig
    players: ClassVar[tuple[str, ...]] = (SPEAKER, LISTENER)
    seat = SPEAKER
    texts = _TEXTS
    move_call = ("say", "text")
    targets: tuple[int, ...]
    task_format, situation_format, line_format = _TASK, _SITUATION, _LINE

    def generate(self) -> None:
        config, rng = self.config, self.rng
        numbers = rng.choice(config.values**config.kinds, size=config.count, replace=False)
        digits = np.transpose(np.unravel_index(numbers, (config.values,) * config.kinds))
        objects = []
        for each in digits.tolist():
            objects.append(tuple(_KINDS[kind][value] for kind, value in enumerate(each)))
        self._start(tuple(objects), config.rounds)
        self.targets = tuple(rng.integers(config.count, size=config.rounds).tolist())
        self.least = self._later(0)
        self.max_turns = config.budget(self.least)

    def _start(self, objects: tuple[Object, ...], rounds: int) -> None:
        self.objects, self.rounds = objects, rounds
        self.targets = ()
        self.turn_of, self.round, self.cost, self.least = SPEAKER, 0, 0, 0
        self.said: tuple[str, ...] = ()
        self.wrong: tuple[int, ...] = ()

    def _later(self, number: int) -> int:
        nothing = frozenset[Any]()
        return sum(words_needed(self.objects, k, nothing, nothing) for k in self.targets[number:])

    def _needed(self, *words: str) -> int:
        said = frozenset([*self.said, *words])
        return words_needed(self.objects, self.targets[self.round], said, frozenset(self.wrong))

    @property
    def candidates(self) -> list[int]:
        """Indices of the objects that match the words, except wrong picks."""
        return [each for each in fitting(self.objects, self.said) if each not in self.wrong]

    def instance_key(self) -> str:
        return digest([self.objects, self.targets])

    def restate(self) -> str:
        objects = self._described(range(len(self.objects)))
        lines = [f"You are {self.seat}.", f"Rounds: {self.rounds}", "Objects:", *objects]
        if self.seat == SPEAKER:
            lines.append(f"Object of each round: {_names(self.targets)}")
        goal = _TEXTS["match" if self.in_match else "alone"]
        return "\n".join([*lines, goal.format(other=self.other, least=self.least)])

    def situation(self) -> str:
        lines = [f"Round: {self.round + 1} of {self.rounds}"]
        if self.seat == SPEAKER:
            target = "none" if self.done else _NAMES[self.targets[self.round]]
            lines.append(f"Object: {target}")
        return "\n".join([*lines, f"Objects that fit: {_names(self.candidates)}", self._round()])

    def _round(self) -> str:
        return (
            f"Said in this round: {', '.join(self.said) or 'none'}. Wrong picks in it: "
            f"{_names(self.wrong)}. Words and wrong picks so far: {self.cost}"
        )

    def board(self) -> str:
        return "\n".join([*self._described(self.candidates), self._round()])

    def _described(self, numbers: Iterable[int]) -> list[str]:
        return [f"{_NAMES[number]}: {' '.join(self.objects[number])}" for number in numbers]

    @tool
    def say(self, text: str) -> str:
        """Say something to the other player.

        Args:
            text: As the speaker, one of the words of the object. As the listener, the letter of the
                object that you pick, or `more` to hear another word.
        """
        legal = self.legal_moves()
        if text not in legal:
            raise ToolError(f"text must be one of {', '.join(legal)}, got {echo(text)}")
        return self.make_move(text)

    def play(self, moves: Mapping[str, Move]) -> str:
        ((player, move),) = moves.items()
        said = f"Round {self.round + 1}: {player} says {move}"
        self.turn_of = LISTENER if player == SPEAKER else SPEAKER
        if player == SPEAKER:
            self.said = (*self.said, str(move))
            self.cost += 1
        elif move == _NAMES[self.targets[self.round]]:
            said = f"{said}: right"
            self._set(self.round + 1, (), ())
        elif move != _MORE:
            said = f"{said}: wrong"
            self.wrong = (*self.wrong, _NAMES.index(str(move)))
            self.cost += 1
        return f"{said}. {self._round()}"

    def _set(self, number: int, said: tuple[str, ...], wrong: tuple[int, ...]) -> None:
        known = set(chain(*self.objects))
        picked = all(each < len(self.objects) for each in wrong)
        if not (0 <= number <= self.rounds and known.issuperset(said) and picked):
            raise ValueError(
                f"the task has no round {number + 1} with words {said} and wrong picks {wrong}"
            )
        self.round, self.said, self.wrong = number, said, wrong
        self.done = number == self.rounds

    def read_move(self, found: re.Match[str]) -> None:
        self._read_round(found, int(found["round"]) - (not found["right"]))
        self.turn_of = LISTENER if found["player"] == SPEAKER else SPEAKER

    def _read_round(self, found: re.Match[str], number: int) -> None:
        said = tuple(word for word in found["said"].split(", ") if word != "none")
        wrong = tuple(_NAMES.index(name) for name in re.findall("[A-Z]", found["wrong"]))
        self._set(number, said, wrong)
        self.cost = int(found["cost"])

    def scripted_move(self, player: str) -> Move:
        fits = self.candidates
        return _NAMES[fits[0]] if len(fits) == 1 else _MORE

    def payoff(self) -> float:
        """Return the minimum number of words divided by the cost, or 0 for an unfinished game."""
        return self.least / self.cost if self.done else 0.0

    def has_won(self) -> bool:
        return self.done and self.cost <= self.least

    def report(self) -> Mapping[str, Any]:
        """Return the number of words and wrong picks as `cost`, and the minimum as `least`."""
        return {"cost": self.cost, "least": self.least}

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        check_int("horizon", steps, 2, 2 * _MAX_ROUNDS)
        return {"rounds": max(1, round(steps / _WORDS_PER_ROUND))}

    def best_moves(self) -> Collection[Move]:
        if self.seat == LISTENER:
            return [self.scripted_move(LISTENER)]
        words = {word: 1 + self._needed(word) for word in self.legal_moves()}
        best = min(words.values())
        later = self._later(self.round + 1)
        left = min(self.least - self.cost, self.known_turns)
        if not self.in_match and best + later > left:
            return []
        return [word for word, needed in words.items() if needed == best]

    def legal_moves(self) -> Sequence[str]:
        if self.seat == LISTENER:
            return [_MORE, *_NAMES[: len(self.objects)]]
        return self.objects[self.targets[min(self.round, self.rounds - 1)]]

    def action_catalog(self) -> Sequence[ToolCall]:
        config = self.config
        words = [kind[: config.values] for kind in _KINDS[: config.kinds]]
        return self.calls([*chain(*words), _MORE, *_NAMES[: config.count]])

    def features(self) -> NDArray[np.float32]:
        """Return float32 features in [-1, 1], shape
        `(count * (kinds + 2) + kinds * values + 3,)`.

        The features are: each object's words as numbers; flags for the matching objects, the
        speaker's object and the words said; the share of rounds played; and the cost so far and
        the turns left as shares of the minimum number of words.
        """
        config, words = self.config, list(chain(*_KINDS))
        rows = []
        for each in self.objects:
            rows.append([kind.index(word) for kind, word in zip(_KINDS, each, strict=False)])
        marks = np.zeros((2, config.count))
        marks[0, self.candidates] = 1
        if self.seat == SPEAKER and not self.done:
            marks[1, self.targets[self.round]] = 1
        said = np.zeros((len(_KINDS), len(_KINDS[0])))
        said.flat[[words.index(word) for word in self.said]] = 1
        shares = (
            self.round / config.rounds,
            share(self.cost, self.least),
            share(self.turns_left, self.least),
        )
        said = said[: config.kinds, : config.values]
        return as_row(np.divide(rows, config.values), marks, said, shares)

    def read_instance(self, found: re.Match[str]) -> None:
        rows = [line.split()[1:] for line in found["objects"].splitlines()]
        self._start(tuple(map(tuple, rows)), int(found["rounds"]))
        targets = (found["targets"] or "").replace(", ", "")
        self.targets = tuple(_NAMES.index(name) for name in targets)
        self.least = int(found["least"])

    def read_situation(self, found: re.Match[str]) -> None:
        self._read_round(found, int(found["round"]) - 1)
        self.turn_of = self.seat


def _names(numbers: Sequence[int]) -> str:
    return ", ".join(_NAMES[number] for number in numbers) or "none"
