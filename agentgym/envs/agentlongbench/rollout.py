"""Long logs of a puzzle, played by a simulated agent that forgets and explores (AgentLongBench,
sections 2.2 and C.1 to C.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from math import ceil
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym.envs.agentlongbench.belief import Constraints
from agentgym.envs.agentlongbench.engine import (
    TOOL,
    explain_game,
    search,
    to_atoms,
    to_conditions,
    write_feedback,
)
from agentgym.envs.agentlongbench.items import Atom, ItemTable, Mask
from agentgym.envs.agentlongbench.peaks import Peak
from agentgym.text.messages import Message, ToolCall
from agentgym.text.tokens import TokenCounter
from agentgym.text.validation import check_int
from agentgym.world.config import Config, Share

FILLED = 0.9
"""Minimum filled share of a log's length; rounds are indivisible, so 1 is impossible."""
RESERVE = 400
"""Tokens reserved for the question."""
SHORTEST = 4_000
"""Minimum tokens; less has no room for the minimum rounds."""

FEWEST = 4
"""Minimum rounds of a log that fills a length, so each task can be asked."""

_DECOYS = 2  # one could be excluded by chance
_RETURNING = 3  # with the hidden item, a reader of the end has four to choose from
_ENDING = 0.6  # share of a log; the last page of a short log is a quarter of it
_TRIES = 40  # candidate rounds; the largest that fits wins
_ATTEMPTS = 12  # logs to play before giving up; every second attempt enlarges the end
_REPLAYS = 30  # logs with a peak to play before giving up; one or two usually suffice
# Rounds that a peak is drawn from, relative to a log of this length; no log has as many.
_MARGIN = 1.5
# The paper's cap on rounds and minimum tokens per round; longer logs raise the cap.
_CAPS = {"concise": (2_010, 1_000), "verbose": (260, 4_000)}

ListLength = Annotated[int, Field(ge=2, le=10_000)]
"""A list of one would reveal the hidden item."""
FEWEST_ROUNDS, LONGEST_ROUNDS = 3, 100_000
"""A shorter log has no history to ask about."""
LONGEST = 10**9
"""Maximum tokens of a log, far beyond the benchmark's 4M."""


@dataclass(frozen=True, kw_only=True)
class Habits(Config):
    """Options of the simulated agent (section C.3; the paper gives no values, so these are ours).

    Attributes:
        history_window: The number of newest rounds whose conditions are always remembered.
        forget_history_prob: The probability of forgetting an older condition, drawn for each
            condition in each round.
        mask_prob: The probability of omitting a section from a query.
        max_mask_sections: The maximum number of omitted sections; never all.
        epsilon: The probability of also omitting a random part of the remaining conditions.
        min_list: The minimum number of items in a list; conditions that would shorten it further
            are omitted.
        late: The share of a log, counted from its end, in which the lists together isolate the
            hidden item, if required; up to six times that if no such log is found.
    """

    history_window: Annotated[int, Field(ge=1, le=100)] = 1
    forget_history_prob: Share = 0.98
    mask_prob: Share = 0.35
    max_mask_sections: Annotated[int, Field(ge=0, le=6)] = 3  # six is all sections
    epsilon: Share = 0.3
    min_list: ListLength = 50
    late: Share = 0.15

    def shortest_list(self, table: ItemTable) -> int:
        """Return the minimum list length; a table may have fewer items than `min_list`."""
        return min(self.min_list, max(2, len(table) // 4))


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One round of a log.

    Attributes:
        sections: The section of each list in the tool result; one empty name for a concise result,
            nothing in round 1.
        messages: Call, result, guess and feedback; in round 1 only the last two.
        start: The index of its first message in the log.
    """

    number: int
    guess: int
    sections: tuple[str, ...]
    lists: tuple[NDArray[np.intp], ...]
    messages: tuple[Message, ...]
    start: int
    tokens: int

    @property
    def result(self) -> Message:
        """Return the tool result; round 1 has none."""
        return self.messages[1]

    @property
    def feedback(self) -> Message:
        """Return the feedback on the guess."""
        return self.messages[-1]


@dataclass(frozen=True, eq=False)
class Log:
    """The messages of an unsolved puzzle.

    Attributes:
        tokens: The tokens of all messages.
        repeats: The number of repeated guesses.
    """

    table: ItemTable
    target: int
    style: str
    system: Message
    rounds: tuple[Round, ...]
    tokens: int
    repeats: int

    def __deepcopy__(self, memo: object) -> Log:
        return self

    @property
    def messages(self) -> Iterator[Message]:
        """Return all messages."""
        yield self.system
        for each in self.rounds:
            yield from each.messages


def within(lists: Sequence[NDArray[np.intp]], items: int) -> Mask:
    """Return the items that are in all lists."""
    common = np.ones(items, bool)
    for places in lists:
        common &= within_any([places], items)
    return common


def within_any(lists: Iterable[NDArray[np.intp]], items: int) -> Mask:
    """Return the items that are in some list."""
    mask = np.zeros(items, bool)
    for places in lists:
        mask[places] = True
    return mask


def play(
    table: ItemTable,
    target: int,
    style: str,
    habits: Habits,
    seed: int,
    *,
    rounds: int | None = None,
    length: int | None = None,
    counter: TokenCounter,
    isolate: bool = False,
    peak: float | None = None,
) -> Log:
    """Play whole rounds without finding the hidden item, in time and memory linear in the length.

    One of `rounds` (at least 3) and `length` sets the end. `length` counts the tokens of the log
    with its question, at least `SHORTEST`; 90 to 100 % are filled. With `isolate`, all lists
    together have exactly the hidden item in common, and not before the last `habits.late`. `peak`
    is the position in [0, 1) of the first guess with the largest number.

    Raises:
        ValueError: There is too little room for the rounds, or for isolating the hidden item.
    """
    limit, cap = _limits(style, rounds, length)
    by_rounds = rounds is not None

    def finished(top: Peak | None) -> Log | None:
        for attempt in range(_ATTEMPTS):
            # A larger end gives the agent more rounds to isolate the hidden item.
            late = min(0.9, habits.late * (1 + attempt // 2))
            rng = np.random.default_rng((seed, attempt))
            game = _Game(table, target, style, habits, rng, counter, cap, top)
            if game.run(limit, by_rounds, (1 - late) * limit if isolate else None):
                return game.log()
        return None

    log = None if by_rounds and peak is not None else finished(None)
    if peak is not None and (by_rounds or log is not None):
        # The number of rounds that fill a length varies with the peak.
        most = limit if log is None else ceil(_MARGIN * len(log.rounds))
        rng = np.random.default_rng((seed, _ATTEMPTS))  # no attempt uses this seed
        log = _with_peak(lambda n: Peak.draw(table, target, n, rng), finished, peak, most, rng)
    if log is None:
        raise ValueError(
            f"no log of {limit} {'rounds' if by_rounds else 'tokens'} can be made; take more, or a "
            f"min_list below {habits.min_list}"
        )
    return log


def _with_peak(
    draw: Callable[[int], Peak | None],
    finished: Callable[[Peak], Log | None],
    place: float,
    most: int,
    rng: np.random.Generator,
) -> Log | None:
    for _ in range(_REPLAYS):
        top = draw(1 + int(place * most))
        log = None if top is None else finished(top)
        if top is not None and log is not None:
            if top.number <= len(log.rounds):
                return log
            # The log ended before the drawn round. Another one leaves all its rounds equally
            # likely.
            place = rng.random()
    return None


def _limits(style: str, rounds: int | None, length: int | None) -> tuple[int, int]:
    if rounds is None:
        check_int("length", length, SHORTEST, LONGEST)
    else:
        check_int("rounds", rounds, FEWEST_ROUNDS, LONGEST_ROUNDS)
    limit = rounds if rounds is not None else (length or 0) - RESERVE
    cap, each = _CAPS[style]
    return limit, max(cap, rounds or ceil(limit / each)) + 1


class _Game:
    """A puzzle in play.

    Attributes:
        heard: Each atom in the feedback, with the last round that mentioned it.
        left: The items in all lists so far.
        decoys: Items that stay in all lists until the log nears its end.
        returning: Items that only early lists exclude, so the last lists alone do not reveal the
            hidden item.
    """

    def __init__(
        self,
        table: ItemTable,
        target: int,
        style: str,
        habits: Habits,
        rng: np.random.Generator,
        counter: TokenCounter,
        cap: int,
        peak: Peak | None,
    ) -> None:
        self.table, self.target, self.style, self.habits = table, target, style, habits
        self.rng, self.counter, self.cap, self.peak = rng, counter, cap, peak
        self.heard: dict[Atom, int] = {}
        self.left = np.ones(len(table), bool)
        self.guessed = np.zeros(len(table), bool)
        self.decoys = np.zeros(len(table), bool)
        self.returning = np.zeros(len(table), bool)
        self.rounds: list[Round] = []
        self.repeats = 0
        self.system = Message("system", explain_game(style), id="0:0")
        self.tokens = counter.count(self.system)
        first = int((target + rng.integers(1, len(table))) % len(table))
        if peak is not None:
            first = int(rng.choice(np.flatnonzero(peak.allowed(1))))
        self._add(self._round(first, None))

    def log(self) -> Log:
        return Log(
            self.table,
            self.target,
            self.style,
            self.system,
            tuple(self.rounds),
            self.tokens,
            self.repeats,
        )

    def run(self, limit: int, by_rounds: bool, close_at: float | None) -> bool:
        """Play to the limit; return whether the log is complete."""
        while len(self.rounds) < self.cap:
            used = len(self.rounds) if by_rounds else self.tokens
            isolating = close_at is not None and int(self.left.sum()) > 1
            if by_rounds and used >= limit:
                return not isolating
            closing = isolating and used >= (close_at or 0)
            if close_at is not None and used >= _ENDING * limit and not self.returning.any():
                self._choose_returning()
            kept = self.returning | (self.decoys if isolating and not closing else False)
            if self.peak is not None and self.peak.number == len(self.rounds) + 1 and not closing:
                kept = kept | self._peak_item  # the guess must be in the list
            drawn = self._draw(self._aimed() if closing else self._remembered(), kept, closing)
            room = limit - self.tokens
            # Early rounds leave room for the minimum number of rounds.
            share = room // max(1, FEWEST - len(self.rounds))
            if not by_rounds and drawn.tokens > share:
                fitting = self._fitting(share, kept) if not isolating or share < room else None
                if fitting is None and drawn.tokens > room:
                    return (
                        not isolating
                        and len(self.rounds) >= FEWEST
                        and self.tokens >= FILLED * limit
                    )
                drawn = fitting or drawn
            self._add(drawn)
            if isolating and len(self.rounds) == 2:
                self._choose_decoys(drawn)
        return False

    @property
    def _peak_item(self) -> Mask:
        if self.peak is None:
            return np.zeros(len(self.table), bool)
        return self.peak.allowed(self.peak.number)

    def _draw(self, atoms: Sequence[Atom], kept: Mask, closing: bool = False) -> Round:
        query = self._loosened(atoms, kept)
        return self._round(self._guess(self.table.meet(query), closing), query)

    def _remembered(self) -> list[Atom]:
        newest = len(self.rounds) - self.habits.history_window
        old = [atom for atom, told in self.heard.items() if told <= newest]
        lost = self.rng.random(len(old)) < self.habits.forget_history_prob
        forgotten = set(compress(old, lost))
        constraints = Constraints.of(atom for atom in self.heard if atom not in forgotten).atoms()
        names = list(dict.fromkeys(atom[0] for atom in constraints))
        masked = [name for name in names if self.rng.random() < self.habits.mask_prob]
        # At least one section remains, because a query needs a condition.
        most = min(self.habits.max_mask_sections, len(names) - 1)
        out = {masked[k] for k in self.rng.permutation(len(masked))[:most]}
        shown = [atom for atom in constraints if atom[0] not in out]
        order = self.rng.permutation(len(shown))
        if len(shown) > 1 and self.rng.random() < self.habits.epsilon:
            order = order[: self.rng.integers(1, len(shown))]
        return [shown[k] for k in order]

    def _aimed(self) -> list[Atom]:
        """List few known atoms that exclude the items still in all lists, greedily."""
        masks = {atom: self.table.mask(atom) for atom in self.heard}
        # Returning items must stay in the last lists.
        masks = {atom: m for atom, m in masks.items() if not (self.returning & ~m).any()}
        left, chosen = self.left.copy(), list[Atom]()
        while left.sum() > 1 and masks:
            # Ties go to the longest list, because long lists do not reveal the hidden item.
            best = max(
                masks, key=lambda atom: (-int((left & masks[atom]).sum()), int(masks[atom].sum()))
            )
            # No known atom excludes further items.
            if not (left & ~masks[best]).any():
                break
            left &= masks[best]
            chosen.append(best)
        return chosen

    def _loosened(self, atoms: Sequence[Atom], kept: Mask) -> list[Atom]:
        """Return atoms that leave every list long enough, at least one."""
        query: list[Atom] = []
        least = self.habits.shortest_list(self.table)
        found = np.ones(len(self.table), bool)
        sections: dict[str, Mask] = {}
        for atom in atoms:
            mask = self.table.mask(atom)
            listed = (
                found
                if self.style == "concise"
                else sections.get(atom[0], np.ones(len(self.table), bool))
            )
            both = found & mask
            if (listed & mask).sum() >= least and both.sum() > 1 and not (kept & ~mask).any():
                query.append(atom)
                found, sections[atom[0]] = both, listed & mask
        return query or [
            max(
                self.heard,
                key=lambda atom: (
                    not (kept & ~self.table.mask(atom)).any(),
                    int(self.table.mask(atom).sum()),
                ),
            )
        ]

    def _guess(self, found: Mask, closing: bool) -> int:
        # A guessed decoy would no longer stay in all lists.
        able = self._telling(found) if closing else found & ~self.decoys & ~self.returning
        others = np.arange(len(self.table)) != self.target
        if self.peak is not None:
            others = self.peak.allowed(len(self.rounds) + 1)
        able = able & others
        # Repeats are rare: only if a list has no unguessed item.
        fresh = able & ~self.guessed
        pool = np.flatnonzero(fresh if fresh.any() else able)
        return int(self.rng.choice(pool if len(pool) else np.flatnonzero(others)))

    def _telling(self, found: Mask) -> Mask:
        """Return items in all lists or, if all were guessed, those that share an unseen value with
        the hidden one.
        """
        others: Mask = self.left & (np.arange(len(self.table)) != self.target)
        if (others & ~self.guessed).any():
            return others
        for section, column in zip(self.table.sections, self.table.columns, strict=True):
            for value in () if section.numeric else column[self.target]:
                atom: Atom = (section.name, "has", value)
                holders = self.table.mask(atom)
                if atom not in self.heard and holders.sum() > 1:
                    return holders
        return found

    def _fitting(self, room: int, kept: Mask) -> Round | None:
        best = None
        for attempt in range(_TRIES):
            atoms = self._remembered()
            if attempt % 2 and self.style == "verbose":
                atoms = [atom for atom in self.heard if atom[0] == atoms[0][0]]
            elif attempt % 2:
                heard = list(self.heard)
                atoms = [heard[k] for k in self.rng.permutation(len(heard))]
            drawn = self._draw(atoms, kept)
            if drawn.tokens <= room and (best is None or drawn.tokens > best.tokens):
                best = drawn
        return best

    def _round(self, guess: int, query: Sequence[Atom] | None) -> Round:
        number = len(self.rounds) + 1
        start = self.rounds[-1].start + len(self.rounds[-1].messages) if self.rounds else 1
        messages: list[Message] = []
        sections: tuple[str, ...] = ()
        lists: tuple[NDArray[np.intp], ...] = ()
        if query is not None:
            conditions = to_conditions(Constraints.of(query).atoms())
            call = ToolCall(TOOL, {"conditions": conditions}, f"call_{start}")
            messages += [
                Message("assistant", calls=(call,)),
                Message("tool", search(self.table, conditions, self.style), call_id=call.id),
            ]
            atoms = to_atoms(conditions)
            sections = (
                ("",)
                if self.style == "concise"
                else tuple(dict.fromkeys(atom[0] for atom in atoms))
            )
            lists = tuple(
                np.flatnonzero(self.table.meet(a for a in atoms if name in ("", a[0])))
                for name in sections
            )
        feedback = write_feedback(self.table, number, guess, self.target, self.cap - number)
        messages += [
            Message("assistant", f"<answer>{self.table.names[guess]}</answer>"),
            Message("user", feedback),
        ]
        tokens = sum(map(self.counter.count, messages))
        return Round(number, guess, sections, lists, tuple(messages), start, tokens)

    def _add(self, drawn: Round) -> None:
        self.rounds.append(drawn)
        self.tokens += drawn.tokens
        if drawn.lists:
            self.left &= within(drawn.lists, len(self.table))
        self.repeats += bool(self.guessed[drawn.guess])
        self.guessed[drawn.guess] = True
        for atom in self.table.feedback_atoms(drawn.guess, self.target):
            self.heard[atom] = drawn.number

    def _choose_returning(self) -> None:
        # They resemble the hidden item, because they satisfy most known atoms.
        able = np.flatnonzero(~self.left & ~self.guessed & ~self._peak_item)
        met = np.zeros(len(self.table), np.int64)
        for atom in self.heard:
            met += self.table.mask(atom)
        self.returning[able[np.argsort(-met[able], kind="stable")[:_RETURNING]]] = True

    def _choose_decoys(self, drawn: Round) -> None:
        able = [
            place
            for place in drawn.lists[0].tolist()
            if place != self.target and not (self.guessed | self._peak_item)[place]
        ]
        self.decoys[self.rng.permutation(able)[:_DECOYS]] = True
