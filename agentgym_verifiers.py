"""The worlds as a plugin of verifiers, which finds plugins by the name of a top-level module: see
`training/verifiers.py`.
"""

from agentgym.training.integrations.verifiers import WorldEnv, WorldHarness, WorldTaskset

__all__ = ["WorldEnv", "WorldHarness", "WorldTaskset"]
