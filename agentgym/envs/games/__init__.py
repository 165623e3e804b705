"""Two-player games whose optimal moves are computed exactly."""

from agentgym.assemble.registry import register

register(
    "agentgym.envs.games.bargain_world:BargainWorld",
    presets={
        "easy": {"deals": 2, "offers": 2, "types": 2},
        "medium": {"deals": 10},
        "hard": {"deals": 15, "offers": 4, "types": 4, "demand": 50},
        "long": {"deals": 20, "types": 4},
        "extreme": {"deals": 30, "offers": 4, "types": 4},
    },
    teams=("match",),
)
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
register(
    "agentgym.envs.games.pursuit_world:PursuitWorld",
    presets={
        "easy": {"size": 4, "catches": 1},
        "medium": {"size": 6, "catches": 5},
        "hard": {"size": 8, "catches": 8, "wall_density": 0.2},
        "long": {"size": 6, "catches": 30},
        "extreme": {"size": 8, "catches": 100},
    },
    teams=("match",),
)
register(
    "agentgym.envs.games.race_world:RaceWorld",
    presets={
        "easy": {"moves": 3},
        "medium": {"moves": 15},
        "hard": {"moves": 30, "per_move": 4, "opponent": "farsighted"},
        "long": {"moves": 100},
        "extreme": {"moves": 400},
    },
    teams=("match",),
)
register(
    "agentgym.envs.games.signal_world:SignalWorld",
    presets={
        "easy": {"rounds": 2, "objects": 6, "kinds": 3},
        "medium": {"rounds": 12, "objects": 20, "kinds": 5},
        "hard": {"rounds": 20, "objects": 26, "kinds": 6},
        "long": {"rounds": 60, "objects": 20, "kinds": 5},
        "extreme": {"rounds": 200, "objects": 26, "kinds": 6},
    },
    teams=("match",),
)
