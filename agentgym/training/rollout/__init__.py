"""Playing episodes: policies, local models and endpoints, the collector with its engines,
trajectories and their log.

The room stands on the core alone. What needs an extra is loaded when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentgym.training.extras import lazy_exports
from agentgym.training.rollout.collector import ENGINES, CollectionError, Collector
from agentgym.training.rollout.endpoint import ContextLengthError, EndpointError
from agentgym.training.rollout.engines import Asyncio, Engine, EnvLike, Lockstep, Threads
from agentgym.training.rollout.episode import Episode, StepOutcome
from agentgym.training.rollout.policies import PolicyConfig
from agentgym.training.rollout.rollouts import collect, replay, rollout
from agentgym.training.rollout.storage import DamagedFileError, RunLock, RunLockedError
from agentgym.training.rollout.token_usage import EndpointUsage, Usage, usage
from agentgym.training.rollout.trajectory import Step, Trajectory, TrajectoryLog
from agentgym.training.rollout.workers import Processes

if TYPE_CHECKING:
    from agentgym.training.rollout.anthropic_policy import AnthropicConfig, AnthropicPolicy
    from agentgym.training.rollout.models import (
        LocalPolicy,
        Renderer,
        load_policy,
        make_model,
        make_tokenizer,
        save_policy,
    )
    from agentgym.training.rollout.openai_policy import (
        EndpointConfig,
        EndpointPolicy,
    )
    from agentgym.training.rollout.ray_engine import Ray

__all__ = [
    "ENGINES",
    "AnthropicConfig",
    "AnthropicPolicy",
    "Asyncio",
    "CollectionError",
    "Collector",
    "ContextLengthError",
    "DamagedFileError",
    "EndpointConfig",
    "EndpointError",
    "EndpointPolicy",
    "EndpointUsage",
    "Engine",
    "EnvLike",
    "Episode",
    "LocalPolicy",
    "Lockstep",
    "PolicyConfig",
    "Processes",
    "Ray",
    "Renderer",
    "RunLock",
    "RunLockedError",
    "Step",
    "StepOutcome",
    "Threads",
    "Trajectory",
    "TrajectoryLog",
    "Usage",
    "collect",
    "load_policy",
    "make_model",
    "make_tokenizer",
    "replay",
    "rollout",
    "save_policy",
    "usage",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "anthropic_policy": ("anthropic", "AnthropicConfig AnthropicPolicy"),
        "models": (
            "train",
            "LocalPolicy Renderer load_policy make_model make_tokenizer save_policy",
        ),
        "openai_policy": (
            "endpoint",
            "EndpointConfig EndpointPolicy",
        ),
        "ray_engine": ("ray", "Ray"),
    },
)
