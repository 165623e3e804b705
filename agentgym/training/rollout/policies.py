"""Policies by name, for the command line and for runs that have to be described in JSON."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from agentgym.config import Config, Seed, Share
from agentgym.messages import Chat
from agentgym.oracles import ControlPolicy, NoisyPolicy, OraclePolicy, RandomPolicy, TeamPolicy
from agentgym.oracles.control import Deficits
from agentgym.oracles.policies import ScriptedPolicy
from agentgym.policy import Policy, PolicyError, Reply
from agentgym.registry import is_team
from agentgym.training.extras import needs_extra
from agentgym.training.rollout.model_options import ModelOptions

NAMES = ("control", "oracle", "noisy", "random")
_MODELS = ("config.json", "adapter_config.json")
"""Files of transformers and PEFT, one of which is in the folder of a model."""
EXTERNAL = "external"
"""An agent outside of this process, which calls tools over MCP (`agentgym serve --out`); its name may
follow: `external:name`.
"""


@dataclass(frozen=True)
class PolicyConfig(Config):
    """Choice of a policy.

    Attributes:
        name: `control`, `oracle`, `noisy`, `random`, the folder of a trained model,
            `package.module:factory`, where `factory(env_id)` returns a policy, or `external:name`
            for an agent that `agentgym serve` lets play.
        seed: Seeds the scripted policies.
        noise: The probability of an error of `noisy`.
        deficits: The deficits of `control`.
        model: Options of a trained model, which by default plays its most probable tokens.
    """

    name: str = "control"
    seed: Seed = 0
    noise: Share = 0.1
    deficits: Deficits = field(default_factory=Deficits)
    model: ModelOptions = field(default_factory=ModelOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name in (*NAMES, EXTERNAL) or ":" in self.name or self.is_model:
            return
        if Path(self.name).is_dir():
            raise ValueError(
                f"{self.name} holds no trained model: `agentgym train --out {self.name}` has to "
                "run to its end first"
            )
        choices = f"{', '.join(NAMES)}, package.module:factory, or the folder of a trained model"
        raise ValueError(f"there is no policy {self.name!r}; policies: {choices}")

    def make(self, env_id: str) -> Policy:
        """Return the policy for a world or a team; a scripted one plays all agents of a team.

        Raises:
            ValueError: The factory cannot be imported, or the folder of a model cannot be read.
        """
        if self.name in NAMES:
            scripted = self._scripted(env_id)
            return TeamPolicy(env_id, scripted) if is_team(env_id) else scripted
        if self.name.partition(":")[0] == EXTERNAL:
            return _play_outside
        if self.is_model:
            written = max(file.stat().st_mtime_ns for file in self._model_files())
            return _load(self.name, written, self.model.to_json(), self.seed)
        return self._factory(env_id)

    def _scripted(self, env_id: str) -> ScriptedPolicy:
        if self.name == "control":
            return ControlPolicy(env_id, self.deficits, self.seed)
        if self.name == "noisy":
            return NoisyPolicy(env_id, self.noise, self.seed)
        return {"oracle": OraclePolicy, "random": RandomPolicy}[self.name](env_id, self.seed)

    @property
    def is_model(self) -> bool:
        """Return whether it is a model that plays in this process."""
        return bool(self._model_files())

    def _model_files(self) -> list[Path]:
        return [file for name in _MODELS if (file := Path(self.name) / name).is_file()]

    def _factory(self, env_id: str) -> Policy:
        module, _, name = self.name.partition(":")
        try:
            policy: Policy = getattr(importlib.import_module(module), name)(env_id)
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"policy {self.name!r} cannot be imported ({error}); write package.module:factory"
            ) from error
        return policy


def _play_outside(chats: Sequence[Chat]) -> list[Reply]:
    raise PolicyError("an external agent plays over MCP: agentgym serve --out")


@lru_cache(maxsize=2)
def _load(folder: str, written: int, options: str, seed: int) -> Policy:
    """Return the model in a folder, read once: an ablation asks for the policy again in each
    episode.
    """
    with needs_extra("a trained model", "train"):
        from agentgym.training.rollout.pretrained import load_policy  # noqa: PLC0415 - slow to import, and an extra
    return load_policy(Path(folder), ModelOptions(**json.loads(options)), seed)
