"""Plugin for verifiers, which finds plugins by the name of a top-level module. See
`training/integrations/verifiers.py`.
"""

from agentgym.training.integrations.verifiers import WorldEnv, WorldHarness, WorldTaskset

__all__ = ["WorldEnv", "WorldHarness", "WorldTaskset"]
