"""AgentLongBench: guess a hidden item, or answer questions about long logs (arXiv 2601.20730)."""

from collections.abc import Mapping
from typing import Any

from agentgym.assemble.registry import register

SPECIES = 1_025  # the number of species in the data set
SETTINGS = {
    "ki-c": {"knowledge": "intensive", "style": "concise"},
    "ki-v": {"knowledge": "intensive", "style": "verbose"},
    "kf-c": {"knowledge": "free", "style": "concise"},
    "kf-v": {"knowledge": "free", "style": "verbose"},
}
"""The benchmark's four settings, named after its folders."""
FULL: Mapping[str, Mapping[str, Any]] = {
    name: {**options, "source": "species", "items": SPECIES} for name, options in SETTINGS.items()
}
"""The settings with all items."""
CAPS: Mapping[str, int] = {"concise": 2_010, "verbose": 260}
"""The paper's maximum number of rounds per log, by style."""
TASKS: Mapping[str, str] = {
    "count_frequency_tool": "Count Frequency(Tool)",
    "find_duplicates_tool": "Find Duplicates(Tool)",
    "find_target_offsets_tool": "Find Target Offsets(Tool)",
    "count_correctness_env": "Count Correctness(Env)",
    "count_frequency_env": "Count Frequency(Env)",
    "find_round_largest_value_env": "Find Round with Largest Value(Env)",
    "weighted_summation_env": "Weighted Summation(Env)",
    "intersection": "Intersection",
}
"""The tasks, with their labels in the published rows."""

register(
    "agentgym.envs.agentlongbench.puzzle_world:PuzzleWorld",
    presets={
        "easy": {"items": 12, "hidden": 1},
        "medium": {"items": 200, "rounds": 10},
        "hard": {
            "items": 600,
            "hidden": 12,
            "rounds": 12,
            "style": "verbose",
            "source": "synthetic",
        },
        "long": {"items": 200, "rounds": 10, "hidden": 60},
        "extreme": {"items": 200, "rounds": 10, "hidden": 40, "puzzles": 8},
        **{name: {**FULL[name], "hidden": 1, "rounds": CAPS[FULL[name]["style"]]} for name in FULL},
    },
    teams=("host", "duel"),
)
register(
    "agentgym.envs.agentlongbench.qa_world:LongContextQA",
    presets={
        "easy": {"task": "count_correctness_env", "rounds": 6},
        "medium": {"task": "count_frequency_env", "rounds": 30},
        "hard": {"task": "intersection", "rounds": 30, "items": 120, "min_list": 20},
        "long": {"task": "count_frequency_env", "length": 32_768, **FULL["kf-c"], "min_list": 50},
        "extreme": {
            "task": "intersection",
            "length": 131_072,
            **FULL["kf-c"],
            "min_list": 50,
            "page": 1,
        },
        **{task.replace("_", "-"): {"task": task} for task in TASKS},
        **{
            name: {**options, "task": "intersection", "delivery": "task"}
            for name, options in SETTINGS.items()
        },
    },
)
