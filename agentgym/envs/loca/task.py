"""What the tasks of LOCA-bench share: an office whose state is as long as asked, a reference plan,
and a check of the final state.

A task fills `draw`, `task`, `plan` and `faults`. The oracle hooks follow from the plan: the belief
state is what its steps have learnt, the optimal calls are the steps that may be taken next.
"""

from __future__ import annotations

import functools
import json
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np

from agentgym.envs.loca.calls import plain
from agentgym.envs.loca.config import LENGTHS, MAX_SIZE, OfficeConfig
from agentgym.envs.loca.plan import CLAIM, Plan, Progress, Step, steps_of
from agentgym.envs.loca.protected_state import changes, untouched
from agentgym.envs.loca.servers.context import START
from agentgym.envs.loca.servers.office import Office
from agentgym.messages import ToolCall
from agentgym.registry import register
from agentgym.tokens import counter
from agentgym.world import World

OfficeT = TypeVar("OfficeT", bound=OfficeConfig)

IRREVERSIBLE_TOOLS = frozenset({"send_email", "reply_email", "forward_email", "logging_write_log"})
"""Tools whose effect no other call undoes."""

MAX_CALLS = 128
"""A reply with more calls than this is refused."""

TOLERANCE = 0.08
"""How far, as a share, the length of a drawn state may be from the one asked for before another
size is tried.
"""

_TRIES = 12
_FACTS, _MISSING = "Known so far:", "Outputs still missing: "


class OfficeTask(World[OfficeT], Generic[OfficeT]):
    """Work in an office, through the tools of its servers, until the agent claims to be done.

    The score is 1 if the agent has claimed to be done and the final state fulfils every
    requirement, and 0 otherwise. Optimal are the calls that the reference plan asks for next. A
    call is judged `productive` if it is one of those, or if fewer requirements are unfulfilled
    after the reply than before; `harmful` if more are, or if it ends the work too early; else
    `productive` if it does in another way what the plan asks for next, and `redundant` if not.

    Attributes:
        servers: The servers that the task gives (table 7 of the paper).
        start: When the episode begins.
        outputs: What has to be made, in words.
        worked_on: The tables of the servers that the work changes, as `server.table`: `faults`
            looks at what is in them. Nothing else in the services may be changed, whether the task
            says so or not; files are for `faults` alone.
        unit_tokens: About how many tokens of description one unit of size takes: the first guess in
            solving for the length.
        truth: What the generator knows of the right final state.
        tokens: The description length of the state, in tokens of cl100k.
    """

    Config = OfficeConfig
    observes = True
    labels_decide = False
    servers: ClassVar[tuple[str, ...]]
    start: ClassVar[datetime] = START
    outputs: ClassVar[tuple[str, ...]]
    mutable_tables: ClassVar[tuple[str, ...]] = ()
    tokens_per_unit: ClassVar[float] = 400.0

    def __init__(self, config: OfficeT, seed: int) -> None:
        super().__init__(config, seed)
        self.max_calls = MAX_CALLS
        self.truth: Any = None
        self.tokens = 0
        self._kept: Mapping[str, str] = {}
        self.progress = Progress(self.plan, functools.partial(plain, self.servers))

    @functools.cached_property
    def office(self) -> Office:
        """The servers with their state; empty until `generate`. A world that was read from a chat
        never asks for it.
        """
        return Office(self.servers, self.start)

    # What a task fills.

    def draw(self, size: int) -> None:
        """Fill `self.office` and set `self.truth` from `self.rng`, with `size` units of what the
        task is about.
        """
        raise NotImplementedError

    def plan(self) -> Plan:
        """The reference plan, without the claim at its end.

        It uses `self.config` and `self.office` for nothing.
        """
        raise NotImplementedError

    def faults(self) -> Iterator[str]:
        """The requirements that the state of the office does not fulfil, each in words; none if the
        task is done right.
        """
        raise NotImplementedError

    def describe(self) -> Iterable[ToolCall] | None:
        """The calls that read all that an agent would need to read; None for the reading steps of
        the plan.
        """
        return None

    # The world.

    def generate(self) -> None:
        """Draw a state of the length asked for, or take a copy of the one that was drawn for the
        same seed.
        """
        kind: Any = type(self)
        drawn: _Drawn = _draw(kind, self.config, int(self.rng.integers(2**63)))
        self.office, self.truth, self.tokens, self._kept = pickle.loads(drawn.state)
        self.max_turns = self.config.budget(drawn.steps)

    def rules(self) -> str:
        """How the work goes."""
        return (
            "You work in an office through the tools of its services. Files are in /workspace. Do "
            "the task of the user completely "
            "and change nothing else; only new files of your own in /workspace do not matter. Only "
            "the state of the files and "
            "services at the end counts. Nobody answers questions; when all is done, call "
            "claim_done."
        )

    def toolsets(self) -> Sequence[object]:
        """The servers."""
        return self.office.toolsets()

    def score(self) -> float:
        """1.0 if the agent has claimed to be done and nothing is wrong or missing, 0.0 otherwise
        (section 2.3 of the paper).
        """
        return float(self.done and not any(self.wrong()))

    def wrong(self) -> Iterator[str]:
        """The faults of the task, and what was changed in the services beside it."""
        yield from self.faults()
        yield from changes(self.office, self.mutable_tables, self._kept)

    def report(self) -> Mapping[str, Any]:
        """Which requirements are not fulfilled, and the description length."""
        faults = list(self.wrong())
        return {
            "claimed": self.done,
            "faults": faults[:100],
            "fault_count": len(faults),
            "description_tokens": self.tokens,
        }

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        """The size whose reference plan has about `steps` steps."""
        kind: Any = cls
        low, high = _steps(kind, 4), _steps(kind, 12)
        size = 4 + round((steps - low) * 8 / max(1, high - low))
        if not 1 <= size <= MAX_SIZE or (high == low and steps != low):
            raise ValueError(
                f"{cls.__name__} has no size with a plan of about {steps} steps; it has {low} at "
                f"size 4, {high} at 12"
            )
        return {"size": size}

    # What an agent could know.

    def state(self) -> str:
        """The facts that the steps of the plan have learnt, the changes that were made, and the
        outputs that are missing.
        """
        lines = "\n".join(f"- {line}" for line in self.progress.lines()) or "- nothing"
        return f"{_FACTS}\n{lines}\n{_MISSING}{', '.join(self._missing()) or 'none'}"

    def _missing(self) -> list[str]:
        pending = self.progress.pending()
        if not all(step.changes for step in pending):
            return list(self.outputs)
        open_outputs = {step.output for step in pending}
        made = {step.output for step in self.progress.passed() if step.changes} - open_outputs
        return (
            [] if pending in ([], [CLAIM]) else [name for name in self.outputs if name not in made]
        )

    def subtask(self, with_state: bool) -> str:
        """The order of the next step of the plan; that of a step which reads names the call, on
        whose form its result depends.
        """
        return (
            _order(self.progress.pending()[0])
            if self.optimal_calls()
            else "The task cannot be done right any more."
        )

    def reasoning(self, call: ToolCall) -> str:
        """The order that the call carries out."""
        return next(
            (step.label for step in self.progress.pending() if self.progress.counts(step, call)),
            "Look again.",
        )

    def optimal_calls(self) -> Sequence[ToolCall]:
        """The steps that may be taken next; none once the plan is through and something was done
        that cannot be undone.
        """
        pending = self.progress.pending()
        return (
            [] if pending == [CLAIM] and self.progress.strays else [step.call for step in pending]
        )

    def legal_calls(self) -> Sequence[ToolCall]:
        """The optimal calls, the reads that were made, and the claim."""
        again = [step.call for step in self.progress.passed() if not step.changes]
        return [
            *self.optimal_calls(),
            *again,
            *([] if self.optimal_calls() == [CLAIM.call] else [CLAIM.call]),
        ]

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]]:
        """Labels calls as productive, redundant or harmful; see the class."""
        before, pending = len(list(self.wrong())), self.progress.pending()

        def label(calls: Sequence[ToolCall]) -> Sequence[str]:
            after = len(list(self.wrong()))
            return [self._label(call, pending, before, after) for call in calls]

        return label

    def _label(self, call: ToolCall, pending: Sequence[Step], before: int, after: int) -> str:
        if call.name == CLAIM.call.name:
            return "harmful" if after else "productive"
        if after < before or any(
            (call.name, call.arguments) == (step.call.name, step.call.arguments) for step in pending
        ):
            return "productive"
        planned = any(self.progress.counts(step, call) for step in pending)
        return "harmful" if after > before else "productive" if planned else "redundant"

    # How a scripted policy reads.

    @classmethod
    def read_task(cls, task: str) -> Self:
        """A world that knows the task, which is the same for all instances."""
        return cls(cast("OfficeT", cls.Config()), 0)

    def read_result(self, call: ToolCall, result: str) -> None:
        """Take in what a call told."""
        self.progress.take(call, result, call.name in IRREVERSIBLE_TOOLS)

    def read_state(self, state: str) -> None:
        """Take in a text of `state()`."""
        lines = state.split("\n")
        if lines[0] != _FACTS or not lines[-1].startswith(_MISSING):
            raise ValueError("this is no state of an office task")
        self.progress.load([line[2:] for line in lines[1:-1] if line != "- nothing"])

    def read_subtask(self, subtask: str) -> ToolCall | None:
        """The call of the step with that order."""
        return next(
            (step.call for step in self.progress.pending() if _order(step) == subtask), None
        )


def _order(step: Step) -> str:
    arguments = json.dumps(step.call.arguments, ensure_ascii=False)
    return step.label if step.changes else f"{step.label} Call {step.call.name} with {arguments}."


def register_task(task: type[OfficeTask[Any]]) -> None:
    """Register a task with the paper's lengths as presets (`agentgym/<Task>-8k-v0`, …)."""
    register(task, {name: {"length": length} for name, length in LENGTHS.items()})


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A state that was drawn, pickled, with its length and what is to be left alone; and how many
    steps the plan has.
    """

    state: bytes
    steps: int
    tokens: int


@functools.lru_cache(maxsize=8)
def _draw(task: Any, config: OfficeConfig, seed: int) -> _Drawn:
    """Draw a state of the length that a configuration asks for, from sizes that are ever better
    guesses.
    """
    if config.size is not None:
        return _draw_size(task, config, (seed, config.size), config.size)
    size = max(1, round(config.length / task.tokens_per_unit))
    drawn = [_draw_size(task, config, (seed, 0), size)]
    sizes = [size]
    while (
        len(drawn) < _TRIES
        and min(abs(each.tokens - config.length) for each in drawn) > TOLERANCE * config.length
    ):
        # A size that was tried already is drawn anew: where one unit more is too much, another
        # state of as many may fit.
        sizes.append(
            _better(config.length, [(n, each.tokens) for n, each in zip(sizes, drawn, strict=True)])
        )
        drawn.append(_draw_size(task, config, (seed, len(drawn)), sizes[-1]))
    return min(drawn, key=lambda each: abs(each.tokens - config.length))


def _better(length: int, tried: Sequence[tuple[int, int]]) -> int:
    """The size to try after sizes with the tokens that they took: the nearest, corrected by most of
    what its share is off.

    The exponent makes this converge for lengths that grow with the size, with its square, or with
    anything between.
    """
    size, tokens = min(tried, key=lambda item: abs(item[1] - length))
    return min(MAX_SIZE, max(1, round(size * math.pow(length / max(1, tokens), 0.75))))


def _draw_size(
    task: type[OfficeTask[Any]], config: OfficeConfig, seed: tuple[int, int], size: int
) -> _Drawn:
    world = task(config, 0)
    world.rng = np.random.default_rng(seed)
    world.draw(size)
    filled = pickle.dumps((world.office, world.truth))
    told = []
    count = 1
    for step, result in steps_of(
        world.plan,
        lambda step: world.office.call(step.call.name, step.call.arguments) if step.learn else "",
    ):
        count += 1
        told += [] if step.changes else [result]
    office, truth = pickle.loads(filled)
    calls = world.describe()
    if calls is not None:
        told = [office.call(call.name, call.arguments) for call in calls]
        office, truth = pickle.loads(filled)
    tokens = sum(map(counter("cl100k_base").length, told))
    return _Drawn(
        pickle.dumps((office, truth, tokens, untouched(office, task.mutable_tables))), count, tokens
    )


@functools.cache
def _steps(task: Any, size: int) -> int:
    drawn: _Drawn = _draw(task, task.Config(size=size), 0)
    return drawn.steps
