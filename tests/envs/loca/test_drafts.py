from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import agentgym
from agentgym.envs.loca import drafts
from agentgym.envs.loca.tasks.payable_invoice_checker import PayableInvoiceChecker


def counting(
    monkeypatch: pytest.MonkeyPatch, counts: Counter[str], owner: Any, name: str
) -> Callable[..., Any]:
    original: Callable[..., Any] = getattr(owner, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        counts[name] += 1
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, counted)
    return original


def test_only_the_accepted_draft_has_its_plan_made(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    for name in ("_draw_draft", "_play", "fingerprint_protected"):
        counting(monkeypatch, counts, drafts, name)
    # A wrong first guess forces a second draw.
    monkeypatch.setattr(PayableInvoiceChecker, "tokens_per_unit", 1_300.0)
    drafts.draw_state.cache_clear()
    env = agentgym.make("PayableInvoiceChecker", length=32_000)
    env.reset(seed=0)
    env.close()
    drafts.draw_state.cache_clear()
    assert counts["_draw_draft"] > 1
    assert counts["_play"] == counts["fingerprint_protected"] == 1
