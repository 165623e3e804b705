"""Games: worlds in which the players' moves change each other's situation, with exact values."""

from agentgym.assemble.registry import register

register(
    "agentgym.envs.games.commons_world:CommonsWorld",
    presets={
        "easy": {"rounds": 4, "limit": 4, "capacity": 16},
        "medium": {"rounds": 12},
        "hard": {"rounds": 30, "limit": 10, "capacity": 48, "opponent": "grudger"},
        "long": {"rounds": 100},
        "extreme": {"rounds": 400},
    },
    teams=("match",),
)
