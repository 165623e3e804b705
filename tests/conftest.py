"""Settings for all tests, made before any library is loaded."""

from __future__ import annotations

import os
from typing import Any

# The tests run in as many processes as there are cores: more threads in each would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Let optimizers round as another processor would, if asked: `AGENTGYM_ROUNDING=1 pytest tests/test_trainers.py`."""
    if seed := os.environ.get("AGENTGYM_ROUNDING"):
        _round_otherwise(int(seed))


def _round_otherwise(seed: int) -> None:
    """Multiply gradients by numbers near 1: as much as other instructions change, the same at every step of a run."""
    import torch  # noqa: PLC0415 - only if asked
    from torch.optim.optimizer import register_optimizer_step_pre_hook  # noqa: PLC0415

    def perturb(optimizer: torch.optim.Optimizer, args: Any, options: Any) -> None:
        generator = torch.Generator().manual_seed(seed)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    noise = torch.randn(parameter.grad.shape, generator=generator, dtype=parameter.grad.dtype)
                    parameter.grad.mul_(1 + 1e-5 * noise)

    register_optimizer_step_pre_hook(perturb)
