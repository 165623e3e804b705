"""Cases and findings of a fuzzer, as they are sent to workers and written to files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from agentgym.assemble.registry import config_schema, is_team, load_plugins, spec, teams, worlds
from agentgym.assemble.wrapper_stack import strategies
from agentgym.oracles import ARMS
from agentgym.world.world import MissingHook

FORMAT = 1
"""The version of the records of findings."""

_EPISODES_PER_INSTANCE = 8
"""Episodes that share the seed of an instance: drawing a large office takes longer than playing it,
and states drawn before are remembered.
"""
_WINDOWS = (500, 2_000, 12_000)
"""Tokens of a context window: one that overflows at once, one in which edits begin early, and one
in which they begin late.
"""
_SLACK = "budget_slack"
"""The option that worlds have by custom for more turns than a good policy needs."""
_DIALECTS = ("auto", "json", "python")
_ARMS = (*ARMS, "P0.5S_")
"""The arms that cases go round with: the paper's, and one with wrong hints and a placebo."""


def pack(text: str) -> Any:
    """Return a text as JSON can carry it: one with surrogates is escaped, since two that stand side
    by side would be read back as one character.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return {"escaped": text.encode("unicode_escape").decode("ascii")}
    return text


def unpack(data: Any) -> str:
    """Return the text of `pack`."""
    if isinstance(data, dict):
        return str(data["escaped"].encode("ascii").decode("unicode_escape"))
    return str(data)


@dataclass(frozen=True, slots=True)
class Case:
    """One episode to play.

    Attributes:
        id: The id of the env, as a user writes it; its module may stand before it.
        seed: The seed of the run.
        index: The number of the episode among those of the id; with `id` and `seed` it says what is
            played.
        texts: The most replies that are played.
        options: The options of `agentgym.make`; None draws a stack by the index.
        env_seed: The seed of the instance; None takes it from the index.
        actions: The replies to play, in place of random ones; every check is then made at every
            step.
        smaller: A reply that is played in place of the last one too, to compare the work of both.
        quick: Whether given replies are played without the checks of copies, for what they show.
    """

    id: str
    seed: int = 0
    index: int = 0
    texts: int = 40
    options: Mapping[str, Any] | None = None
    env_seed: int | None = None
    actions: Sequence[str] | None = None
    smaller: str = ""
    quick: bool = False

    @property
    def instance(self) -> int:
        """Return the seed of the instance."""
        if self.env_seed is not None:
            return self.env_seed
        return 1_000 * self.seed + self.index // _EPISODES_PER_INSTANCE

    def to_dict(self) -> dict[str, Any]:
        """Return the case as JSON-able data."""
        data = asdict(self)
        if self.actions is not None:
            data["actions"] = [pack(action) for action in self.actions]
        return {**data, "smaller": pack(self.smaller)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the case of `to_dict`."""
        actions = data["actions"]
        texts = None if actions is None else [unpack(action) for action in actions]
        return cls(**{**data, "actions": texts, "smaller": unpack(data["smaller"])})


@dataclass(frozen=True, slots=True)
class Finding:
    """A law that an env broke, with what replays it.

    Attributes:
        kind: The law: `raise`, `hang`, `death`, `result`, `state`, `copy`, `repeat`, `elsewhere`
            (in another process), `random`, `idle`, `slow`, `growth`, `memory`, `leak` or `oracle`.
        text: What happened, in one line or a traceback.
        mark: What findings of one cause have in common.
        case: The case, with the replies that led to it.
        minimal: Whether the replies were cut down to those that are needed.
        reproduced: Whether a second run of the case found it again; None if none was made.
    """

    kind: str
    text: str
    mark: str
    case: Case
    minimal: bool = False
    reproduced: bool | None = None

    def to_json(self) -> str:
        """Return the finding as one line of JSON in ASCII, lone surrogates included."""
        data = {**asdict(self), "case": self.case.to_dict()}
        return json.dumps({"format": FORMAT, **data}, default=str)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Return the finding that a line holds.

        Raises:
            ValueError: It holds none.
        """
        try:
            data = json.loads(line)
            if data.pop("format") != FORMAT:
                raise ValueError(f"the format is not {FORMAT}")
            return cls(**{**data, "case": Case.from_dict(data["case"])})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no record of a finding ({error}): {line[:80]!r}") from error


@dataclass(slots=True)
class Report:
    """What an episode came to.

    Attributes:
        texts: The replies that were played.
        calls: The calls that were read from them.
        refused: The replies of which nothing was done.
        slowest: The processor time of the slowest step, in seconds.
        median: The median of the processor time of its steps, in seconds.
        marks: Hashes of what was shown, after the reset and after each step.
        actions: The replies.
        options: The options of the env.
        findings: The laws that were broken.
    """

    texts: int = 0
    calls: int = 0
    refused: int = 0
    slowest: float = 0.0
    median: float = 0.0
    marks: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able data."""
        return {
            **asdict(self),
            "actions": [pack(action) for action in self.actions],
            "findings": [finding.to_json() for finding in self.findings],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the report of `to_dict`."""
        findings = [Finding.from_json(line) for line in data["findings"]]
        actions = [unpack(action) for action in data["actions"]]
        return cls(**{**data, "actions": actions, "findings": findings})


def read_findings(path: Path) -> list[Finding]:
    """Return the findings of a file.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line is no finding; the error says which.
    """
    findings = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            findings.append(Finding.from_json(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return findings


def all_ids() -> list[str]:
    """Return every registered id, those of installed packages too: worlds, presets and teams."""
    load_plugins()
    return [entry.id for entry in (*worlds(presets=True), *teams())]


def draw_options(case: Case) -> dict[str, Any]:
    """Return the options of a case: a stack that goes round with its index through dialects, arms,
    labels, strategies and windows, as far as the world has the hooks.

    Raises:
        ValueError: There is no such id, or not even a bare env of it.
    """
    index = case.index
    options: dict[str, Any] = {"dialect": _DIALECTS[index % 3]}
    if index % 2:
        options["max_failed_rounds"] = None
    if index % 4 < 3 and _SLACK in config_schema(case.id)["properties"]:
        options[_SLACK] = case.texts
    turn, stack = divmod(index, 4)
    layers: dict[str, Any] = {}
    if stack in (1, 3):
        layers |= {
            "oracles": _ARMS[turn % len(_ARMS)],
            "hint_scope": ("persistent", "ephemeral")[turn % 2],
            "labels": turn % 3 > 0,
        }
        if turn % 7 == 6 and not is_team(case.id):
            layers["shots"] = 1
    if stack in (2, 3):
        layers |= _context(turn)
    for wanted in (options | layers, options):
        try:
            spec(case.id, **wanted)
        except MissingHook:
            continue
        return wanted
    spec(case.id)
    return {}


def _context(turn: int) -> dict[str, Any]:
    """Return one or two strategies with a window."""
    names = strategies()
    first, second = names[turn % len(names)], names[(turn * 5 + 1) % len(names)]
    chosen = [first] if turn % 3 == 0 or first == second else [first, second]
    context: dict[str, Any] = {
        "context": "+".join(chosen),
        "window": _WINDOWS[turn // 2 % len(_WINDOWS)],
    }
    if "programmatic" in chosen:  # a loop without end takes all of it
        context["context_options"] = {"programmatic": {"seconds": 1.0}}
    return context
