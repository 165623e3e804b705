"""GSM-Agent: maths problems with premises in a searchable database (Zhu et al., sections 3, 4)."""

from collections.abc import Mapping
from typing import Any

from agentgym.assemble.registry import register

_RULE = {"max_failed_rounds": 3}
_FULL = {"tasks": 7_000, "decoys": 0, "near_duplicates": 0.0}  # the sizes used in the paper
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "easy": {"premises": 2, "tasks": 100},
    "hard": {"premises": 10, "tasks": 300, "anonymised": 0.6, "distractors": 1.0},
    "long": {"premises": 40, "tasks": 60, "max_rounds": 200},
    "small": {**_FULL, "size": "small", **_RULE},
    "medium": {**_FULL, "size": "medium", **_RULE},
    "full": {**_FULL, **_RULE},
    "static": {"setting": "static"},
    "think": {"tools": "think"},
    "explore": {"tools": "explore"},
    "revisit": {"tools": "revisit"},
    "explore_revisit": {"tools": "explore_revisit"},
    "few_shot": {"prompt": "few_shot"},
    "cot": {"prompt": "cot"},
    "scaling": {"min_rounds": 10},
}
"""The paper's database sizes, tool sets and prompts."""

register("agentgym.envs.gsm_agent.search_world:SearchWorld", presets=PRESETS)
