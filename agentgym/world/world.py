"""Worlds: hidden state, tools and a score, in plain Python, without gym, chat, model or token."""

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

_EXAMPLE = "an example is in agentgym/envs/lumina/list_world.py"
"""The world whose hooks are the shortest: it has all of them."""


class MissingHook(NotImplementedError):
    """A world does not fill a hook that it must have, or that a feature needs.

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

    A world fills the first four hooks below, and those of the other groups for the features that it
    wants; it offers `@tool` methods; the loop is `ToolEnv`'s. The instance is a function of
    `(config, seed)`: all randomness comes from `self.rng`. Worlds pickle in mid-episode.

    Attributes:
        Config: A frozen dataclass, the keyword arguments of `gymnasium.make`; an `agentgym.Config`
            checks itself.
        parallel_calls: Whether one reply may hold several calls. Worlds whose optimal sets are over
            single calls say no.
        labels_decide: Whether the labels of `label_calls` say if a reply is optimal; if not,
            `optimal_calls` does.
        prose_fails: Whether a reply that does not try to call a tool counts as a failed round, as
            one does whose calls all fail.
        roles: The tools of each role in a team, by names of roles in small letters
            (`agentgym.multi`). Tools that none has are those of the first role. If there are no
            roles, what ends the task is for a `closer`, and the rest for an `actor`.
        max_failed_rounds: The failed round in a row that ends the episode, unless the user asks for
            another; None for none.
        horizon_unit: The meaning of the number that `config_for_horizon` takes, for axes.
        observes: Whether the env gives `read_result` each call that was carried out, with its
            result: for worlds whose tools are not their own methods.
        config: The configuration of this instance.
        rng: The only source of randomness.
        instance: A digest of the class and the seed, which tells instances apart and nothing about
            them.
        done: Whether the world has ended by itself.
        turn: How many turns have been used, unreadable replies included; kept by the env, which
            counts a turn before it runs.
        max_turns: The turn budget, or None for no limit. It may shrink while the episode goes on.
        max_calls: The most calls that one reply may hold, or None for no limit; set before
            `generate`.
        instance_seed: The seed of the instance.
        call_log: The calls that were carried out; kept by the env, which re-creates the world from
            them if a tool breaks it.

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
        if "_is_complete" not in vars(type(self)):  # the mark of a parent says nothing
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

    # Every world must fill these four. `__init__` and `register` check it, since the error of `abc`
    # does not say what for.

    @abstractmethod
    def generate(self) -> None:
        """Draw the instance from `self.rng`; called once, before anything else."""

    @abstractmethod
    def rules(self) -> str:
        """Return the system message, without the documentation of the tools."""

    @abstractmethod
    def task(self) -> str | Content:
        """Return the first user message, which tells this instance and its budget."""

    @abstractmethod
    def score(self) -> float:
        """Return how well the task was done, in [0, 1]; read once, when the episode ends."""

    # An episode may have more to it; what stands here is right for most worlds.

    def report(self) -> Mapping[str, Any]:
        """Return the report of an episode at its end (`StepInfo.report`), JSON-able.

        It is for the researcher, so it may use what is hidden.
        """
        return {}

    def instance_key(self) -> str:
        """Return a digest of what makes this instance the task that it is; read once, after
        `generate`.

        Instances with one key are one task, which decides its split (`agentgym.world.splits`). Budgets
        and prompts do not belong to it. By default it covers all attributes but those that every
        world has.
        """
        return digest({name: value for name, value in vars(self).items() if name not in COMMON})

    def split_keys(self) -> Collection[str]:
        """Return the digests or names that must all be in a split for this instance to be in it;
        by default its key alone.

        A world whose instances share something that must not be both in training and in testing,
        such as people, returns the names of these. Instances of one key must return the same.
        """
        return (self.instance_key(),)

    @classmethod
    def config_for_split(cls, config: ConfigT, split: SplitName) -> ConfigT:
        """Return the configuration whose instances are drawn for a split; by default the same one.

        A world whose `split_keys` are several draws these so that they are in the split, since few
        instances would be in it by chance.

        Raises:
            ValueError: The configuration is that of another split.
        """
        return config

    @classmethod
    def instance_count(cls, config: ConfigT) -> float | None:
        """Return how many different instances a configuration has, or a lower bound; None if only
        drawing some can tell.
        """
        return None

    @classmethod
    def chance(cls, config: ConfigT) -> float | None:
        """Return the mean score of the best policy that sees neither task nor results, as the
        distribution of the instances has it; None to have it estimated by random play.

        `agentgym audit` allows no shortcut more than that, or than 0.10 if that is more.
        """
        return None

    def toolsets(self) -> Sequence[object]:
        """Return the objects whose `@tool` methods are on offer; a world with optional tools
        chooses here.
        """
        return (self,)

    def final_answer(self, text: str) -> ToolCall | None:
        """Return the call that a reply without one stands for (an answer in prose, say), or
        None.
        """
        return None

    def board(self) -> str:
        """Draw the world as it stands for a person, from what was shown; empty if there is nothing
        to draw.
        """
        return ""

    # For oracles and labels: what an agent that has seen exactly the shown history could know.
    # These depend on nothing hidden and change nothing.

    def state(self) -> str:
        """Return the belief state in words.

        With the task it suffices for optimal play, and it names no action.
        """
        raise MissingHook(type(self), "state")

    def brief_state(self) -> str:
        """Return `state()`, or what in it matters for the next steps where it is long: for an agent
        that sees its history too, or that has a tool for the rest. A text that is not whole is none
        that `read_state` takes. Fill `state_chars` too, so that a turn takes no work for all that
        is known.
        """
        return self.state()

    def state_chars(self) -> int:
        """Return the number of characters of `state()`."""
        return len(self.state())

    def subtask(self, with_state: bool) -> str:
        """Return the next step of an optimal plan in words, without need to look ahead.

        Args:
            with_state: Whether the policy is shown `state()` too; the step may then refer to it.
        """
        raise MissingHook(type(self), "subtask")

    def subtask_for(self, call: ToolCall, with_state: bool) -> str:
        """Return the words in which `subtask` would ask for any of the `legal_calls`, a wrong one
        too; by default its name and arguments.

        Wrong plan hints are written with it, and should look like right ones.
        """
        return phrase(call)

    def restate(self) -> str | None:
        """Return the task without what goes stale in the episode, for a view in which `state()`
        stands right behind it in place of the history; None if nothing goes stale.
        """
        return None

    def reasoning(self, call: ToolCall) -> str:
        """Return the way of an agent to a call, in words; by default the belief state.

        Demonstrations write it before the call.

        Args:
            call: Any call, a wrong one too: then the words are those of an agent that errs.
        """
        return self.state()

    def optimal_calls(self) -> Sequence[ToolCall] | None:
        """Return exactly the optimal next calls; empty if success is out of reach, None if
        optimality is not defined here.
        """
        return None

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]] | None:
        """Return a function that labels the calls of the next reply after it was played, by the
        moment before.

        None where a call is optimal or not, and there is no more to say. Where `labels_decide`, a
        reply is optimal if some label is `optimal` and the rest are that or `neutral`.
        """
        return None

    # For scripted play: how a policy reads what the hooks above wrote. They take text and fill a
    # world with what it tells.

    @classmethod
    def read_task(cls, task: str) -> Self:
        """Return a world that knows the text of a task message or of `restate()`, and nothing else;
        without the budget, `max_turns` is None.
        """
        raise MissingHook(cls, "read_task")

    def read_result(self, call: ToolCall, result: str) -> None:
        """Take in the result of a call that was carried out; one that does not fit what this world
        knows is ignored.
        """
        raise MissingHook(type(self), "read_result")

    def read_state(self, state: str) -> None:
        """Take in a text that `state()` wrote, in place of the history."""
        raise MissingHook(type(self), "read_state")

    def read_subtask(self, subtask: str) -> ToolCall | None:
        """Return the call that a text of `subtask()` asks for, as far as this world knows; None if
        it cannot tell.
        """
        raise MissingHook(type(self), "read_subtask")

    def legal_calls(self) -> Sequence[ToolCall]:
        """Return the calls that would be carried out now, as far as the shown history shows."""
        raise MissingHook(type(self), "legal_calls")

    # For classical agents, which take numbers in place of text (`agentgym.wrappers.discrete`).
    # These too depend on nothing hidden, but for the configuration, which says how long they are: a
    # world read from text has to be given it.

    def action_catalog(self) -> Sequence[ToolCall]:
        """Return every call that this configuration can ask for, in an order and number that depend
        on the configuration alone.

        A place that stands for nothing yet (a node that has not been shown) holds a call that is
        refused.
        """
        raise MissingHook(type(self), "action_catalog")

    def features(self) -> NDArray[np.float32]:
        """Return the content of the task and `state()` as numbers in [-1, 1]; the shape depends on
        the configuration alone.
        """
        raise MissingHook(type(self), "features")

    # For worlds that take data.

    @classmethod
    def undefined_hooks(cls, config: Any) -> Mapping[str, str]:
        """Return the hooks that cannot give a true answer in a configuration, each with the reason.

        A feature that needs one of them is refused when an env is made.
        """
        return {}

    # For hosts that lack something.

    @classmethod
    def requirements(cls, config: Any) -> Mapping[str, str]:
        """Return what tools and generator need of the host in a configuration, by the names of
        `agentgym.text.requirements`, each with what the user can do instead.

        It is checked when an env is made.
        """
        return {}

    # For ablations and training over horizons.

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        """Return the configuration whose shortest solution takes about `steps` turns.

        Raises:
            ValueError: No configuration is that short or that long.
        """
        raise MissingHook(cls, "config_for_horizon")

    # For teams: `roles` above; what a hosted world has besides is listed in
    # `agentgym.multi.host.Hosted`.

    def set_turns_left(self, turns: int) -> None:
        """Take the number of turns left from a text; where the budget is not known, it counts from
        here.
        """
        if self.max_turns is None:
            self.max_turns, self.turn = turns, 0
        else:
            self.turn = self.max_turns - turns

    @property
    def turns_left(self) -> int:
        """Return the number of turns that may still be played.

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
"""The attributes that every world has: some of them, the seed say, tell two draws of one instance
apart.
"""
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
"""The features that need the hooks which a world need not fill."""


def phrase(call: ToolCall) -> str:
    """Return a sentence that asks for a call by its name and arguments."""
    if not call.arguments:
        return f"Call {call.name}."
    return f"Call {call.name} with {json.dumps(dict(call.arguments), ensure_ascii=False)}."


def has_hook(world: type[World[Any]], hook: str) -> bool:
    """Report whether a class fills a hook in place of `World`."""
    method, default = getattr(world, hook), getattr(World, hook)
    return getattr(method, "__func__", method) is not getattr(default, "__func__", default)


def check_hooks(world: type[World[Any]], hooks: Iterable[str], feature: str = "") -> None:
    """Raise `MissingHook` unless a class fills some hooks.

    Args:
        world: The class.
        hooks: The names of the hooks.
        feature: The feature that needs them; by default all that do.
    """
    for hook in hooks:
        if not has_hook(world, hook):
            raise MissingHook(world, hook, feature)


def check_defined(world: type[World[Any]], config: Any, hooks: Iterable[str]) -> None:
    """Refuse what needs a hook that has no true answer in a configuration.

    Raises:
        ValueError: Naming the feature and the reason.
    """
    undefined = world.undefined_hooks(config)
    for hook in hooks:
        if hook in undefined:
            raise ValueError(f"{_FEATURES[hook]} is not defined here: {undefined[hook]}")


def check_world(world: type[World[Any]]) -> None:
    """Raise `MissingHook` unless a class has what every world must have."""
    check_hooks(world, _REQUIRED)
    if not hasattr(world, "Config"):
        raise MissingHook(world, "Config")


def _describe(hook: str) -> str:
    """Return the parameters of a hook and its purpose: the first clause of its documentation."""
    if hook == "Config":
        return "Config, a frozen dataclass of its options"
    method = getattr(World, hook)
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    purpose = re.split(r"[;:.](?: |$)", " ".join(method.__doc__.split()), maxsplit=1)[0]
    return f"{hook}({', '.join(names)}) to {purpose[0].lower()}{purpose[1:]}"


class CallSet(Sequence[ToolCall]):
    """Set of calls of one tool that differ in one argument, without a `ToolCall` for each;
    membership takes O(1).
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
        # A dict takes True and 1.0 for 1, which the checks of a call do not.
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
    """Return the `module:Class` by which specs name a world, which is not imported for that.

    Raises:
        ValueError: The text is not of that form.
    """
    if not isinstance(world, str):
        return f"{world.__module__}:{world.__qualname__}"
    module, _, name = world.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"world {world!r} names no class; write 'package.module:Class'")
    return world


def load_world(world: type[World[Any]] | str) -> type[World[Any]]:
    """Return the class of a world, imported if it is given by name.

    Raises:
        MissingHook: The class lacks a hook that every world must fill, or `Config`.
        ValueError: The name leads to no world.
    """
    if isinstance(world, str):
        module, _, name = world.partition(":")
        try:
            world = getattr(import_named(module), name)
        except MissingHook:
            raise
        except Exception as error:  # the module is code of anyone
            raise ValueError(
                f"world {world!r} cannot be imported ({error}); write 'package.module:Class'"
            ) from error
    if not (isinstance(world, type) and issubclass(world, World)):
        raise ValueError(f"world must be a subclass of agentgym.World, got {world!r}")
    check_world(world)
    return world
