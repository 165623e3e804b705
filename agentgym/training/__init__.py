"""Rollouts, training, evaluation, the papers' benchmarks and adapters for other trainers."""

from agentgym.training import papers  # noqa: F401  # registers the papers, whose presets and tables the evaluation needs
