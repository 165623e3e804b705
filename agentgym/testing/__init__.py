"""Tools for world authors: laws (`agentgym check`), a fuzzer (`agentgym fuzz`) and an audit that
finds shortcuts (`agentgym audit`).
"""

from agentgym.testing.battery import MEASURES, Audit, AuditConfig, run_audit
from agentgym.testing.campaign import Campaign, Tally
from agentgym.testing.cases import Case, Finding, Report, all_ids
from agentgym.testing.conformance import LawResult, check_laws
from agentgym.testing.episode import play
from agentgym.testing.laws import BrokenLaw

__all__ = [
    "MEASURES",
    "Audit",
    "AuditConfig",
    "BrokenLaw",
    "Campaign",
    "Case",
    "Finding",
    "LawResult",
    "Report",
    "Tally",
    "all_ids",
    "check_laws",
    "play",
    "run_audit",
]
