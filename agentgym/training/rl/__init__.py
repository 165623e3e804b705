"""Training models: behaviour cloning, GRPO, PPO, learning a world from nothing, and the token rows
that they learn from.

The trainers need the extra `train` and are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentgym.training.extras import lazy_exports
from agentgym.training.rl.curriculum import Curriculum, HintCurriculum, HorizonCurriculum
from agentgym.training.rl.learning_curve import Curve, Point
from agentgym.training.rl.token_rows import Row, rows

if TYPE_CHECKING:
    from agentgym.training.rl.cloning import Cloning, CloningConfig
    from agentgym.training.rl.finetuning import FineTuneConfig, FineTuning
    from agentgym.training.rl.from_scratch import LearnConfig, Learning
    from agentgym.training.rl.grpo import GRPO, GRPOConfig
    from agentgym.training.rl.ppo import PPO, PPOConfig
    from agentgym.training.rl.trainer import TRAIN_SEED, Trainer, TrainerConfig

__all__ = [
    "GRPO",
    "PPO",
    "TRAIN_SEED",
    "Cloning",
    "CloningConfig",
    "Curriculum",
    "Curve",
    "FineTuneConfig",
    "FineTuning",
    "GRPOConfig",
    "HintCurriculum",
    "HorizonCurriculum",
    "LearnConfig",
    "Learning",
    "PPOConfig",
    "Point",
    "Row",
    "Trainer",
    "TrainerConfig",
    "rows",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "batches": ("train", ""),
        "cloning": ("train", "Cloning CloningConfig"),
        "finetuning": ("train", "FineTuneConfig FineTuning"),
        "from_scratch": ("train", "LearnConfig Learning"),
        "grpo": ("train", "GRPO GRPOConfig"),
        "metrics_log": ("train", ""),
        "policy_gradient": ("train", ""),
        "ppo": ("train", "PPO PPOConfig"),
        "trainer": ("train", "TRAIN_SEED Trainer TrainerConfig"),
    },
)
