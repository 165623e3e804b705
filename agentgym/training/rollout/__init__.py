"""Episode collection with policies, engines and trajectory logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentgym.training.extras import lazy_exports
from agentgym.training.rollout.collector import ENGINES, Collector
from agentgym.training.rollout.endpoints.budget import BudgetError
from agentgym.training.rollout.endpoints.connection import ContextLengthError, EndpointError
from agentgym.training.rollout.engines.base import Engine, EnvLike, Lockstep
from agentgym.training.rollout.engines.processes import Processes
from agentgym.training.rollout.engines.threads import Asyncio, Threads
from agentgym.training.rollout.episode import Episode, StepOutcome
from agentgym.training.rollout.faults import CollectionError, PolicyFault
from agentgym.training.rollout.models.sampling import ModelOptions, Sample, Sampler, SamplingOptions
from agentgym.training.rollout.policies import PolicyConfig
from agentgym.training.rollout.rollouts import collect, replay, rollout
from agentgym.training.rollout.seat_policies import SeatPolicies
from agentgym.training.rollout.storage import (
    DamagedFileError,
    OtherRunError,
    RunLock,
    RunLockedError,
)
from agentgym.training.rollout.token_usage import EndpointUsage, Usage, usage
from agentgym.training.rollout.trajectory import Step, Trajectory, TrajectoryLog
from agentgym.training.rollout.user_policy import PolicyLike, UserPolicy

if TYPE_CHECKING:
    from agentgym.training.rollout.anthropic_policy import AnthropicConfig, AnthropicPolicy
    from agentgym.training.rollout.engines.ray import Ray
    from agentgym.training.rollout.models.creation import make_model, make_tokenizer
    from agentgym.training.rollout.models.local_policy import (
        LocalPolicy,
        TokenPolicy,
        make_renderer,
    )
    from agentgym.training.rollout.models.pretrained import load_policy, save_policy
    from agentgym.training.rollout.models.renderer import Renderer, pad_id
    from agentgym.training.rollout.models.sampler import TransformersSampler
    from agentgym.training.rollout.models.vllm_sampler import VLLMSampler
    from agentgym.training.rollout.openai_policy import (
        EndpointConfig,
        EndpointPolicy,
    )

__all__ = [
    "ENGINES",
    "AnthropicConfig",
    "AnthropicPolicy",
    "Asyncio",
    "BudgetError",
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
    "ModelOptions",
    "OtherRunError",
    "PolicyConfig",
    "PolicyFault",
    "PolicyLike",
    "Processes",
    "Ray",
    "Renderer",
    "RunLock",
    "RunLockedError",
    "Sample",
    "Sampler",
    "SamplingOptions",
    "SeatPolicies",
    "Step",
    "StepOutcome",
    "Threads",
    "TokenPolicy",
    "Trajectory",
    "TrajectoryLog",
    "TransformersSampler",
    "Usage",
    "UserPolicy",
    "VLLMSampler",
    "collect",
    "load_policy",
    "make_model",
    "make_renderer",
    "make_tokenizer",
    "pad_id",
    "replay",
    "rollout",
    "save_policy",
    "usage",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "anthropic_policy": ("anthropic", "AnthropicConfig AnthropicPolicy"),
        "models.local_policy": ("train", "LocalPolicy TokenPolicy make_renderer"),
        "models.creation": ("train", "make_model make_tokenizer"),
        "openai_policy": (
            "endpoint",
            "EndpointConfig EndpointPolicy",
        ),
        "models.pretrained": ("train", "load_policy save_policy"),
        "engines.ray": ("ray", "Ray"),
        "models.renderer": ("train", "Renderer pad_id"),
        "models.sampler": ("train", "TransformersSampler"),
        "models.vllm_sampler": ("vllm", "VLLMSampler"),
    },
)
