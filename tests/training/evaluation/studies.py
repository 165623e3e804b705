from __future__ import annotations

from typing import Any

from agentgym.training.evaluation import Ablation, Result
from agentgym.training.rollout import PolicyConfig


def small(policy: str | PolicyConfig = "oracle", **changes: Any) -> Ablation:
    settings = {"worlds": ("ListWorld",), "arms": ("", "S"), "horizons": (3,), "seeds": 4}
    config = PolicyConfig(policy) if isinstance(policy, str) else policy
    return Ablation(**{**settings, "policy": config, **changes})


def result(seed: int, arm: str = "", success: float = 1.0, horizon: int = 4, **more: Any) -> Result:
    """Return a four-step ListWorld episode; if solved, all steps are optimal."""
    counts = {"steps": 4, "optimal": int(4 * success), "alive": 4, "alive_optimal": 0}
    fields = {"world": "ListWorld", **counts, **more}
    return Result(arm=arm, horizon=horizon, seed=seed, success=success, **fields)
