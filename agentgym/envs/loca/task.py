"""Base class of the LOCA-bench tasks.

A task defines `text`, `draw`, `plan` and `task_failures`. The plan provides the oracle hints.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, cast

from pydantic import Field

from agentgym.envs.loca import LENGTHS, MAX_LENGTH, MAX_SIZE, MIN_LENGTH
from agentgym.envs.loca.belief import LIMIT, NEXT_STEPS, words_of
from agentgym.envs.loca.calls import PROGRAMS, canonical_call, is_read, things_changed
from agentgym.envs.loca.checks import UNREADABLE, file_failures
from agentgym.envs.loca.drafts import draw_state, plan_length
from agentgym.envs.loca.draws import text_of, whole
from agentgym.envs.loca.outlook import Outlook
from agentgym.envs.loca.plan import CLAIM, Plan, PlanStep
from agentgym.envs.loca.progress import Progress
from agentgym.envs.loca.protected_state import DRAFTS, HARMLESS, INSIGHTS, fingerprint_protected
from agentgym.envs.loca.records import Fields, Record
from agentgym.envs.loca.writing.openings import draw_opening
from agentgym.office.context import START
from agentgym.office.email.server import Email
from agentgym.office.files.workspace import Workspace, WorkspaceFile, within
from agentgym.office.gcloud.google_cloud import GoogleCloud
from agentgym.office.office import SERVERS, Office
from agentgym.office.server import requirements
from agentgym.office.spreadsheet.google_sheet import GoogleSheet
from agentgym.office.spreadsheet.workbooks import read_workbook
from agentgym.office.woocommerce.server import WooCommerce
from agentgym.text.messages import ToolCall
from agentgym.text.tools import ToolError
from agentgym.world.config import TokenCount
from agentgym.world.digests import digest
from agentgym.world.turn_budget import BudgetFactor, BudgetSlack, TurnBudget
from agentgym.world.world import World, phrase


@dataclass(frozen=True, kw_only=True)
class OfficeConfig(TurnBudget):
    """Length, size and turn budget of an office task; tasks add their own options.

    Attributes:
        length: The target length of the environment description, in cl100k tokens.
        size: The number of units (courses, students, …). If None, the size depends on `length`.
    """

    length: Annotated[int, Field(ge=MIN_LENGTH, le=MAX_LENGTH), TokenCount()] = LENGTHS["8k"]
    size: Annotated[int, Field(ge=1, le=MAX_SIZE)] | None = None
    budget_factor: BudgetFactor = 2.0
    budget_slack: BudgetSlack = 30

    def for_seed(self, seed: int) -> Self:
        """Return the configuration for a seed."""
        return self


OfficeT = TypeVar("OfficeT", bound=OfficeConfig)

# No later call can undo the effects of these tools.
IRREVERSIBLE_TOOLS = frozenset({"send_email", "reply_email", "forward_email", "logging_write_log"})

# Maximum number of calls in a reply, to limit the duration of a step.
MAX_CALLS = 128

# Maximum number of times that a plan may run the same step, for example after a repair.
_MOST_REPEATS = 3

# Sizes for estimating how fast a plan grows. Similar sizes may give plans of the same length.
_HORIZON_SIZES = (4, 64)

# Maximum number of tries, because each try has to draw a state.
_HORIZON_TRIES = 4

# Fixed strings in a belief state, which `read_state` parses.
_FACTS, _NOTHING, _MISSING = "Known so far:", "nothing", "Outputs still missing: "
_BRIEF = "The known facts that concern the next steps:"
# Characters reserved for the oracle's note about omitted facts.
_NOTICE = 200


class OfficeTask(World[OfficeT], Generic[OfficeT]):
    """Office work with the tools of several servers, until the agent calls `claim_done`.

    The score is 1 if the agent has called `claim_done` and the final state meets every requirement,
    else 0. The pending calls of the reference plan are optimal as long as the plan leads to the
    full score. After off-plan changes, the world tests the plan in a copy of the office.

    A call is labelled `productive` if the call is optimal or the reply reduces the number of
    failures. A premature claim, or a call whose reply adds failures, is `harmful`. Any other call
    is `productive` if it achieves a pending step in another way, else `redundant`.

    Attributes:
        servers: The servers of the task (table 7 of the paper).
        outputs: The required outputs; files are identified by path.
        remade: Files and folders, as `file <path>`, that the plan recreates if they change.
        mutable_tables: The tables that a solution may change, as `server.table`. `task_failures` checks
            the records of these tables; every other change in the services is a failure.
        harmless: Differences that this task ignores in addition to `HARMLESS`.
        forbidden: The entries of `HARMLESS` that count as failures in this task.
        tokens_per_unit: The approximate number of tokens per unit of size.
        text: The rules of the task; see `draw_opening`.
        published_text: The rules of the task for LOCA-bench's own states, if different.
        truth: The facts about the expected final state. If the key `files`
            contains the initial `file_state`, changes to files other than outputs are failures.
        tokens: The description length of the state, in cl100k tokens.
    """

    Config = OfficeConfig
    observes = True
    labels_decide = False
    servers: ClassVar[tuple[str, ...]]
    start: ClassVar[datetime] = START
    outputs: ClassVar[tuple[str, ...]]
    remade: ClassVar[tuple[str, ...]] = ()
    mutable_tables: ClassVar[tuple[str, ...]] = ()
    harmless: ClassVar[Mapping[str, str]] = {}
    forbidden: ClassVar[tuple[str, ...]] = ()
    tokens_per_unit: ClassVar[float] = 400.0
    text: ClassVar[str]
    published_text: ClassVar[str] = ""

    def __init__(self, config: OfficeT, seed: int) -> None:
        super().__init__(config, seed)
        self.max_calls = MAX_CALLS
        self.truth: Any = None
        self.opening = self.text
        self.tokens = 0
        self._protected_hashes: Mapping[str, str] = {}
        canonicalize = functools.partial(canonical_call, self.servers)
        self.progress = Progress(self.plan, canonicalize, self.outputs, self.remade)
        self._files_seen: Any = None
        self.deviations = 0
        self.outlook = Outlook()

    @functools.cached_property
    def office(self) -> Office:
        """The servers and their state, created on first use."""
        return Office(self.servers, self.start)

    @property
    def files(self) -> Workspace:
        return self.office.context.files

    @property
    def email(self) -> Email:
        return self.office.get(Email)

    @property
    def cloud(self) -> GoogleCloud:
        return self.office.get(GoogleCloud)

    @property
    def shop(self) -> WooCommerce:
        return self.office.get(WooCommerce)

    @property
    def sheets(self) -> GoogleSheet:
        return self.office.get(GoogleSheet)

    def draw(self, size: int) -> None:
        """Fill `self.office` and set `self.truth` for `size` units."""
        raise NotImplementedError

    def _load(self, state: Path) -> None:
        """Fill the office and set `self.truth` from a LOCA-bench state folder."""
        raise NotImplementedError

    def plan(self) -> Plan:
        """Yield the reference plan's steps, without using `self.config` or `self.office`."""
        raise NotImplementedError

    def task_failures(self) -> Iterator[str]:
        """Yield a sentence for each requirement that the office does not meet."""
        raise NotImplementedError

    def published_failures(self) -> Iterator[str]:
        """Yield a sentence for each unmet requirement of LOCA-bench's own rule."""
        return iter(())

    def own_records(self) -> Sequence[Any]:
        """Return the records that the agent has added to a table that the plan reads."""
        return ()

    @classmethod
    def harmless_differences(cls) -> Mapping[str, str]:
        """Return the differences that this task ignores; see `HARMLESS`."""
        absent = SERVERS.keys() - set(cls.servers)
        common = {}
        for name, meaning in HARMLESS.items():
            server = name.removeprefix("own:").partition(".")[0]
            if name not in cls.forbidden and server not in absent:
                common[name] = meaning
        return {**common, **cls.harmless}

    def describe(self) -> Iterable[ToolCall] | None:
        """Return the calls whose results describe the office; None means the plan's reading steps."""
        return None

    def fill(self, size: int) -> None:
        """Load the state folder in the options, or draw a state."""
        if data := getattr(self.config, "data", ""):
            self._load(Path(data))
        else:
            self.draw(size)

    def whole(self, low: int, high: int | None = None) -> int:
        """Draw an integer from `[low, high)`, or from `[0, low)` if `high` is None."""
        return whole(self.rng, low, high)

    def happens(self, probability: float) -> bool:
        """Return True with the given probability."""
        return bool(self.rng.random() < probability)

    def generate(self) -> None:
        kind: Any = type(self)
        config = self.config.for_seed(self.instance_seed)
        drawn = draw_state(kind, config, whole(self.rng, 2**63))
        self.office, self.truth = pickle.loads(drawn.state)
        self.tokens, self._protected_hashes = drawn.tokens, drawn.hashes
        self.office.context.seed = whole(self.rng, 2**63)
        self.max_turns = self.config.budget(drawn.steps)
        text = (self._is_published and self.published_text) or self.text
        self.opening = draw_opening(self.rng, type(self).__name__, text, self.start)
        self._files_seen = self.files.version()

    def instance_key(self) -> str:
        return digest([type(self).__name__, self.truth, self.tokens])

    @classmethod
    def instance_count(cls, config: OfficeT) -> float:
        return math.inf

    def rules(self) -> str:
        harmless = self.harmless_differences()
        named = [harmless[name] for name in (DRAFTS, INSIGHTS) if name in harmless]
        free = " and ".join(["new files of your own in /workspace", *named])
        return text_of("prompts", "rules").format(free=free)

    def task(self) -> str:
        return self.opening

    def toolsets(self) -> Sequence[object]:
        return self.office.toolsets()

    def score(self) -> float:
        """Return 1 if the agent has claimed to be done and no check fails (section 2.3), else 0."""
        return float(self.done and not any(self.all_failures()))

    def all_failures(self) -> Iterator[str]:
        """Yield the task's failures, and unexpected changes in files and services."""
        yield from self.task_failures()
        before = self.truth.get("files", {}) if isinstance(self.truth, Mapping) else {}
        yield from file_failures(self.files, before, self.outputs)
        now = fingerprint_protected(self.office, self.mutable_tables, self.harmless_differences())
        for name, value in self._protected_hashes.items():
            if now[name] != value:
                yield f"{name}: something was added, changed or removed"

    def report(self) -> Fields:
        """Return the failed requirements and the description length.

        For a LOCA-bench state, add the score and failures according to LOCA-bench's own rule.
        """
        failures = list(self.all_failures())
        published: Record = {}
        if self._is_published:
            try:
                faults = list(self.published_failures())
            except UNREADABLE as error:
                faults = [f"an output cannot be read: {type(error).__name__}: {error}"]
            score = float(self.done and not faults)
            published = {"published_score": score, "published_faults": faults[:100]}
        return {
            **published,
            "claimed": self.done,
            "faults": failures[:100],  # a damaged office can have thousands of failures
            "fault_count": len(failures),
            "description_tokens": self.tokens,
        }

    @classmethod
    def requirements(cls, config: OfficeT) -> Mapping[str, str]:
        return {"office": "", **requirements(cls.servers)}

    @classmethod
    def config_for_horizon(cls, steps: int) -> Fields:
        """Return the size whose plan has about `steps` steps; raise ValueError if no size fits.

        Estimate the size from the lengths of two plans, then correct the estimate iteratively.
        """
        kind: Any = cls
        low, high = (plan_length(kind, size) for size in _HORIZON_SIZES)
        first, second = _HORIZON_SIZES
        slope = max(1, high - low) / (second - first)
        errors: dict[int, int] = {}
        for _ in range(_HORIZON_TRIES):
            size = first + round((steps - low) / slope)
            if not 1 <= size <= MAX_SIZE or (high == low and steps != low):
                raise ValueError(
                    f"no plan of {cls.__name__} has about {steps} steps; size {first} has {low} "
                    f"steps and size {second} has {high}"
                )
            length = plan_length(kind, size)
            errors[size] = abs(length - steps)
            if errors[size] <= steps // 10 or length <= low:
                break
            slope = (length - low) / (size - first)
        return {"size": min(errors, key=lambda size: errors[size])}

    def state(self) -> str:
        lines = [f"- {line}" for line in self.progress.lines() or [_NOTHING]]
        return "\n".join([_FACTS, *lines, self._missing()])

    def brief_state(self) -> str:
        """Return the state, abbreviated to at most `LIMIT` characters."""
        state = self.state()
        if len(state) <= LIMIT:
            return state
        texts = []
        for step in self.progress.pending()[:NEXT_STEPS]:
            arguments = json.dumps(step.call.arguments, ensure_ascii=False)
            texts += [arguments[:LIMIT], step.label]
        needed = words_of(" ".join(texts))
        missing = self._missing()
        room = LIMIT - _NOTICE - len(_BRIEF) - len(missing) - 1
        return "\n".join((_BRIEF, *self.progress.brief(needed, room), missing))

    def _missing(self) -> str:
        is_through = self.progress.pending() in ([], [CLAIM]) and not self.progress.lost
        complete = set(self.outputs) if is_through else self.progress.finished()
        missing = ", ".join(name for name in self.outputs if name not in complete)
        return f"{_MISSING}{missing or 'none'}"

    def subtask(self, with_state: bool) -> str:
        steps = self.next_steps()
        return _order(steps[0]) if steps else "The task can no longer be completed correctly."

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        for step in self._steps():
            if step.call == call:
                return _order(step)
        return phrase(call)

    def _steps(self) -> Sequence[PlanStep]:
        return [*self.progress.pending(), *self.progress.completed(), CLAIM]

    def reasoning(self, call: ToolCall) -> str:
        for step in self.progress.pending():
            if self.progress.counts(step, call):
                return step.label
        return "Look again."

    def optimal_calls(self) -> Sequence[ToolCall]:
        return [step.call for step in self.next_steps()]

    def next_steps(self) -> Sequence[PlanStep]:
        """Return the next steps towards the full score, or [] if it is unreachable."""
        pending = self.progress.pending()
        if not self._is_played:
            return [] if pending == [CLAIM] and self.progress.is_spoiled() else pending
        if not self.deviations or self.outlook.plan_succeeds(self):
            return pending
        return [] if self.outlook.count(self) else [CLAIM]

    @property
    def _is_published(self) -> bool:
        return isinstance(self.truth, Mapping) and "published" in self.truth

    @property
    def _is_played(self) -> bool:
        # `truth` is None in a world that was restored from a chat
        return self.truth is not None

    def plan_succeeds(self) -> bool:
        """Return whether the plan reaches the full score in a copy of the office."""
        world = pickle.loads(pickle.dumps(self))
        counts = Counter[str]()
        with contextlib.closing(world.office):
            while (steps := world.progress.pending()) and steps != [CLAIM]:
                step = steps[0]
                counts[step.label] += 1
                if counts[step.label] > _MOST_REPEATS:
                    return False
                try:
                    result = world.office.call(step.call.name, step.call.arguments)
                except ToolError:
                    return False
                world.read_result(step.call, result)
                if step.label not in world.progress.facts:
                    return False
            world.done = True
            return bool(steps and world.score() == 1.0)

    def legal_calls(self) -> Sequence[ToolCall]:
        calls = list(self.optimal_calls())
        calls += [step.call for step in self.progress.completed() if not step.changes]
        if CLAIM.call not in calls:
            calls.append(CLAIM.call)
        return calls

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]]:
        pending, before = self.progress.pending(), self.outlook.count(self)
        is_alive = bool(self.next_steps())

        def label(calls: Sequence[ToolCall]) -> Sequence[str]:
            after = self.outlook.count(self)
            change = after - before
            if is_alive and after and not self.next_steps():
                change = 1
            return [self._label(call, pending, change, after) for call in calls]

        return label

    def _label(self, call: ToolCall, pending: Sequence[PlanStep], change: int, after: int) -> str:
        if call.name == CLAIM.call.name:
            return "harmful" if after else "productive"
        if change < 0 or any(step.call == call for step in pending):
            return "productive"
        if change > 0:
            return "harmful"
        if any(self.progress.counts(step, call) for step in pending):
            return "productive"
        return "redundant"

    @classmethod
    def read_task(cls, task: str) -> Self:
        """Ignore the prompt, because the plan fits every wording."""
        return cls(cast("OfficeT", cls.Config()), 0)

    def read_result(self, call: ToolCall, result: str) -> None:
        lasting = call.name in IRREVERSIBLE_TOOLS
        if not self._is_played or is_read(call):
            self.progress.record(call, result, lasting)
            return
        is_planned = any(step.call == call for step in [*self.progress.pending(), CLAIM])
        before, self._files_seen = self._files_seen, self.files.version()
        if not is_planned and (call.name not in PROGRAMS or before != self._files_seen):
            self.deviations += 1
        changed = {}
        for thing in {*(f"file {path}" for path in self.outputs), *self.remade}:
            full = self.files.resolve(thing.removeprefix("file "))
            if _files_below(full, before) != _files_below(full, self._files_seen):
                changed[thing] = self._is_readable(full)
        own = self.own_records() if "tables" in things_changed(call) else None
        self.progress.record(call, result, lasting, changed, own)

    def _is_readable(self, path: str) -> bool:
        if not path.endswith(".xlsx") or not self.files.is_file(path):
            return True
        try:
            return bool(read_workbook(self.files.read(path)))
        except ToolError:
            return False

    def read_state(self, state: str) -> None:
        lines = state.split("\n")
        if lines[0] != _FACTS or not lines[-1].startswith(_MISSING):
            raise ValueError(f"the state must come from an office task, got {state[:100]!r}")
        self.progress.restore([line[2:] for line in lines[1:-1] if line != f"- {_NOTHING}"])

    def read_subtask(self, subtask: str) -> ToolCall | None:
        for step in self._steps():
            if _order(step) == subtask:
                return step.call
        return None


def _files_below(path: str, version: Any) -> Mapping[str, bytes]:
    files = {name: entry for name, entry in version.items() if isinstance(entry, WorkspaceFile)}
    return {name: file.data for name, file in files.items() if within(name, path)}


def _order(step: PlanStep) -> str:
    if step.changes:
        return step.label
    arguments = json.dumps(step.call.arguments, ensure_ascii=False)
    return f"{step.label} Call {step.call.name} with {arguments}."
