"""What a world is: hidden state, tools and a score, in plain Python. It knows no gym, chat, model or token."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from agentgym.messages import Content, ToolCall

ConfigT = TypeVar("ConfigT")


class World(Generic[ConfigT]):
    """One instance of a task.

    A world fills the hooks below and offers `@tool` methods; the loop is `ToolEnv`'s. The instance is a function of
    `(config, seed)`: all randomness comes from `self.rng`. Worlds pickle in mid-episode.

    Attributes:
        Config: A frozen dataclass, the keyword arguments of `gymnasium.make`; an `agentgym.Config`
            checks itself.
        parallel_calls: Whether one reply may hold several calls. Worlds whose optimal sets are over single calls say no.
        labels_decide: Whether the labels of `label_calls` say if a reply is optimal; if not, `optimal_calls` does.
        prose_fails: Whether a reply that does not try to call a tool counts as a failed round, as one does whose calls all fail.
        roles: The tools of each role in a team, by names of roles in small letters (`agentgym.multi`). Tools that none has are
            those of the first role. If there are no roles, what ends the task is for a `closer`, and the rest for an `actor`.
        max_failed_rounds: The failed round in a row that ends the episode, unless the user asks for another; None for none.
        observes: Whether the env gives `read_result` each call that was carried out, with what it told: for worlds whose tools
            are not their own methods.
        config: The configuration of this instance.
        rng: The only source of randomness.
        done: Whether the world has ended by itself.
        turn: How many turns have been used, unreadable replies included; kept by the env, which counts a turn before it runs.
        max_turns: The turn budget, or None for no limit. It may shrink while the episode goes on.
        max_calls: The most calls that one reply may hold, or None for no limit; set before `generate`.
    """

    Config: ClassVar[type[Any]]
    parallel_calls: ClassVar[bool] = True
    labels_decide: ClassVar[bool] = True
    prose_fails: ClassVar[bool] = True
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    max_failed_rounds: ClassVar[int | None] = None
    observes: ClassVar[bool] = False

    def __init__(self, config: ConfigT, seed: int) -> None:
        self.config = config
        self.rng = np.random.default_rng(seed)
        self.done = False
        self.turn = 0
        self.max_turns: int | None = None
        self.max_calls: int | None = None

    # What an episode is made of.

    def generate(self) -> None:
        """Draw the instance from `self.rng`; called once, before anything else."""
        raise NotImplementedError

    def rules(self) -> str:
        """The system message, without the documentation of the tools."""
        raise NotImplementedError

    def task(self) -> str | Content:
        """The first user message: this instance, its budget included."""
        raise NotImplementedError

    def score(self) -> float:
        """How well the task was done, in [0, 1]; read once, when the episode ends."""
        raise NotImplementedError

    def report(self) -> Mapping[str, Any]:
        """What the researcher is told at the end of an episode (`StepInfo.report`), JSON-able; it may use what is hidden."""
        return {}

    def toolsets(self) -> Sequence[object]:
        """The objects whose `@tool` methods are on offer; a world with optional tools chooses here."""
        return (self,)

    def final_answer(self, text: str) -> ToolCall | None:
        """The call that a reply without one stands for (an answer in prose, say), or None."""
        return None

    @classmethod
    def config_for_horizon(cls, steps: int) -> Mapping[str, Any]:
        """The configuration whose shortest solution takes about `steps` turns.

        Raises:
            ValueError: No configuration is that short or that long.
        """
        raise NotImplementedError

    # What an agent that has seen exactly the shown history could know; these depend on nothing hidden and change nothing.

    def state(self) -> str:
        """The belief state in words: with the task it suffices for optimal play; it names no action."""
        raise NotImplementedError

    def subtask(self, with_state: bool) -> str:
        """The next step of an optimal plan in words, without need to look ahead.

        Args:
            with_state: Whether the policy is shown `state()` too; the step may then refer to it.
        """
        raise NotImplementedError

    def reasoning(self, call: ToolCall) -> str:
        """How an agent comes to a call, in words; demonstrations write it before the call. By default the belief state.

        Args:
            call: Any call, a wrong one too: then the words are those of an agent that errs.
        """
        return self.state()

    def optimal_calls(self) -> Sequence[ToolCall] | None:
        """Exactly the optimal next calls; empty if success is out of reach, None if optimality is not defined here."""
        return None

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]] | None:
        """A function that labels the calls of the next reply after it was played, by the moment before; None where a call is
        optimal or not, and no more is to be said. Where `labels_decide`, a reply is optimal if some label is `optimal` and the
        rest are that or `neutral`.
        """
        return None

    def legal_calls(self) -> Sequence[ToolCall]:
        """The calls that would be carried out now, as far as the shown history tells: for random play and action masks."""
        raise NotImplementedError

    # What classical agents, which take numbers in place of text, need besides (`agentgym.wrappers.discrete`). These too depend on
    # nothing hidden, but for the configuration, which says how long they are: a world read from text has to be given it.

    def action_catalog(self) -> Sequence[ToolCall]:
        """Every call that this configuration can ask for, in an order and number that depend on the configuration alone.

        A place that stands for nothing yet (a node that has not been shown) holds a call that is refused.
        """
        raise NotImplementedError

    def features(self) -> NDArray[np.float32]:
        """What the task and `state()` tell, in numbers in [-1, 1]; the shape depends on the configuration alone."""
        raise NotImplementedError

    # How a scripted policy reads what the hooks above wrote. They are given text and fill a world with what the text tells.

    @classmethod
    def read_task(cls, task: str) -> Self:
        """A world that knows what a task message tells, and nothing else."""
        raise NotImplementedError

    def read_result(self, call: ToolCall, result: str) -> None:
        """Take in the result of a call that was carried out; one that does not fit what this world knows is ignored."""
        raise NotImplementedError

    def read_state(self, state: str) -> None:
        """Take in a text that `state()` wrote, in place of the history."""
        raise NotImplementedError

    def read_subtask(self, subtask: str) -> ToolCall | None:
        """The call that a text of `subtask()` asks for, as far as this world knows; None if it cannot tell."""
        raise NotImplementedError

    @property
    def turns_left(self) -> int:
        """Turns that may still be played; raises `ValueError` where there is no budget."""
        if self.max_turns is None:
            raise ValueError(f"{type(self).__name__} has no turn budget")
        return self.max_turns - self.turn


class CallSet(Sequence[ToolCall]):
    """Calls of one tool that differ in one argument, without a `ToolCall` for each; membership takes O(1)."""

    def __init__(self, name: str, argument: str, values: Collection[Any]) -> None:
        self._name, self._argument = name, argument
        self._values = dict.fromkeys(values)

    def __contains__(self, call: object) -> bool:
        if not isinstance(call, ToolCall) or call.name != self._name or call.arguments.keys() != {self._argument}:
            return False
        value = call.arguments[self._argument]
        # A dict takes True and 1.0 for 1, which the checks of a call do not.
        return isinstance(value, (str, int)) and not isinstance(value, bool) and value in self._values

    def __iter__(self) -> Iterator[ToolCall]:
        return (ToolCall(self._name, {self._argument: value}) for value in self._values)

    def __getitem__(self, index: Any) -> Any:
        values = list(self._values)[index]
        if isinstance(index, slice):
            return CallSet(self._name, self._argument, values)
        return ToolCall(self._name, {self._argument: values})

    def __len__(self) -> int:
        return len(self._values)


def load_world(world: type[World[Any]] | str) -> type[World[Any]]:
    """The class of a world, imported if it is given by name.

    Raises:
        ValueError: The name leads to no world.
    """
    if isinstance(world, str):
        module, _, name = world.partition(":")
        try:
            world = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"world {world!r} cannot be imported ({error}); write 'package.module:Class'") from error
    if not (isinstance(world, type) and issubclass(world, World)):
        raise ValueError(f"world must be a subclass of agentgym.World, got {world!r}")
    return world
