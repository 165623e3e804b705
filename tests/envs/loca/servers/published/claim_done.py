"""The call of claim_done."""

from __future__ import annotations

from agentgym.envs.loca.servers.claim_done import ClaimDone
from tests.envs.loca.servers.published import Call, Difference

prepared = ClaimDone
CALLS = [Call("claim_done", {}, r"[^\n]+")]
DIFFERENCES: dict[str, Difference] = {}
