"""Plugin for verifiers, which finds plugins by the names of top-level modules. See
`training/integrations/verifiers.py`.
"""

from agentgym.training.integrations.verifiers import WorldEnv, WorldHarness, WorldTaskset

__all__ = ["WorldEnv", "WorldHarness", "WorldTaskset"]
