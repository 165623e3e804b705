"""Scoring of trajectories: ablations, confidence intervals, tables, figures and the report.

Each paper in `papers` registers its benchmark with `register_paper`. Figures require the extra
`cli`.
"""

from typing import TYPE_CHECKING

from agentgym.training.evaluation.ablation import Ablation, Cell
from agentgym.training.evaluation.comparison import (
    comparison_tables,
    find_levels,
    level_horizons,
    load_folders,
    pass_at,
)
from agentgym.training.evaluation.instances import instance_key
from agentgym.training.evaluation.intervals import differences, effects, summarize
from agentgym.training.evaluation.missing import Results, as_results
from agentgym.training.evaluation.price import Price
from agentgym.training.evaluation.registry import Command, Paper, papers, presets, register_paper
from agentgym.training.evaluation.report import ablation_tables, write_report
from agentgym.training.evaluation.scoring import (
    Result,
    describe_failures,
    evaluate,
    group_by,
    is_unreadable,
    ordered_arms,
    ordered_contexts,
    played,
    score,
)
from agentgym.training.evaluation.statistics import Interval, holm, wilson
from agentgym.training.evaluation.study import prepare_ablation, run_ablation
from agentgym.training.evaluation.study_folder import TRAJECTORIES, load_results, log_of
from agentgym.training.evaluation.tables import (
    QUALITY,
    Table,
    arm_label,
    cell,
    count_played,
    few_instances,
    percent,
    quality,
    to_markdown,
)
from agentgym.training.extras import lazy_exports

if TYPE_CHECKING:
    from agentgym.training.evaluation import drawing, plots

__all__ = [
    "QUALITY",
    "TRAJECTORIES",
    "Ablation",
    "Cell",
    "Command",
    "Interval",
    "Paper",
    "Price",
    "Result",
    "Results",
    "Table",
    "ablation_tables",
    "arm_label",
    "as_results",
    "cell",
    "comparison_tables",
    "count_played",
    "describe_failures",
    "differences",
    "drawing",
    "effects",
    "evaluate",
    "few_instances",
    "find_levels",
    "group_by",
    "holm",
    "instance_key",
    "is_unreadable",
    "level_horizons",
    "load_folders",
    "load_results",
    "log_of",
    "ordered_arms",
    "ordered_contexts",
    "papers",
    "pass_at",
    "percent",
    "played",
    "plots",
    "prepare_ablation",
    "presets",
    "quality",
    "register_paper",
    "run_ablation",
    "score",
    "summarize",
    "to_markdown",
    "wilson",
    "write_report",
]

__getattr__ = lazy_exports(__name__, {"drawing": ("cli", "drawing"), "plots": ("cli", "plots")})
