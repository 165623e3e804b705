"""Cache for the checks of an office task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from agentgym.envs.loca.task import OfficeTask

ValueT = TypeVar("ValueT")


class Outlook:
    """Cache for failures and plan outcomes, which every step needs more than once."""

    def __init__(self) -> None:
        self._version: object = None
        self._failures = Counter[str]()
        self._deviations = 0  # number of off-plan changes when the plan was last tested
        self._succeeds = True
        self._hopeful: Counter[str] | None = None  # the failures when the plan last succeeded
        self._derived: dict[str, tuple[object, Any]] = {}

    def derive(self, name: str, version: object, make: Callable[[], ValueT]) -> ValueT:
        """Return `make()`; the result is cached under `name` until `version` changes."""
        if name not in self._derived or self._derived[name][0] != version:
            self._derived[name] = version, make()
        return cast("ValueT", self._derived[name][1])

    def count(self, task: OfficeTask[Any]) -> int:
        """Return the number of failed requirements."""
        version = task.office.version()
        if version != self._version:
            self._version, self._failures = version, Counter(task.all_failures())
        return self._failures.total()

    def plan_succeeds(self, task: OfficeTask[Any]) -> bool:
        """Return whether the plan still succeeds, replaying the plan only if necessary."""
        if self._deviations != task.deviations:
            self.count(task)
            self._deviations = task.deviations
            # A change that only removes failures cannot break the plan.
            if self._hopeful is None or not self._failures < self._hopeful:
                self._succeeds = task.plan_succeeds()
            self._hopeful = self._failures if self._succeeds else None
        return self._succeeds

    def __eq__(self, other: object) -> bool:
        # The cache is not part of the state.
        return isinstance(other, Outlook)

    def __reduce__(self) -> tuple[type[Outlook], tuple[()]]:
        return Outlook, ()
