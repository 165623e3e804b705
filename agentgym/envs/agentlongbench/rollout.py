"""Play logs with a simulated agent (AgentLongBench, sections 2.2, C.1 to C.4)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from math import ceil

import numpy as np
from numpy.typing import NDArray

from agentgym.envs.agentlongbench import CAPS
from agentgym.envs.agentlongbench.belief import Constraints
from agentgym.envs.agentlongbench.config import QAConfig
from agentgym.envs.agentlongbench.engine import (
    PUBLISHED_TOOL,
    TOOL,
    explain_game,
    search,
    to_atoms,
    to_conditions,
    write_feedback,
)
from agentgym.envs.agentlongbench.items import Atom, ItemTable, Mask
from agentgym.envs.agentlongbench.logs import Log, Peak, Round, within
from agentgym.text.messages import Message, ToolCall
from agentgym.text.tokens import TokenCounter

RESERVE = 400
"""Tokens reserved for the question."""

_DRAWS = 20  # item tables to try before giving up
_ATTEMPTS = 12  # logs to play before giving up
_REPLAYS = 30
# Fraction of a log, counted from the end, in which the agent isolates the hidden item.
_LATE = 0.15
_MARGIN = 1.5
# Minimum number of tokens per round.
_ROUND_TOKENS = {"concise": 1_000, "verbose": 4_000}
FILLED = 0.9
"""Minimum filled share of a log's length; rounds are indivisible, so 1 is impossible."""
FEWEST = 4
"""Minimum rounds of a log that fills a length, so each task can be asked."""
_DECOYS = 2  # with a single decoy, one query could exclude all decoys by chance
_RETURNING = 3
_ENDING = 0.6
_TRIES = 40

# The paper gives no values for these parameters (section C.3). The agent remembers the conditions
# of the newest rounds and forgets each older condition with a fixed probability per round.
HISTORY_WINDOW, FORGET_HISTORY = 1, 0.98
# The probability that a query omits a section, and the maximum number of omitted sections.
MASK, MOST_MASKED = 0.35, 3
# The probability that a query also omits a random subset of its conditions.
EPSILON = 0.3


def draw_log(
    config: QAConfig, rng: np.random.Generator, counter: TokenCounter, *, isolate: bool, peak: bool
) -> Log:
    """Draw items and play whole rounds without guessing the hidden item.

    The log and the question fill 90 to 100 % of `config.length`, if it is given. Time and memory
    are linear in the size. With `isolate`, only the hidden item occurs in every list, but early
    lists alone do not reveal the hidden item. With `peak`, an item with the largest number is first
    guessed in a random round.

    Raise ValueError if no log of the configured size meets the requirements.
    """
    problem, place = ValueError(), rng.random() if peak else None
    # Keep `place` in all attempts; otherwise, positions that often fail would become rarer.
    for _ in range(_DRAWS):
        table = config.table(rng)
        target = next(config.targets(table, rng, config.shortest_list(table)))
        seed = int(rng.integers(2**63))
        try:
            return play(table, target, config, seed, counter, isolate=isolate, peak=place)
        except ValueError as error:  # other items may work
            problem = error
    raise problem


def play(
    table: ItemTable,
    target: int,
    config: QAConfig,
    seed: int,
    counter: TokenCounter,
    *,
    isolate: bool = False,
    peak: float | None = None,
) -> Log:
    """Play a log about given items as `draw_log` does.

    `peak` in [0, 1) determines in which round an item with the largest number is first guessed.
    """
    limit, most = _limits(config)
    cap = max(CAPS[config.style], most) + 1

    def finished(top: Peak | None) -> Log | None:
        for attempt in range(_ATTEMPTS):
            # Later attempts give the agent more rounds to isolate the hidden item.
            late = min(0.9, _LATE * (1 + attempt // 2))
            rng = np.random.default_rng((seed, attempt))
            game = SimulatedGame(table, target, config, rng, counter, cap, top)
            if game.run(limit, (1 - late) * limit if isolate else None):
                return game.log()
        return None

    log = None
    if config.length or peak is None:
        log = finished(None)
        most = ceil(_MARGIN * len(log.rounds)) if log else 0
    if log and peak is None:
        return log
    if peak is not None and most:
        rng = np.random.default_rng((seed, _ATTEMPTS))
        for _ in range(_REPLAYS):
            top = Peak.draw(table, target, 1 + int(peak * most), rng)
            if top and (log := finished(top)):
                if top.number <= len(log.rounds):
                    return log
                # If the log is too short, redraw the round, so that all rounds stay equally likely.
                peak = rng.random()
    raise ValueError(
        f"cannot generate a log of {limit} {'tokens' if config.length else 'rounds'}; increase the "
        f"length, or use a min_list below {config.min_list}"
    )


def _limits(config: QAConfig) -> tuple[int, int]:
    if not config.length:
        return config.rounds, config.rounds
    tokens = config.length - RESERVE
    return tokens, ceil(tokens / _ROUND_TOKENS[config.style])


class SimulatedGame:
    """A puzzle in progress.

    Decoys are wrong items that occur in every list until shortly before the log ends. Returning
    items are wrong items that only early lists exclude, so the last lists alone do not reveal the
    hidden item. `heard` maps each fact from the feedback to the last round that mentioned the fact.
    """

    def __init__(
        self,
        table: ItemTable,
        target: int,
        config: QAConfig,
        rng: np.random.Generator,
        counter: TokenCounter,
        cap: int,
        peak: Peak | None,
    ) -> None:
        self.table, self.target, self.config, self.rng = table, target, config, rng
        self.counter, self.cap, self.peak = counter, cap, peak
        self.heard: dict[Atom, int] = {}
        self.left = np.ones(len(table), bool)
        self.guessed = np.zeros(len(table), bool)
        self.decoys = np.zeros(len(table), bool)
        self.returning = np.zeros(len(table), bool)
        self.rounds: list[Round] = []
        self.tool = PUBLISHED_TOOL if config.published else TOOL
        self.system = Message("system", explain_game(config.style, self.tool), id="0:0")
        self.tokens = counter.count(self.system)
        first = int((target + rng.integers(1, len(table))) % len(table))
        if peak is not None:
            first = int(rng.choice(np.flatnonzero(peak.allowed(1))))
        self._add(self._round(first, None))

    def log(self) -> Log:
        """Return the log so far."""
        rounds = tuple(self.rounds)
        return Log(self.config.style, self.system, rounds, self.tokens, self.table, self.target)

    def run(self, limit: int, close_at: float | None) -> bool:
        """Play up to `limit` rounds or tokens and return whether the log is complete."""
        by_rounds = not self.config.length
        while len(self.rounds) < self.cap:
            used = len(self.rounds) if by_rounds else self.tokens
            isolating = close_at is not None and int(self.left.sum()) > 1
            if by_rounds and used >= limit:
                return not isolating
            closing = isolating and used >= (close_at or 0)
            if close_at is not None and used >= _ENDING * limit and not self.returning.any():
                self._choose_returning()
            kept = self.returning
            if isolating and not closing:
                kept = kept | self.decoys
            if self.peak is not None and self.peak.number == len(self.rounds) + 1 and not closing:
                kept = kept | self._peak_item  # the list must contain the guessed item
            drawn = self._draw(self._aimed() if closing else self._remembered(), kept, closing)
            room = limit - self.tokens
            # Early rounds must leave enough tokens for the minimum number of rounds.
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
        newest = len(self.rounds) - HISTORY_WINDOW
        old = [atom for atom, told in self.heard.items() if told <= newest]
        lost = self.rng.random(len(old)) < FORGET_HISTORY
        forgotten = set(compress(old, lost))
        constraints = Constraints.of(atom for atom in self.heard if atom not in forgotten).atoms()
        names = list(dict.fromkeys(atom[0] for atom in constraints))
        masked = [name for name in names if self.rng.random() < MASK]
        # Keep at least one section, because a query needs a condition.
        most = min(MOST_MASKED, len(names) - 1)
        out = {masked[k] for k in self.rng.permutation(len(masked))[:most]}
        shown = [atom for atom in constraints if atom[0] not in out]
        order = self.rng.permutation(len(shown))
        if len(shown) > 1 and self.rng.random() < EPSILON:
            order = order[: self.rng.integers(1, len(shown))]
        return [shown[k] for k in order]

    def _aimed(self) -> list[Atom]:
        """Greedily choose known facts that exclude as many remaining candidates as possible."""
        masks: dict[Atom, Mask] = {}
        for atom in self.heard:
            mask = self.table.mask(atom)
            if not (self.returning & ~mask).any():
                masks[atom] = mask
        left, chosen = self.left.copy(), list[Atom]()
        while left.sum() > 1 and masks:
            # Ties go to the longest list, because long lists do not reveal the hidden item.
            best = max(
                masks, key=lambda atom: (-int((left & masks[atom]).sum()), int(masks[atom].sum()))
            )
            if not (left & ~masks[best]).any():
                break
            left &= masks[best]
            chosen.append(best)
        return chosen

    def _loosened(self, atoms: Sequence[Atom], kept: Mask) -> list[Atom]:
        """Drop conditions that would make a list too short, but keep at least one condition."""
        query: list[Atom] = []
        least = self.config.shortest_list(self.table)
        found = np.ones(len(self.table), bool)
        sections: dict[str, Mask] = {}
        for atom in atoms:
            mask = self.table.mask(atom)
            listed = found
            if self.config.style == "verbose":
                listed = sections.get(atom[0], np.ones(len(self.table), bool))
            both = found & mask
            if (listed & mask).sum() >= least and both.sum() > 1 and not (kept & ~mask).any():
                query.append(atom)
                found, sections[atom[0]] = both, listed & mask

        def fitness(atom: Atom) -> tuple[bool, int]:
            mask = self.table.mask(atom)
            return not (kept & ~mask).any(), int(mask.sum())

        return query or [max(self.heard, key=fitness)]

    def _guess(self, found: Mask, closing: bool) -> int:
        # If a decoy were guessed, later lists would exclude it.
        able = self._telling(found) if closing else found & ~self.decoys & ~self.returning
        others = np.arange(len(self.table)) != self.target
        if self.peak is not None:
            others = self.peak.allowed(len(self.rounds) + 1)
        able = able & others
        # Repeat a guess only if every allowed item has been guessed.
        fresh = able & ~self.guessed
        allowed = next((each for each in (fresh, able) if each.any()), others)
        return int(self.rng.choice(np.flatnonzero(allowed)))

    def _telling(self, found: Mask) -> Mask:
        others: Mask = self.left & (np.arange(len(self.table)) != self.target)
        if (others & ~self.guessed).any():
            return others
        for section, column in zip(self.table.sections, self.table.columns, strict=True):
            if section.numeric:
                continue
            for value in column[self.target]:
                atom: Atom = (section.name, "has", value)
                holders = self.table.mask(atom)
                if atom not in self.heard and holders.sum() > 1:
                    return holders
        return found

    def _fitting(self, room: int, kept: Mask) -> Round | None:
        best = None
        for attempt in range(_TRIES):
            atoms = self._remembered()
            if attempt % 2 and self.config.style == "verbose":
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
        start = 1
        if self.rounds:
            start = self.rounds[-1].start + len(self.rounds[-1].messages)
        messages: list[Message] = []
        lists: tuple[NDArray[np.intp], ...] = ()
        if query is not None:
            conditions = to_conditions(Constraints.of(query).atoms())
            call = ToolCall(self.tool, {"conditions": conditions}, f"call_{start}")
            messages += [
                Message("assistant", calls=(call,)),
                Message("tool", search(self.table, conditions, self.config.style), call_id=call.id),
            ]
            groups: dict[str, list[Atom]] = {}
            for atom in to_atoms(conditions):
                # In the concise style, a single list meets all conditions.
                section = "" if self.config.style == "concise" else atom[0]
                groups.setdefault(section, []).append(atom)
            lists = tuple(np.flatnonzero(self.table.meet(atoms)) for atoms in groups.values())
        feedback = write_feedback(self.table, number, guess, self.target, self.cap - number)
        messages += [
            Message("assistant", f"<answer>{self.table.names[guess]}</answer>"),
            Message("user", feedback),
        ]
        tokens = sum(map(self.counter.count, messages))
        return Round(number, tuple(messages), start, guess, lists, tokens)

    def _add(self, drawn: Round) -> None:
        self.rounds.append(drawn)
        self.tokens += drawn.tokens
        if drawn.lists:
            self.left &= within(drawn.lists, len(self.table))
        self.guessed[drawn.guess] = True
        for atom in self.table.feedback_atoms(drawn.guess, self.target):
            self.heard[atom] = drawn.number

    def _choose_returning(self) -> None:
        # Choose the items that satisfy the most known facts and so resemble the hidden item.
        able = np.flatnonzero(~self.left & ~self.guessed & ~self._peak_item)
        met = np.zeros(len(self.table), np.int64)
        for atom in self.heard:
            met += self.table.mask(atom)
        order = np.argsort(-met[able], kind="stable")
        self.returning[able[order[:_RETURNING]]] = True

    def _choose_decoys(self, drawn: Round) -> None:
        taken = self.guessed | self._peak_item
        taken[self.target] = True
        able = drawn.lists[0][~taken[drawn.lists[0]]]
        self.decoys[self.rng.permutation(able)[:_DECOYS]] = True
