"""Cases and findings of a fuzzer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.assemble.registry import config_schema, is_team, load_plugins, spec, teams, worlds
from agentgym.assemble.wrapper_stack import strategies
from agentgym.oracles import ARMS
from agentgym.world.world import MissingHook

# Number of episodes that share an instance, because large office instances are slow to generate.
_EPISODES_PER_INSTANCE = 8
# Context windows in tokens; the smallest overflows in the first turn.
_WINDOWS = (500, 2_000, 12_000)
# The conventional name of the option that grants additional turns.
_SLACK = "budget_slack"
_DIALECTS = ("auto", "json", "python")
_ARMS = (*ARMS, "P0.5S_")


@dataclass(frozen=True, slots=True)
class Case:
    """One episode of a fuzzer, determined by `id`, `seed` and `index`.

    Attributes:
        options: The options of `agentgym.make`; None chooses options by `index`.
        env_seed: The seed of the instance; None derives the seed from `seed` and `index`.
        actions: Replies to play instead of random ones; if given, every check runs at every step.
    """

    id: str
    seed: int = 0
    index: int = 0
    texts: int = 40
    options: Mapping[str, Any] | None = None
    env_seed: int | None = None
    actions: Sequence[str] | None = None

    @property
    def instance(self) -> int:
        if self.env_seed is not None:
            return self.env_seed
        return 1_000 * self.seed + self.index // _EPISODES_PER_INSTANCE


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of a law by an env, with the data to reproduce it.

    Attributes:
        kind: The violated law: `raise`, `result`, `state`, `copy`, `repeat` or `oracle`.
        text: The violation in one line, or a traceback.
        mark: A key shared by findings with the same cause.
    """

    kind: str
    text: str
    mark: str
    case: Case


@dataclass(slots=True)
class Report:
    """Outcome of an episode.

    Attributes:
        marks: Hashes of the observations after the reset and each step.
    """

    texts: int = 0
    calls: int = 0
    marks: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def all_ids() -> list[str]:
    """Return the ids of all registered worlds, presets and teams."""
    load_plugins()
    return [entry.id for entry in (*worlds(presets=True), *teams())]


def draw_options(case: Case) -> dict[str, Any]:
    """Choose a case's options; successive cases use different dialects, arms, labels, strategies
    and windows.

    Raises ValueError if the id is unknown or the env cannot be made even without wrappers.
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
    names = strategies()
    first, second = names[turn % len(names)], names[(turn * 5 + 1) % len(names)]
    chosen = [first] if turn % 3 == 0 or first == second else [first, second]
    context: dict[str, Any] = {
        "context": "+".join(chosen),
        "window": _WINDOWS[turn // 2 % len(_WINDOWS)],
    }
    if "programmatic" in chosen:  # an endless loop in model-written code runs until this limit
        context["context_options"] = {"programmatic": {"seconds": 1.0}}
    return context
