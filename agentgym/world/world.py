"""Worlds: hidden state, tools and a score in plain Python."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentgym.text.imports import UntrustedModule, import_named
from agentgym.text.messages import Content, ToolCall
from agentgym.world.call_record import CallRecord
from agentgym.world.digests import digest

ConfigT = TypeVar("ConfigT")

SplitName = Literal["train", "test"]

_EXAMPLE = "an example is in agentgym/envs/lumina/list_world.py"


class MissingHook(NotImplementedError):
    """Error for a world that lacks a hook or a `Config` required by a feature."""

    def __init__(self, world: type[World[Any]], hook: str, feature: str = "") -> None:
        self.world, self.hook, self.feature = world, hook, feature
        feature = feature or _FEATURES.get(hook, "every world")
        super().__init__(f"{feature} needs {world.__name__}.{_describe(hook)}; {_EXAMPLE}")

    def __reduce__(self) -> tuple[type[MissingHook], tuple[Any, ...]]:
        return MissingHook, (self.world, self.hook, self.feature)


class World(Generic[ConfigT]):
    """One instance of a task, determined by `(config, seed)`.

    A world implements four required hooks (`generate` to `score`), the hooks of the features that
    it supports, and `@tool` methods. `ToolEnv` provides the loop. Worlds pickle mid-episode.

    Attributes:
        Config: A frozen dataclass of the options, such as an `agentgym.Config`.
        parallel_calls: Whether one reply may contain several calls. Set this to False if
            `optimal_calls` assumes one call per reply.
        labels_decide: Whether `label_calls` determines which replies are optimal; if False,
            `optimal_calls` determines it.
        prose_fails: Whether a reply without an attempted call counts as a failed round.
        roles: The tools of each role in a team, by lower-case role names (`agentgym.multi`). The
            first role has all unlisted tools. By default, a `closer` has the tools that end the
            task, and an `actor` has the rest.
        max_failed_rounds: The number of consecutive failed rounds that ends the episode; None for
            no limit.
        horizon_unit: The unit of `config_for_horizon`, for axis labels.
        observes: Whether the env passes completed calls to `read_result`; set this if other objects
            provide the tools.
        rng: The only source of randomness.
        instance: A digest of the class and the seed, which reveals nothing about the instance.
        done: Whether the world has ended.
        turn: The number of turns used so far, including unreadable replies; the env increments it
            before each turn.
        max_turns: The turn budget, or None for no limit. The budget may shrink during the episode.
        max_calls: The maximum number of calls per reply, or None for no limit; set before
            `generate`.
        call_log: The completed calls, from which the env re-creates the world after a fault.
    """

    Config: ClassVar[type[Any]]
    parallel_calls: ClassVar[bool] = True
    labels_decide: ClassVar[bool] = True
    prose_fails: ClassVar[bool] = True
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    max_failed_rounds: ClassVar[int | None] = None
    horizon_unit: ClassVar[str] = "turns of an optimal policy"
    observes: ClassVar[bool] = False
    _is_complete: ClassVar[bool]

    def __init__(self, config: ConfigT, seed: int) -> None:
        if "_is_complete" not in vars(type(self)):
            check_world(type(self))
            type(self)._is_complete = True
        self.config = config
        self.instance_seed = seed
        self.call_log: list[CallRecord] = []
        self.rng = np.random.default_rng(seed)
        self.instance = hashlib.sha256(f"{type(self).__qualname__} {seed}".encode()).hexdigest()[:8]
        self.done = False
        self.turn = 0
        self.max_turns: int | None = None
        self.max_calls: int | None = None

    # Required hooks, not checked by `abc`, because its error would not explain their purpose.

    @abstractmethod
    def generate(self) -> None:
        """Draw the instance from `self.rng`; called once, before anything else."""

    @abstractmethod
    def rules(self) -> str:
        """Return the system message, without the tool documentation."""

    @abstractmethod
    def task(self) -> str | Content:
        """Return the first user message, which describes this instance and its budget."""

    @abstractmethod
    def score(self) -> float:
        """Return how well the task was done, in [0, 1]; read once, when the episode ends."""

    # General optional hooks.

    def report(self) -> Mapping[str, Any]:
        """Return the final report (`StepInfo.report`), JSON-able and hidden from the policy."""
        return {}

    def instance_key(self) -> str:
        """Return a digest of everything that defines this instance except budgets and prompts.

        This hook is called once, after `generate`. By default, the digest covers the attributes
        that the subclass adds.
        """
        return digest({name: value for name, value in vars(self).items() if name not in COMMON})

    def split_keys(self) -> Collection[str]:
        """Return keys of this instance; the instance is in a split only if all its keys are.

        By default, `instance_key()` is the only key. Override this hook if instances share
        something, such as people, that must not occur in both splits.
        """
        return (self.instance_key(),)

    @classmethod
    def config_for_split(cls, config: ConfigT, split: SplitName) -> ConfigT:
        """Return the configuration for drawing a split's instances; by default, `config`.

        Override this hook if `split_keys` returns several keys. Raises ValueError if the
        configuration belongs to another split.
        """
        return config

    @classmethod
    def instance_count(cls, config: ConfigT) -> float | None:
        """Return the number of instances of a configuration, or a lower bound; None if unknown."""
        return None

    @classmethod
    def chance(cls, config: ConfigT) -> float | None:
        """Return the maximum expected score of a policy that sees neither the task nor results;
        None means that audits estimate the score.
        """
        return None

    def toolsets(self) -> Sequence[object]:
        """Return the objects with the `@tool` methods; override this hook for optional tools."""
        return (self,)

    def final_answer(self, text: str) -> ToolCall | None:
        """Return the call implied by a prose answer or another reply without calls, or None."""
        return None

    def board(self) -> str:
        """Return a text view of the visible state for people; empty by default."""
        return ""

    # Hooks for oracles and labels, which depend only on the shown history and change nothing.

    def state(self) -> str:
        """Return the belief state in words: enough for optimal play, but without naming actions."""
        raise MissingHook(type(self), "state")

    def brief_state(self) -> str:
        """Return the part of a long state that matters for the next steps; by default, `state()`.

        State hints contain only this part; an agent without its full history can request the rest.
        Implement `state_chars` too.
        """
        return self.state()

    def state_chars(self) -> int:
        """Return the number of characters in `state()`."""
        return len(self.state())

    def subtask(self, with_state: bool) -> str:
        """Return the next step of an optimal plan in words; the step must not require lookahead.

        The step may refer to `state()` if `with_state` is set.
        """
        raise MissingHook(type(self), "subtask")

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        """Return a plan hint, worded like `subtask`, for any of the `legal_calls`."""
        return phrase(call)

    def restate(self) -> str | None:
        """Return an updated task, shown if the history is hidden; None keeps the original."""
        return None

    def reasoning(self, call: ToolCall) -> str:
        """Return the reasoning that leads to a call, even a wrong one; by default `state()`."""
        return self.state()

    def optimal_calls(self) -> Sequence[ToolCall] | None:
        """Return exactly the optimal next calls; empty if the task is lost, None if undefined."""
        return None

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]] | None:
        """Return a function that labels the next reply's calls after they have run.

        Labels refer to the state before the reply. Return None if `optimal_calls` gives all labels.
        """
        return None

    # Hooks for scripted play, which parse the texts of other hooks.

    @classmethod
    def read_task(cls, task: str) -> Self:
        """Create a world from a task text; `max_turns` is None if the text states no budget."""
        raise MissingHook(cls, "read_task")

    def read_result(self, call: ToolCall, result: str) -> None:
        """Apply the result of a completed call; ignore a result that contradicts the world."""
        raise MissingHook(type(self), "read_result")

    def read_state(self, state: str) -> None:
        """Set the world to the state that a text from `state()` describes."""
        raise MissingHook(type(self), "read_state")

    def read_subtask(self, subtask: str) -> ToolCall | None:
        """Return the call that a text from `subtask()` asks for, or None if the call is unclear."""
        raise MissingHook(type(self), "read_subtask")

    def legal_calls(self) -> Sequence[ToolCall]:
        """Return the calls that would succeed now, as far as the shown history reveals."""
        raise MissingHook(type(self), "legal_calls")

    # Hooks for classical agents (`agentgym.wrappers.discrete`), which depend only on the shown
    # history.

    def action_catalog(self) -> Sequence[ToolCall]:
        """Return all calls that the configuration can require.

        The order and the number of calls depend only on the configuration. A call that is not known
        yet is replaced with a call that fails.
        """
        raise MissingHook(type(self), "action_catalog")

    def features(self) -> NDArray[np.float32]:
        """Return the task and the state as a vector with values in [-1, 1]; the vector has the
        same shape for all instances of one configuration.
        """
        raise MissingHook(type(self), "features")

    # Hooks that `make` and ablations use.

    @classmethod
    def undefined_hooks(cls, config: Any) -> Mapping[str, str]:
        """Return the hooks that are undefined for a configuration, with reasons."""
        return {}

    @classmethod
    def requirements(cls, config: Any) -> Mapping[str, str]:
        """Return the host requirements of a configuration (`agentgym.text.requirements`)."""
        return {}

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        """Return the configuration whose shortest solution takes about `steps` turns, or raise
        ValueError.
        """
        raise MissingHook(cls, "config_for_horizon")

    def set_turns_left(self, turns: int) -> None:
        """Set the number of remaining turns, which becomes the turn budget if none is known."""
        if self.max_turns is None:
            self.max_turns, self.turn = turns, 0
        else:
            self.turn = self.max_turns - turns

    @property
    def turns_left(self) -> int:
        """Return the number of remaining turns; raise ValueError if there is no budget."""
        if self.max_turns is None:
            raise ValueError(f"{type(self).__name__} has no turn budget")
        return self.max_turns - self.turn


# Attributes that every world has and that do not define its instance.
COMMON = {
    *("config", "instance_seed", "call_log", "rng", "instance"),
    *("done", "turn", "max_turns", "max_calls"),
}
_REQUIRED = ("generate", "rules", "task", "score")
_FEATURES: Mapping[str, str] = {
    "state": "oracles='S' (and the summary of a scripted policy)",
    "subtask": "oracles='P'",
    "reasoning": "an example (shots)",
    "optimal_calls": "optimal play",
    "read_task": "scripted play from the chat",
    "read_result": "scripted play from the chat",
    "read_state": "scripted play with oracles='S' or after a summary",
    "read_subtask": "scripted play with oracles='P'",
    "legal_calls": "play that is legal but not optimal (and action masks)",
    "action_catalog": "DiscreteActions",
    "features": "FeatureObservations",
    "config_for_horizon": "a horizon",
}


def phrase(call: ToolCall) -> str:
    """Return a sentence that asks the agent to make a given call."""
    if not call.arguments:
        return f"Call {call.name}."
    return f"Call {call.name} with {json.dumps(dict(call.arguments), ensure_ascii=False)}."


def has_hook(world: type[World[Any]], hook: str) -> bool:
    """Report whether a class overrides a hook of `World`."""
    method, default = getattr(world, hook), getattr(World, hook)
    return getattr(method, "__func__", method) is not getattr(default, "__func__", default)


def check_hooks(world: type[World[Any]], hooks: Iterable[str], feature: str = "") -> None:
    """Raise `MissingHook` if a class lacks any of the hooks that a feature needs."""
    for hook in hooks:
        if not has_hook(world, hook):
            raise MissingHook(world, hook, feature)


def check_defined(world: type[World[Any]], config: Any, hooks: Iterable[str]) -> None:
    """Raise `ValueError` if a hook is undefined for a configuration."""
    undefined = world.undefined_hooks(config)
    for hook in hooks:
        if hook in undefined:
            raise ValueError(f"{_FEATURES[hook]} is undefined here: {undefined[hook]}")


def check_world(world: type[World[Any]]) -> None:
    """Raise `MissingHook` if a class lacks a required hook or `Config`."""
    check_hooks(world, _REQUIRED)
    if not hasattr(world, "Config"):
        raise MissingHook(world, "Config")


def _describe(hook: str) -> str:
    if hook == "Config":
        return "Config, a frozen dataclass of its options"
    method = getattr(World, hook)
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    purpose = re.split(r"[;:.](?: |$)", " ".join(method.__doc__.split()), maxsplit=1)[0]
    return f"{hook}({', '.join(names)}) to {purpose[0].lower()}{purpose[1:]}"


class CallSet(Sequence[ToolCall]):
    """Set of calls of one tool that differ only in one argument; a membership test takes O(1)."""

    def __init__(self, name: str, argument: str, values: Collection[Any]) -> None:
        self._name, self._argument = name, argument
        self._values = dict.fromkeys(values)

    def __contains__(self, call: object) -> bool:
        if (
            not isinstance(call, ToolCall)
            or call.name != self._name
            or call.arguments.keys() != {self._argument}
        ):
            return False
        value = call.arguments[self._argument]
        # As dict keys, True and 1.0 equal 1; call validation distinguishes them.
        return (
            isinstance(value, (str, int)) and not isinstance(value, bool) and value in self._values
        )

    def __iter__(self) -> Iterator[ToolCall]:
        return (ToolCall(self._name, {self._argument: value}) for value in self._values)

    def __getitem__(self, index: Any) -> Any:
        values = list(self._values)[index]
        if isinstance(index, slice):
            return CallSet(self._name, self._argument, values)
        return ToolCall(self._name, {self._argument: values})

    def __len__(self) -> int:
        return len(self._values)


def world_path(world: type[World[Any]] | str) -> str:
    """Return the `module:Class` that names a world in specs, without importing it."""
    if not isinstance(world, str):
        return f"{world.__module__}:{world.__qualname__}"
    module, _, name = world.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"world {world!r} must name a class; write 'package.module:Class'")
    return world


def load_world(world: type[World[Any]] | str) -> type[World[Any]]:
    """Return a world's class; raise `MissingHook` or ValueError if its path or hooks are wrong."""
    if isinstance(world, str):
        module, _, name = world.partition(":")
        try:
            world = getattr(import_named(module), name)
        except MissingHook:
            raise
        except UntrustedModule as error:
            raise ValueError(str(error)) from None
        except Exception as error:  # the module is third-party code
            raise ValueError(
                f"world {world!r} cannot be imported ({error}); write 'package.module:Class'"
            ) from error
    if not (isinstance(world, type) and issubclass(world, World)):
        raise ValueError(f"world must be a subclass of agentgym.World, got {world!r}")
    check_world(world)
    return world
