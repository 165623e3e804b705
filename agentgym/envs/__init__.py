"""The worlds.

Each benchmark registers its worlds by path, so `import agentgym` imports no world module.
"""

from agentgym.envs import agentlongbench, gsm_agent, loca, lore, lumina

__all__ = ["agentlongbench", "gsm_agent", "loca", "lore", "lumina"]
