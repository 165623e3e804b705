"""Long logs of a puzzle, played by a simulated agent that forgets and wanders (AgentLongBench,
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
"""Smallest share of its length that a log fills: rounds are whole, so no share can be 1."""
RESERVE = 400
"""Tokens of a length that are left for the question."""
SHORTEST = 4_000
"""Tokens; in less there is no room for the fewest rounds."""

FEWEST = 4
"""Fewest rounds of a log that fills a length: each task can then be asked."""

_DECOYS = 2  # one could be excluded by chance
_RETURNING = 3  # with the hidden item, a reader of the end has four to choose from
_ENDING = 0.6  # of a log; the last page of a short one is a quarter of it
_TRIES = 40  # rounds from which the largest that fits is taken
_ATTEMPTS = 12  # logs to play before giving up, each two with a longer end
_REPLAYS = 30  # logs with a peak to play before giving up; one or two are enough mostly
_MARGIN = 1.5
"""Rounds for which a peak is drawn, to those of a log of the same length: more than any has."""
_CAPS = {"concise": (2_010, 1_000), "verbose": (260, 4_000)}
"""The cap of rounds in the paper's figures, and the tokens that a round takes at least, about:
longer logs get a higher cap.
"""

ListLength = Annotated[int, Field(ge=2, le=10_000)]
"""The fewest items of a list; a list of one would give the hidden item away."""
FEWEST_ROUNDS, LONGEST_ROUNDS = 3, 100_000
"""The rounds of a log: a shorter one has no history to ask about."""
LONGEST = 10**9
"""The tokens of the longest log; far beyond the benchmark's 4M."""


@dataclass(frozen=True, kw_only=True)
class Habits(Config):
    """Options of the simulated agent (section C.3; the values are ours, the paper gives none).

    Attributes:
        history_window: The number of newest rounds whose conditions are always remembered.
        forget_history_prob: The probability that an older condition is forgotten, drawn again for
            each in each round.
        mask_prob: The probability that a section is left out of a query.
        max_mask_sections: The most sections that are left out of a query; all are never left out.
        epsilon: The probability that a random part of the remaining conditions is left out besides.
        min_list: The fewest items of a list; conditions that would make one shorter are left out.
        late: The share of a log, counted from its end, in which its lists together leave the hidden
            item alone, if they are to do so; up to six times that where no such log is found.
    """

    history_window: Annotated[int, Field(ge=1, le=100)] = 1
    forget_history_prob: Share = 0.98
    mask_prob: Share = 0.35
    max_mask_sections: Annotated[int, Field(ge=0, le=6)] = 3  # six is all sections
    epsilon: Share = 0.3
    min_list: ListLength = 50
    late: Share = 0.15

    def shortest_list(self, table: ItemTable) -> int:
        """Return the fewest items of a list of a table, which may have few items itself."""
        return min(self.min_list, max(2, len(table) // 4))


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One round of a log.

    Attributes:
        number: Its number, from 1.
        guess: The item that was guessed.
        sections: The section of each list of the tool result; one empty name for a concise one,
            nothing in round 1.
        lists: The items of each list, in order.
        messages: The call, its result, the guess and the feedback; of round 1 the last two.
        start: The place of the first of them in the log.
        tokens: What they take.
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
        """The tool result; rounds from 2 on have one."""
        return self.messages[1]

    @property
    def feedback(self) -> Message:
        """The feedback on the guess."""
        return self.messages[-1]


@dataclass(frozen=True, eq=False)
class Log:
    """A log: the messages of a puzzle that is not solved yet.

    Attributes:
        table: The items.
        target: The hidden item.
        style: `concise` or `verbose`.
        system: The system message.
        rounds: The rounds.
        tokens: What all messages take.
        repeats: How many guesses were guessed before, since nothing else was left in the list.
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
        """All messages, in order."""
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
    """Play a puzzle for a number of rounds, or until it fills a length; whole rounds only, and the
    hidden item is not found.

    Time and memory are linear in the length: what a round costs is bounded by the items and their
    values.

    Args:
        table: The items.
        target: The hidden item.
        style: `concise` or `verbose`.
        habits: How the agent plays.
        seed: Seeds the agent.
        rounds: The number of rounds, at least 3; or None for `length`.
        length: The tokens of the log with its question, at least `SHORTEST`. 90 to 100 % of them
            are filled.
        counter: What counts the tokens.
        isolate: Whether all lists together shall have exactly the hidden item in common, and not
            before the last `habits.late`.
        peak: The place in the log of the first guess with the largest number, in [0, 1), or None for
            wherever it comes. How many rounds fill a length shows only when they are played: the
            place is one among more, and such a log is played until it is long enough for it.

    Raises:
        ValueError: There is not room enough for the rounds, or for the lists to leave the hidden
            item alone.
    """
    limit, cap = _limits(style, rounds, length)
    by_rounds = rounds is not None

    def finished(top: Peak | None) -> Log | None:
        for attempt in range(_ATTEMPTS):
            late = min(0.9, habits.late * (1 + attempt // 2))
            rng = np.random.default_rng((seed, attempt))
            game = _Game(table, target, style, habits, rng, counter, cap, top)
            if game.run(limit, by_rounds, (1 - late) * limit if isolate else None):
                return game.log()
        return None

    log = None if by_rounds and peak is not None else finished(None)
    if peak is not None and (by_rounds or log is not None):
        most = limit if log is None else ceil(_MARGIN * len(log.rounds))
        rng = np.random.default_rng((seed, _ATTEMPTS))  # no attempt has this one
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
    """Return a log whose largest number stands in a round that was drawn; None if there is none.

    Args:
        draw: Draws the item of a round.
        finished: Plays a log with a peak; returns None if it cannot be played to its end.
        place: The place of the round among `most`, in [0, 1). Where the log ends before that round,
            another one is drawn, which leaves all rounds of the log equally likely.
        most: The most rounds that the log may have.
        rng: Draws the other places.
    """
    for _ in range(_REPLAYS):
        top = draw(1 + int(place * most))
        log = None if top is None else finished(top)
        if top is not None and log is not None:
            if top.number <= len(log.rounds):
                return log
            place = rng.random()
    return None


def _limits(style: str, rounds: int | None, length: int | None) -> tuple[int, int]:
    """The rounds or tokens that are to be filled, and the cap of rounds."""
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
        heard: Each atom that feedback told, with the round in which it was told last.
        left: The items that are in all lists so far.
        decoys: Items that stay in all lists until the log nears its end.
        returning: Items that early lists exclude, and that are in all lists near the end, so that
            these alone do not tell the hidden item.
        peak: The guess with the largest number, if its round was drawn.
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
        """The log so far."""
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
        """Play to the limit.

        Returns:
            Whether it is filled and, from `close_at` on, the hidden item was isolated.
        """
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
                kept = kept | self._peak_item  # so that the guess is one of the list
            drawn = self._draw(self._aimed() if closing else self._remembered(), kept, closing)
            room = limit - self.tokens
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
        """The item of the peak, if there is one."""
        if self.peak is None:
            return np.zeros(len(self.table), bool)
        return self.peak.allowed(self.peak.number)

    def _draw(self, atoms: Sequence[Atom], kept: Mask, closing: bool = False) -> Round:
        """The next round, with conditions from these atoms."""
        query = self._loosened(atoms, kept)
        return self._round(self._guess(self.table.meet(query), closing), query)

    def _remembered(self) -> list[Atom]:
        """The conditions that the agent has in mind, in random order: what it remembers, without
        what it masks or relaxes.
        """
        newest = len(self.rounds) - self.habits.history_window
        old = [atom for atom, told in self.heard.items() if told <= newest]
        lost = self.rng.random(len(old)) < self.habits.forget_history_prob
        forgotten = set(compress(old, lost))
        constraints = Constraints.of(atom for atom in self.heard if atom not in forgotten).atoms()
        names = list(dict.fromkeys(atom[0] for atom in constraints))
        masked = [name for name in names if self.rng.random() < self.habits.mask_prob]
        most = min(self.habits.max_mask_sections, len(names) - 1)
        out = {masked[k] for k in self.rng.permutation(len(masked))[:most]}
        shown = [atom for atom in constraints if atom[0] not in out]
        order = self.rng.permutation(len(shown))
        if len(shown) > 1 and self.rng.random() < self.habits.epsilon:
            order = order[: self.rng.integers(1, len(shown))]
        return [shown[k] for k in order]

    def _aimed(self) -> list[Atom]:
        """List few known atoms that exclude the items still in all lists: each time the one that
        excludes most of them and, of several, that which the longest list meets.

        The lists stay long, so that the last of them do not tell the hidden item by themselves.
        """
        masks = {atom: self.table.mask(atom) for atom in self.heard}
        masks = {atom: m for atom, m in masks.items() if not (self.returning & ~m).any()}
        left, chosen = self.left.copy(), list[Atom]()
        while left.sum() > 1 and masks:
            best = max(
                masks, key=lambda atom: (-int((left & masks[atom]).sum()), int(masks[atom].sum()))
            )
            if not (left & ~masks[best]).any():
                break
            left &= masks[best]
            chosen.append(best)
        return chosen

    def _loosened(self, atoms: Sequence[Atom], kept: Mask) -> list[Atom]:
        """As many of the atoms as leave every list long enough, with certain items in it; any other
        that was heard if none does.
        """
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
        """An item of the list, one that was not guessed before if there is one; never the hidden
        item or a decoy.
        """
        able = self._telling(found) if closing else found & ~self.decoys & ~self.returning
        others = np.arange(len(self.table)) != self.target
        if self.peak is not None:
            others = self.peak.allowed(len(self.rounds) + 1)
        able = able & others
        fresh = able & ~self.guessed
        pool = np.flatnonzero(fresh if fresh.any() else able)
        return int(self.rng.choice(pool if len(pool) else np.flatnonzero(others)))

    def _telling(self, found: Mask) -> Mask:
        """Return items whose feedback helps to isolate the hidden one: those still in all lists or,
        if they were all guessed, those that share a value with it which no feedback has shown.
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
        """The largest of some rounds that fit into the room that is left, with fewer or more
        conditions than usual.
        """
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
        """The next round, not added yet."""
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
        """Add a round to the log, and take in its feedback."""
        self.rounds.append(drawn)
        self.tokens += drawn.tokens
        if drawn.lists:
            self.left &= within(drawn.lists, len(self.table))
        self.repeats += bool(self.guessed[drawn.guess])
        self.guessed[drawn.guess] = True
        for atom in self.table.feedback_atoms(drawn.guess, self.target):
            self.heard[atom] = drawn.number

    def _choose_returning(self) -> None:
        """Choose items that early lists exclude and that are most like the hidden one: they meet
        the most of what was heard.
        """
        able = np.flatnonzero(~self.left & ~self.guessed & ~self._peak_item)
        met = np.zeros(len(self.table), np.int64)
        for atom in self.heard:
            met += self.table.mask(atom)
        self.returning[able[np.argsort(-met[able], kind="stable")[:_RETURNING]]] = True

    def _choose_decoys(self, drawn: Round) -> None:
        """Items of the first list that stay in all lists until the end is near."""
        able = [
            place
            for place in drawn.lists[0].tolist()
            if place != self.target and not (self.guessed | self._peak_item)[place]
        ]
        self.decoys[self.rng.permutation(able)[:_DECOYS]] = True
