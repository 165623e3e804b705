"""Budgets of endpoint policies, in Python and on the command line."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import agentgym
from agentgym.cli import app
from agentgym.training.rollout import (
    BudgetError,
    EndpointConfig,
    collect,
)
from tests.training.rollout.endpoint_kinds import (
    ASK,
    KINDS,
    Kind,
    environment,  # noqa: F401 - a fixture
    kinds,
    playing,
)
from tests.training.rollout.endpoint_server import Answer, serving

HARD = {"items": 4, "removals": 2, "max_failed_rounds": 1}


PRICES: dict[str, Any] = {"prompt_price": 1_000.0, "reply_price": 0.0}


@kinds
@pytest.mark.parametrize("limit", [0.0, 0.005, 0.01, 0.035, 0.1])
def test_no_request_is_sent_beyond_the_budget(kind: Kind, limit: float, tmp_path: Path) -> None:
    # Each request costs 0.01, and all arrive at once.
    with playing(kind, kind.said("a"), max_cost=limit, **PRICES) as (policy, server):
        with pytest.raises(BudgetError, match=r"the budget is spent: .*; raise max_cost"):
            policy([ASK] * 40)
        with pytest.raises(BudgetError):
            asyncio.run(policy.areply(ASK))
        # The first request is the only one whose cost is unknown.
        assert len(server.requests) == (max(int(limit / 0.01 + 1e-9), 1) if limit else 0)


@kinds
def test_cached_replies_cost_nothing(kind: Kind, tmp_path: Path) -> None:
    with serving(kind.said("a"), kind.path) as server:
        for limit in (0.03, 0.0):
            options = {"max_cost": limit, "cache": str(tmp_path), **PRICES}
            with closing(kind.policy(kind.url(server), **options)) as policy:
                assert len(policy([ASK] * 3)) == 3
    assert len(server.requests) == 3


def test_a_ledger_sums_over_runs(tmp_path: Path) -> None:
    kind = KINDS["chat"]
    options = {"ledger": str(tmp_path / "new" / "ledger"), **PRICES}
    with serving(kind.said("a"), kind.path) as server:
        for limit, total in ((0.025, 2), (0.025, 2), (0.045, 4)):
            with (
                closing(kind.policy(server.url, max_cost=limit, **options)) as policy,
                pytest.raises(BudgetError),
            ):
                policy([ASK] * 9)
            assert len(server.requests) == total


def test_a_budget_needs_prices_and_counts() -> None:
    with pytest.raises(ValueError, match="max_cost 1 requires prices"):
        EndpointConfig("m", max_cost=1.0)
    with (
        playing(KINDS["chat"], Answer({"content": "a"}), max_cost=1.0, **PRICES) as (
            policy,
            server,
        ),
        pytest.raises(BudgetError, match="the server reports no token counts"),
    ):
        policy([ASK] * 5)
    assert len(server.requests) == 1


@pytest.mark.parametrize("engine", ["lockstep", "threads", "asyncio", "processes"])
def test_a_spent_budget_stops_the_run_and_a_larger_one_resumes(engine: str, tmp_path: Path) -> None:
    kind = KINDS["chat"]
    options: dict[str, Any] = {"engine": engine, "replicate": False, "log": tmp_path / "log.jsonl"}
    spec = agentgym.spec("ListWorld", max_failed_rounds=2)
    with serving(kind.said("what?"), kind.path) as server:
        with closing(kind.policy(server.url, max_cost=0.05, **PRICES)) as policy:
            with pytest.raises(RuntimeError, match="the budget is spent"):
                list(collect(policy, spec, range(6), 2, **options))
            assert len(server.requests) == 5
        with closing(kind.policy(server.url)) as policy:
            played = list(collect(policy, spec, range(6), 2, **options))
    assert sorted(trajectory.seed for trajectory in played) == list(range(6))
    assert not any(trajectory.failure for trajectory in played)


@pytest.mark.rotation
@kinds
def test_the_command_line_sends_records_and_stops(kind: Kind, tmp_path: Path) -> None:
    out = tmp_path / "study"
    line = ["ablate", "--world", "ListWorld", "--oracles", "none,P", "--horizons", "2"]
    line += ["--episodes", "2", "--workers", "1", "--out", str(out), "--price", "1000,0"]
    line += ["--temperature", "0.7", "--max-new-tokens", "64"]
    with serving(kind.said("what?", usage=(5_000, 5)), kind.path) as server:
        name = f"{kind.factory}:model=m:base_url={kind.url(server)}"
        line += ["--policy", f"m={name}", "--endpoint", f"cache={tmp_path / 'cache'}"]
        stopped = CliRunner().invoke(app, [*line, "--max-cost", "12"])
        assert (stopped.exit_code, len(server.requests)) == (1, 2), stopped.output
        assert stopped.stderr.startswith("the budget is exhausted; rerun with a larger one")
        done = CliRunner().invoke(app, [*line, "--max-cost", "1000", "--endpoint", "timeout=9"])
        assert done.exit_code == 0, done.output
        total = len(server.requests)
        again = [str(tmp_path / "again") if part == str(out) else part for part in line]
        assert CliRunner().invoke(app, again).exit_code == 0
        assert len(server.requests) == total
        logs = [(folder / "results.jsonl").read_bytes() for folder in (out, tmp_path / "again")]
    assert logs[0] == logs[1]
    study = json.loads((out / "ablation.json").read_text())
    assert study["runs"][0]["policy"]["model"]["temperature"] == 0.7
    record = study["policies"]["m"]
    for sent in server.requests:
        for option, place in kind.names.items():
            default = False if option == "logprobs" else None
            assert sent.get(place, default) == record[option]
    assert (record["temperature"], record["max_tokens"]) == (0.7, 64)
