"""What a policy is told: the oracles of LUMINA as wrappers, labels of step optimality, and scripted policies."""

from agentgym.oracles.control import ControlPolicy
from agentgym.oracles.examples import InContextExamples
from agentgym.oracles.hints import ARMS, HintOracle, HistoryOracle, PlanOracle, StateOracle
from agentgym.oracles.optimality import StepOptimality
from agentgym.oracles.policies import NoisyPolicy, OraclePolicy, RandomPolicy
from agentgym.oracles.teams import TeamPolicy

__all__ = [
    "ARMS",
    "ControlPolicy",
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
]
