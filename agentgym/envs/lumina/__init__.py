"""LUMINA: worlds whose optimal actions are known exactly (Rakhsha et al., section 4.1)."""

from agentgym.assemble.registry import register

register(
    "agentgym.envs.lumina.grid_world:GridWorld",
    presets={
        "easy": {"size": 3, "distance": 1},
        "medium": {"size": 12, "distance": 14},
        "hard": {"size": 30, "distance": 40, "hole_density": 0.4},
        "long": {"size": 120, "distance": 200, "hole_density": 0.1},
        "extreme": {"size": 1_100, "distance": 2_000, "hole_density": 0.005},
    },
)
register(
    "agentgym.envs.lumina.list_world:ListWorld",
    presets={
        "easy": {"items": 4, "removals": 1},
        "medium": {"items": 20, "removals": 8},
        "hard": {"items": 60, "removals": 30, "duplicates": True},
        "long": {"items": 400, "removals": 200},
        "extreme": {"items": 4_000, "removals": 2_000},
    },
)
register(
    "agentgym.envs.lumina.tree_world:TreeWorld",
    presets={
        "easy": {"nodes": 4},
        "medium": {"nodes": 30},
        "hard": {"nodes": 100, "target": "any"},
        "long": {"nodes": 500},
        "extreme": {"nodes": 4_000},
    },
)
