"""Policies by name, for the command line and for runs that have to be described in JSON."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field

from agentgym.oracles import ControlPolicy, NoisyPolicy, OraclePolicy, RandomPolicy
from agentgym.oracles.control import Deficits
from agentgym.policy import Policy
from agentgym.world import check_float, check_int

NAMES = ("control", "oracle", "noisy", "random")


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Which policy plays.

    Attributes:
        name: `control`, `oracle`, `noisy`, `random`, or `package.module:factory`, where `factory(env_id)` makes a policy.
        seed: Seeds the scripted policies.
        noise: The probability of an error of `noisy`.
        deficits: What `control` lacks.
    """

    name: str = "control"
    seed: int = 0
    noise: float = 0.1
    deficits: Deficits = field(default_factory=Deficits)

    def __post_init__(self) -> None:
        check_int("seed", self.seed, 0, 2**32 - 1)
        check_float("noise", self.noise, 0.0, 1.0)
        if self.name not in NAMES and ":" not in self.name:
            raise ValueError(f"there is no policy {self.name!r}; policies: {', '.join(NAMES)}, or package.module:factory")

    def make(self, env_id: str) -> Policy:
        """The policy for a world.

        Raises:
            ValueError: The factory cannot be imported.
        """
        if self.name == "control":
            return ControlPolicy(env_id, self.deficits, self.seed)
        if self.name == "noisy":
            return NoisyPolicy(env_id, self.noise, self.seed)
        if self.name in NAMES:
            return {"oracle": OraclePolicy, "random": RandomPolicy}[self.name](env_id, self.seed)
        return self._factory(env_id)

    def _factory(self, env_id: str) -> Policy:
        module, _, name = self.name.partition(":")
        try:
            policy: Policy = getattr(importlib.import_module(module), name)(env_id)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"policy {self.name!r} cannot be imported ({error}); write package.module:factory") from error
        return policy
