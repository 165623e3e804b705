"""Worlds: hidden state, tools and a score in plain Python, independent of Gymnasium, chats, models
and tokens.
"""

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

from agentgym.text.imports import import_named
from agentgym.text.messages import Content, ToolCall
from agentgym.world.call_record import CallRecord
from agentgym.world.digests import digest

ConfigT = TypeVar("ConfigT")

SplitName = Literal["train", "test"]

# The shortest world with all hooks.
_EXAMPLE = "an example is in agentgym/envs/lumina/list_world.py"


class MissingHook(NotImplementedError):
    """Error: a world lacks a hook that every world or a feature needs.

    Args:
        world: The class of the world.
        hook: The name of the hook, or `Config`.
        feature: The feature that needs it; by default all that do.
    """

    def __init__(self, world: type[World[Any]], hook: str, feature: str = "") -> None:
        self.world, self.hook, self.feature = world, hook, feature
        feature = feature or _FEATURES.get(hook, "every world")
        super().__init__(f"{feature} needs {world.__name__}.{_describe(hook)}; {_EXAMPLE}")

    def __reduce__(self) -> tuple[type[MissingHook], tuple[Any, ...]]:
        return MissingHook, (self.world, self.hook, self.feature)


class World(Generic[ConfigT]):
    """One instance of a task.

    A world implements the first four hooks below, further hooks for the features it supports, and
    `@tool` methods. `ToolEnv` provides the loop. An instance is a function of `(config, seed)`: all
    randomness comes from `self.rng`. Worlds pickle mid-episode.

    Attributes:
        Config: A frozen dataclass, the keyword arguments of `gymnasium.make`; an `agentgym.Config`
            validates itself.
        parallel_calls: Whether one reply may contain several calls. False in worlds whose optimal
            sets contain single calls.
        labels_decide: Whether the labels of `label_calls` decide if a reply is optimal; otherwise
            `optimal_calls` does.
        prose_fails: Whether a reply without an attempted call counts as a failed round, like a
            reply whose calls all fail.
        roles: The tools of each role in a team, by lower-case role names (`agentgym.multi`). Tools
            without a role belong to the first one. Without roles, a `closer` has the tools that end
            the task and an `actor` the rest.
        max_failed_rounds: The consecutive failed rounds that end the episode, unless the user
            overrides it; None for no limit.
        horizon_unit: The meaning of the argument of `config_for_horizon`, for axis labels.
        observes: Whether the env passes each completed call with its result to `read_result`, for
            worlds whose tools are not their own methods.
        config: The configuration of this instance.
        rng: The only source of randomness.
        instance: A digest of class and seed, which identifies the instance and reveals nothing
            about it.
        done: Whether the world has ended.
        turn: The number of used turns, including unreadable replies; the env increments it before
            each turn.
        max_turns: The turn budget, or None for no limit. It may shrink during the episode.
        max_calls: The maximum calls per reply, or None for no limit; set before `generate`.
        instance_seed: The seed of the instance.
        call_log: The completed calls, kept by the env, which re-creates the world from them after a
            fault.

    Raises:
        MissingHook: The class lacks one of the first four hooks, or `Config`.
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
        if "_is_complete" not in vars(type(self)):  # a parent's mark proves nothing
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

    # Every world must implement these four. `__init__` and `register` check it, because the error
    # of `abc` does not name their purpose.

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

    # Optional parts of an episode; the defaults suit most worlds.

    def report(self) -> Mapping[str, Any]:
        """Return the episode's final report (`StepInfo.report`), JSON-able.

        Only the researcher sees it, so it may contain hidden information.
        """
        return {}

    def instance_key(self) -> str:
        """Return a digest of everything that defines this instance; read once, after `generate`.

        Instances with the same key are the same task, and the key decides their split
        (`agentgym.world.splits`). Budgets and prompts are excluded. By default the digest covers
        all attributes except those that every world has.
        """
        return digest({name: value for name, value in vars(self).items() if name not in COMMON})

    def split_keys(self) -> Collection[str]:
        """Return the digests or names that must all be in a split for this instance to be in it; by
        default only its key.

        Override it if instances share something, such as people, that must not occur in both
        training and testing. Instances with the same key must return the same value.
        """
        return (self.instance_key(),)

    @classmethod
    def config_for_split(cls, config: ConfigT, split: SplitName) -> ConfigT:
        """Return the configuration whose instances are drawn for a split; by default the same.

        Override it if `split_keys` returns several keys, so that generated instances fall into the
        split; few would by chance.

        Raises:
            ValueError: The configuration belongs to another split.
        """
        return config

    @classmethod
    def instance_count(cls, config: ConfigT) -> float | None:
        """Return the number of different instances of a configuration, or a lower bound; None if
        only drawing can tell.
        """
        return None

    @classmethod
    def chance(cls, config: ConfigT) -> float | None:
        """Return the expected score of the best policy that sees neither task nor results; None to
        estimate it by random play.

        `agentgym audit` allows shortcuts to earn this much, or 0.10 if that is more.
        """
        return None

    def toolsets(self) -> Sequence[object]:
        """Return the objects that provide the `@tool` methods; override it for optional tools."""
        return (self,)

    def final_answer(self, text: str) -> ToolCall | None:
        """Return the call that a reply without a call means (an answer in prose, say), or None."""
        return None

    def board(self) -> str:
        """Draw the visible state of the world for people; empty if there is nothing to draw."""
        return ""

    # For oracles and labels: the knowledge of an agent that has seen exactly the shown history.
    # These hooks depend on nothing hidden and change nothing.

    def state(self) -> str:
        """Return the belief state in words.

        Together with the task it suffices for optimal play, and it names no action.
        """
        raise MissingHook(type(self), "state")

    def brief_state(self) -> str:
        """Return `state()`, or, if that is long, the part that matters for the next steps. Agents
        that see their history, or have a tool for the rest, get this text. `read_state` does not
        accept a partial text. Implement `state_chars` too, so that a turn does no work for the
        whole state.
        """
        return self.state()

    def state_chars(self) -> int:
        """Return the number of characters of `state()`."""
        return len(self.state())

    def subtask(self, with_state: bool) -> str:
        """Return the next step of an optimal plan in words, without requiring lookahead.

        Args:
            with_state: Whether the policy also sees `state()`, so that the step may refer to it.
        """
        raise MissingHook(type(self), "subtask")

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        """Return the wording `subtask` would use for any of the `legal_calls`, including wrong
        ones; by default the call's name and arguments.

        Wrong plan hints use it and should look like right ones.
        """
        return phrase(call)

    def restate(self) -> str | None:
        """Return the task without outdated parts, for a view in which `state()` follows it and
        replaces the history; None if nothing becomes outdated.
        """
        return None

    def reasoning(self, call: ToolCall) -> str:
        """Return an agent's reasoning that leads to a call; by default the belief state.

        Demonstrations write it before the call.

        Args:
            call: Any call; for a wrong call, return the reasoning of an agent that errs.
        """
        return self.state()

    def optimal_calls(self) -> Sequence[ToolCall] | None:
        """Return exactly the optimal next calls; empty if success is impossible, None if optimality
        is not defined here.
        """
        return None

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]] | None:
        """Return a function that labels the next reply's calls after it was played, relative to the
        state before.

        Return None if calls are simply optimal or not. If `labels_decide`, a reply is optimal if
        some label is `optimal` and the rest are `optimal` or `neutral`.
        """
        return None

    # For scripted play: a policy reads the texts of the hooks above back into a world.

    @classmethod
    def read_task(cls, task: str) -> Self:
        """Return a world that knows only the text of a task message or of `restate()`; without a
        budget, `max_turns` is None.
        """
        raise MissingHook(cls, "read_task")

    def read_result(self, call: ToolCall, result: str) -> None:
        """Read the result of a completed call; ignore one that does not fit."""
        raise MissingHook(type(self), "read_result")

    def read_state(self, state: str) -> None:
        """Read a text of `state()`, which replaces the history."""
        raise MissingHook(type(self), "read_state")

    def read_subtask(self, subtask: str) -> ToolCall | None:
        """Return the call that a text of `subtask()` asks for, or None if this world cannot tell."""
        raise MissingHook(type(self), "read_subtask")

    def legal_calls(self) -> Sequence[ToolCall]:
        """Return the calls that would succeed now, as far as the shown history tells."""
        raise MissingHook(type(self), "legal_calls")

    # For classical agents, which use numbers instead of text (`agentgym.wrappers.discrete`). These
    # hooks depend only on what was shown and on the configuration, which fixes all shapes; a world
    # read from text needs it as an argument.

    def action_catalog(self) -> Sequence[ToolCall]:
        """Return every call that this configuration can require, in an order and number that depend
        only on the configuration.

        A slot without a meaning yet, such as a node not shown so far, contains a call that fails.
        """
        raise MissingHook(type(self), "action_catalog")

    def features(self) -> NDArray[np.float32]:
        """Return the task and `state()` as numbers in [-1, 1]; the shape depends only on the
        configuration.
        """
        raise MissingHook(type(self), "features")

    # For worlds that take data.

    @classmethod
    def undefined_hooks(cls, config: Any) -> Mapping[str, str]:
        """Return the hooks that cannot give a true answer in a configuration, with reasons.

        `make` refuses features that need one of them.
        """
        return {}

    # For hosts that lack something.

    @classmethod
    def requirements(cls, config: Any) -> Mapping[str, str]:
        """Return the host requirements of tools and generator in a configuration, by their names in
        `agentgym.text.requirements`, each with an alternative for the user.

        `make` checks them.
        """
        return {}

    # For ablations and training over horizons.

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        """Return the configuration whose shortest solution takes about `steps` turns.

        Raises:
            ValueError: No configuration has this length.
        """
        raise MissingHook(cls, "config_for_horizon")

    # For teams: `roles` above; `agentgym.multi.host.Hosted` lists the hooks of hosted worlds.

    def set_turns_left(self, turns: int) -> None:
        """Read the number of remaining turns from a text; if the budget is unknown, count from
        here.
        """
        if self.max_turns is None:
            self.max_turns, self.turn = turns, 0
        else:
            self.turn = self.max_turns - turns

    @property
    def turns_left(self) -> int:
        """Return the number of remaining turns.

        Raises:
            ValueError: There is no budget.
        """
        if self.max_turns is None:
            raise ValueError(f"{type(self).__name__} has no turn budget")
        return self.max_turns - self.turn


COMMON = {
    *("config", "instance_seed", "call_log", "rng", "instance"),
    *("done", "turn", "max_turns", "max_calls"),
}
"""The attributes of every world. Some of them, such as the seed, distinguish draws of the same
instance.
"""
_REQUIRED = ("generate", "rules", "task", "score")
# The features that need optional hooks.
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
    """Return a sentence that asks for a call by name and arguments."""
    if not call.arguments:
        return f"Call {call.name}."
    return f"Call {call.name} with {json.dumps(dict(call.arguments), ensure_ascii=False)}."


def has_hook(world: type[World[Any]], hook: str) -> bool:
    """Report whether a class overrides a hook of `World`."""
    method, default = getattr(world, hook), getattr(World, hook)
    return getattr(method, "__func__", method) is not getattr(default, "__func__", default)


def check_hooks(world: type[World[Any]], hooks: Iterable[str], feature: str = "") -> None:
    """Raise `MissingHook` if a class lacks any of the hooks.

    Args:
        world: The class.
        hooks: The names of the hooks.
        feature: The feature that needs them; by default all that do.
    """
    for hook in hooks:
        if not has_hook(world, hook):
            raise MissingHook(world, hook, feature)


def check_defined(world: type[World[Any]], config: Any, hooks: Iterable[str]) -> None:
    """Raise if a feature needs a hook that has no true answer in a configuration.

    Raises:
        ValueError: A hook is undefined; the error names the feature and the reason.
    """
    undefined = world.undefined_hooks(config)
    for hook in hooks:
        if hook in undefined:
            raise ValueError(f"{_FEATURES[hook]} is undefined here: {undefined[hook]}")


def check_world(world: type[World[Any]]) -> None:
    """Raise `MissingHook` if a class lacks something that every world needs."""
    check_hooks(world, _REQUIRED)
    if not hasattr(world, "Config"):
        raise MissingHook(world, "Config")


def _describe(hook: str) -> str:
    """Return a hook's parameters and purpose, from the first clause of its docstring."""
    if hook == "Config":
        return "Config, a frozen dataclass of its options"
    method = getattr(World, hook)
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    purpose = re.split(r"[;:.](?: |$)", " ".join(method.__doc__.split()), maxsplit=1)[0]
    return f"{hook}({', '.join(names)}) to {purpose[0].lower()}{purpose[1:]}"


class CallSet(Sequence[ToolCall]):
    """Set of calls of one tool that differ in one argument; membership takes O(1), and no
    `ToolCall` objects are stored.
    """

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
        # A dict treats True and 1.0 as 1; call validation does not.
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
    """Return the `module:Class` that names a world in specs, without importing it.

    Raises:
        ValueError: The text does not have this form.
    """
    if not isinstance(world, str):
        return f"{world.__module__}:{world.__qualname__}"
    module, _, name = world.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"world {world!r} names no class; write 'package.module:Class'")
    return world


def load_world(world: type[World[Any]] | str) -> type[World[Any]]:
    """Return the class of a world, importing it if necessary.

    Raises:
        MissingHook: The class lacks a required hook or `Config`.
        ValueError: The path does not lead to a world.
    """
    if isinstance(world, str):
        module, _, name = world.partition(":")
        try:
            world = getattr(import_named(module), name)
        except MissingHook:
            raise
        except Exception as error:  # the module is third-party code
            raise ValueError(
                f"world {world!r} cannot be imported ({error}); write 'package.module:Class'"
            ) from error
    if not (isinstance(world, type) and issubclass(world, World)):
        raise ValueError(f"world must be a subclass of agentgym.World, got {world!r}")
    check_world(world)
    return world
