"""Model training: behaviour cloning, GRPO, training from scratch, and the token rows they use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentgym.training.extras import lazy_exports
from agentgym.training.rl.curriculum import Curriculum, HintCurriculum, HorizonCurriculum
from agentgym.training.rl.episodes import TRAIN_SEED
from agentgym.training.rl.learning_curve import Curve, Point
from agentgym.training.rl.token_rows import TrainingRow, rows
from agentgym.training.rl.trainer_config import GRPOConfig, TrainerConfig

if TYPE_CHECKING:
    from agentgym.training.rl.cloning import Cloning, CloningConfig
    from agentgym.training.rl.finetuning import FineTuning
    from agentgym.training.rl.finetuning_config import FineTuneConfig
    from agentgym.training.rl.from_scratch import LearnConfig, Learning
    from agentgym.training.rl.grpo import GRPO
    from agentgym.training.rl.trainer import Trainer

__all__ = [
    "GRPO",
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
    "Point",
    "Trainer",
    "TrainerConfig",
    "TrainingRow",
    "rows",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "batches": ("train", ""),
        "cloning": ("train", "Cloning CloningConfig"),
        "finetuning": ("train", "FineTuning"),
        "finetuning_config": ("train", "FineTuneConfig"),
        "from_scratch": ("train", "LearnConfig Learning"),
        "grpo": ("train", "GRPO"),
        "trainer": ("train", "Trainer"),
    },
)
