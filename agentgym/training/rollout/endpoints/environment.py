"""Policy factories for `--policy`, configured by environment variables and options."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import asdict
from typing import Any, Generic

from agentgym.training.rollout.endpoints.connection import Connection
from agentgym.training.rollout.endpoints.endpoint import HttpPolicy, PolicyConfigT


class FromEnvironment(Generic[PolicyConfigT]):
    """Factory of policies that share connections; the prefix `OPENAI` reads `OPENAI_MODEL` etc."""

    def __init__(
        self, prefix: str, config: type[PolicyConfigT], policy: type[HttpPolicy[PolicyConfigT]]
    ) -> None:
        self.prefix, self.config, self.policy = prefix, config, policy
        # A policy per episode must not mean a connection per episode.
        self._connection = functools.lru_cache(maxsize=8)(self._connect)

    def __call__(self, env_id: str, **options: Any) -> HttpPolicy[PolicyConfigT]:
        """Return a policy for any world; `options` are the config's fields."""
        for name in ("model", "base_url"):
            variable = f"{self.prefix}_{name.upper()}"
            if value := os.environ.get(variable):
                options.setdefault(name, value)
        if "model" not in options:
            raise ValueError(
                f"no model to play {env_id}: set {self.prefix}_MODEL to the model's name on the "
                "server"
            )
        config = self.config(**options)
        given = {**asdict(config), "extra_body": None, "sample": ""}
        return self.policy(config, self._connection(json.dumps(given)))

    def _connect(self, options: str) -> Connection:
        made = self.config(**{**json.loads(options), "extra_body": {}})
        return Connection(functools.partial(self.policy.connect, made), made)
