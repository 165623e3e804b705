"""LORE: worlds in which documents lead to other documents (TaskWeaver, section 3, appendix B)."""

from collections.abc import Mapping
from typing import Any

from agentgym.assemble.registry import register

GRID = (1, 2, 5, 10, 20, 30, 60, 90, 120, 180, 250, 350)
"""Operation counts over the paper's range, 1 to 350 (section 4.1 does not list them)."""

PAPER: Mapping[str, Any] = {
    "max_calls_per_turn": 16,
    "strict_ids": False,
    "rereads": True,
    "budget_by": "reads",
    "budget_factor": 2.0,
    "budget_slack": 10,
}
"""The paper's rules: unlimited rereads and several documents per reply. An optimiser then learns to
guess ids.
"""
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "easy": {"operations": 1},
    "medium": {"operations": 10},
    "hard": {"operations": 30, "difficulty": "hard"},
    "long": {"operations": 120},
    "extreme": {"operations": 350, "difficulty": "hard"},
    "paper": PAPER,
    **{f"n{count}": {"operations": count} for count in GRID},
}
"""Presets of each LORE world, with operation counts in the benchmark's range."""

_WITHOUT_DISTRACTORS = {**PRESETS, "paper": {**PAPER, "distractor_documents": 0.0}}

register("agentgym.envs.lore.code_world:CodeWorld", presets=PRESETS)
register("agentgym.envs.lore.document_world:DocumentWorld", presets=_WITHOUT_DISTRACTORS)
register("agentgym.envs.lore.multimodal_world:MultimodalWorld", presets=_WITHOUT_DISTRACTORS)
