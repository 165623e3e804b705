from __future__ import annotations

import pytest

from agentgym import worlds
from agentgym.testing import AuditConfig, run_audit
from tests.sampling import few

IDS = [entry.id for entry in worlds()]


@pytest.mark.rotation(env_id=IDS)
def test_no_shortcut_earns_more_than_chance(env_id: str) -> None:
    # A few seeds are enough to detect a shortcut that scores far above chance.
    seeds = len(few(env_id, 20))
    audit = run_audit(
        AuditConfig(env_id, seeds=seeds, demonstrations=max(6, seeds // 2), splits=False)
    )
    assert [row.name for row in audit.leaks] == []
    assert {row.name: row.interval.value for row in audit.rows}["oracle"] == 1.0
