"""Adversaries of worlds that need no knowledge of them: a fuzzer that plays hostile, mutated and
random replies in any registered world, and holds every step to the laws that all worlds obey; and a
battery of shortcuts, which must not earn the reward of a task without doing it. The laws of whole
worlds are in `laws`.
"""

from agentgym.testing.battery import MEASURES, Audit, AuditConfig, run_audit
from agentgym.testing.campaign import Campaign, Tally, minimize, replay, replay_findings
from agentgym.testing.cases import Case, Finding, Report, all_ids, read_findings
from agentgym.testing.conformance import LawResult, check_laws
from agentgym.testing.episode import Monitor, play
from agentgym.testing.laws import BrokenLaw
from agentgym.testing.resources import ResourceLedger

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
