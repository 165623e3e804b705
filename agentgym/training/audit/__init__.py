"""Adversaries of worlds that need no knowledge of them: a fuzzer that plays hostile, mutated and
random replies in any registered world, and holds every step to the laws that all worlds obey; and a
battery of shortcuts, which must not earn the reward of a task without doing it. The laws of whole
worlds are in `laws`.
"""

from agentgym.training.audit.battery import MEASURES, Audit, AuditConfig, run_audit
from agentgym.training.audit.campaign import Campaign, Tally, minimize, replay, replay_findings
from agentgym.training.audit.cases import Case, Finding, Report, all_ids, read_findings
from agentgym.training.audit.conformance import LawResult, check_laws
from agentgym.training.audit.episode import Monitor, play
from agentgym.training.audit.laws import BrokenLaw
from agentgym.training.audit.resources import ResourceLedger

__all__ = [
    "MEASURES",
    "Audit",
    "AuditConfig",
    "BrokenLaw",
    "Campaign",
    "Case",
    "Finding",
    "LawResult",
    "Monitor",
    "Report",
    "ResourceLedger",
    "Tally",
    "all_ids",
    "check_laws",
    "minimize",
    "play",
    "read_findings",
    "replay",
    "replay_findings",
    "run_audit",
]
