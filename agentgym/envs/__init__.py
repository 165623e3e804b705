"""The worlds.

Each benchmark registers its worlds by path, so `import agentgym` does not import any world module.
"""

from agentgym.envs import agentlongbench, games, gsm_agent, loca, lore, lumina

__all__ = ["agentlongbench", "games", "gsm_agent", "loca", "lore", "lumina"]
