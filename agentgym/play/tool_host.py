"""The persistent parts of an env: world, tools and snapshots."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import gymnasium

from agentgym.play.kept_spec import KeepsSpec
from agentgym.play.spaces import ActionSpace
from agentgym.text.messages import Chat
from agentgym.text.parsing import Dialect
from agentgym.text.prompts import document_tools
from agentgym.text.requirements import check_requirements
from agentgym.text.tools import BoundTool, Tool, Toolset, tools_of
from agentgym.text.validation import list_names
from agentgym.world.world import World

# An env has no random generator before the first reset, when Gymnasium creates it.
_EPISODE = (
    *("_world", "_over", "_failed_rounds", "guard", "instance_key"),
    *("chat", "_np_random", "_np_random_seed"),
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Snapshot of an episode; opaque, picklable, and reusable."""

    state: Mapping[str, Any]


class ToolHost(KeepsSpec, gymnasium.Env[Chat, str]):
    """Base class of `ToolEnv`: a world with its own tools and mounted tools."""

    def __init__(
        self, world_class: type[World[Any]], config: Any, dialect: Dialect, parallel_calls: bool
    ) -> None:
        self.world_class, self.config = world_class, config
        self.dialect: Dialect = dialect
        self.parallel_calls = parallel_calls
        self.chat = Chat()
        self._world: World[Any] | None = None
        self._over = False
        self._mounted: tuple[object, ...] = ()
        self._notes: tuple[str, ...] = ()
        self._code_only: frozenset[str] = frozenset()
        self._schemas: tuple[Tool, ...] = ()
        self._documentation = ""
        self._bind(world_class(config, 0))

    @property
    def world(self) -> World[Any]:
        """Return the current world; raise ResetNeeded before the first reset."""
        if self._world is None:
            raise gymnasium.error.ResetNeeded("this env has no episode yet: call reset() first")
        return self._world

    @property
    def over(self) -> bool:
        return self._over

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Return the schemas that the policy sees; mounted tools come last."""
        return self._schemas

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """Return all schemas, including code-only tools."""
        return tuple(bound.schema for bound in self._tools.values())

    def mount(self, toolset: object, notes: str = "", code_only: Iterable[str] = ()) -> None:
        """Add another object's `@tool` methods, starting with the next reset.

        Args:
            toolset: The owner of the tools; `Toolset.begin` is called at each reset.
            notes: Text for the system message, after the tool documentation.
            code_only: Tools that the policy does not see and only `call` can run.
        """
        if doubled := self._tools.keys() & tools_of(toolset).keys():
            attribute = ".renamed" if isinstance(toolset, Toolset) else ""
            raise ValueError(
                f"a tool named {', '.join(sorted(doubled))} already exists; rename it in "
                f"{type(toolset).__name__}{attribute}"
            )
        if isinstance(toolset, Toolset):
            check_requirements(type(toolset).__name__, toolset.requirements)
        hidden = frozenset(code_only)
        for name in sorted(hidden - self._tools.keys()):
            raise ValueError(
                f"code_only contains {name!r}, which is not a tool; "
                f"{list_names(name, tuple(self._tools), 'tools')}"
            )
        self._mounted = (*self._mounted, toolset)
        self._code_only |= hidden
        self.announce(*filter(None, [notes]))
        self.action_space = ActionSpace(self._schemas, self.dialect)

    def announce(self, *notes: str) -> None:
        """Append text to the system message, starting with the next reset."""
        self._notes = (*self._notes, *notes)
        self._bind(self._world or self.world_class(self.config, 0))

    def _bind(self, world: World[Any]) -> None:
        self.most_calls = world.max_calls if self.parallel_calls else 1
        self._tools = self._world_tools(world)
        self._own = frozenset(self._tools)
        self._tools.update(tools_of(*self._mounted))
        self._direct = dict(self._tools)
        for name in self._code_only:
            self._direct.pop(name, None)
        schemas = tuple(bound.schema for bound in self._direct.values())
        if schemas != self._schemas or self._notes:
            self._schemas = schemas
            self._documentation = "\n\n".join(
                (document_tools(schemas, self.dialect, self.most_calls), *self._notes)
            )

    def _world_tools(self, world: World[Any]) -> dict[str, BoundTool]:
        return tools_of(*world.toolsets())

    def close(self) -> None:
        for owner in (*(self._world.toolsets() if self._world else ()), *self._mounted):
            if isinstance(owner, Toolset):
                owner.close()

    def snapshot(self) -> Snapshot:
        """Return the episode's state for `restore`, here or in an env with equal options.

        A snapshot excludes wrappers; to branch a whole stack, use `agentgym.clone`.
        """
        return Snapshot(copy.deepcopy(self._state()))

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot, which can be restored several times."""
        state = copy.deepcopy(dict(snapshot.state))
        for toolset, attributes in zip(self._mounted, state.pop("_mounted"), strict=True):
            vars(toolset).update(attributes)
        self.__dict__.update(state)
        self._bind(self.world)

    def clone(self) -> Self:
        """Return an independent env at the same point of the episode."""
        return copy.deepcopy(self)

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"_mounted": list(map(episode_state, self._mounted))}
        for name in _EPISODE:
            if name in self.__dict__:
                state[name] = self.__dict__[name]
        return state

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("_tools", "_direct", "_own"):  # `__setstate__` binds them again
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind(self._world or self.world_class(self.config, 0))


def episode_state(toolset: object) -> dict[str, Any]:
    """Return the attributes in `Toolset.episode_state`, or all attributes of any other object."""
    names = toolset.episode_state if isinstance(toolset, Toolset) else tuple(vars(toolset))
    return {name: getattr(toolset, name) for name in names}
