"""Test the positive control of the context strategies, as shown in docs/context.md."""

from __future__ import annotations

import pytest

from benchmarks.context_control import BUDGET, NEEDS, play


@pytest.mark.parametrize(
    ("names", "score"),
    [
        ((), 0.0),
        (("clear_results", "awareness"), 0.0),
        (("clear_results", "memory"), 1.0),
        (("compaction",), 1.0),
        (("programmatic",), 1.0),
        (("clear_thinking", "clear_results", "compaction", "awareness", "memory"), 1.0),
    ],
)
def test_only_a_strategy_that_keeps_what_is_needed_succeeds(
    names: tuple[str, ...], score: float
) -> None:
    reached, _, records = play(*names)
    assert reached == score
    assert max(record.tokens for record in records) <= BUDGET.usable


@pytest.mark.parametrize("name", list(NEEDS))
def test_an_agent_that_needs_a_strategy_succeeds_with_it_alone(name: str) -> None:
    policy, pages, others = NEEDS[name]
    with_it, *_ = play(name, *others, policy=policy, pages=pages)
    without, *_ = play(*others, policy=policy, pages=pages)
    assert (with_it, without) == (1.0, 0.0)
