"""Oracles and scripted policies.

Oracles are wrappers that help a policy: LUMINA's plan, state and history oracles, and solved
examples. `StepOptimality` labels steps. Like models, scripted policies see only the chat.
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
