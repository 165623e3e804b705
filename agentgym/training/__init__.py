"""Rollouts, training, evaluation, the papers' benchmarks, bridges to other trainers, and the
command line, a room for each.
"""

from agentgym.training import papers  # noqa: F401  # registers the papers, whose presets and tables the evaluation needs
