"""Oracles and scripted policies.

Oracles are wrappers that help a policy: the plan, state and history oracles of LUMINA, and solved
examples; `StepOptimality` labels its steps. Scripted policies play from the text of the chat alone,
as a model does: optimally, at random, with errors, with planted deficits, as a team.
"""

from agentgym.oracles.communication import CommunicationOracle
from agentgym.oracles.hints import (
    ARMS,
    HintOracle,
    HistoryOracle,
    PlanOracle,
    StateOracle,
    sort_arms,
)
from agentgym.oracles.optimality import InContextExamples, StepOptimality
from agentgym.oracles.policies import (
    ControlPolicy,
    Deficits,
    NoisyPolicy,
    OraclePolicy,
    RandomPolicy,
)
from agentgym.oracles.teams import TeamPolicy

__all__ = [
    "ARMS",
    "CommunicationOracle",
    "ControlPolicy",
    "Deficits",
    "HintOracle",
    "HistoryOracle",
    "InContextExamples",
    "NoisyPolicy",
    "OraclePolicy",
    "PlanOracle",
    "RandomPolicy",
    "StateOracle",
    "StepOptimality",
    "TeamPolicy",
    "sort_arms",
]
