"""LUMINA's preset (section 4.3). Every ablation draws LUMINA's figures: figure 3 is
`horizons`, figures 4 and 5 are `arms`, figure 6a is `levelled` and figure 6b is `interventions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentgym.oracles import ARMS
from agentgym.training.evaluation import Paper, register_paper

# Arguments of `Ablation` for LUMINA's figure 3.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "lumina": {
        "worlds": ("ListWorld", "TreeWorld", "GridWorld"),
        "arms": ARMS,
        "horizons": (4, 8, 16, 32, 64),
        "seeds": 30,
    }
}

# Figure 6 compares policies at these success rates without oracles (section 4.4).
LEVELS: Mapping[str, float] = {"ListWorld": 0.3, "TreeWorld": 0.3, "GridWorld": 0.75}

register_paper(
    Paper("LUMINA", place=0, presets=PRESETS, sizes="turns of an optimal policy", levels=LEVELS)
)
