"""The published claim_done's call."""

from __future__ import annotations

from agentgym.office.claim_done import ClaimDone
from tests.office.published import Call, Difference

prepared = ClaimDone
CALLS = [Call("claim_done", {}, r"[^\n]+")]
DIFFERENCES: dict[str, Difference] = {}
