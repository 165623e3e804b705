from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agentgym import Chat, Reply
from agentgym.assemble.adversaries import adversaries, register_adversary
from agentgym.testing import Audit, AuditConfig, run_audit
from agentgym.testing.battery import CAP, Ceiling, answers_of, score_interval
from agentgym.text.messages import ToolCall
from agentgym.text.parsing import render
from agentgym.text.tools import Tool
from tests.testing import leaky_worlds
from tests.testing.leaky_worlds import LEAKY

# The row that must report a leak in each toy world; other rows may report leaks too.
FINDERS = {
    "BudgetTells": "prompt alone: rules and features",
    "LengthTells": "prompt alone: rules and features",
    "ConstantAnswer": "most frequent answers of other episodes",
    "FirstOption": "first option",
    "SecondLastOption": "prompt alone: rules and features",
    "LongestOption": "longest option",
    "LastPageSuffices": "answer after the last page of list_notes",
    "FirstPageSuffices": "answer after the first call of other episodes",
    "MetadataMarks": "answer after the first call of other episodes",
    "RepeatedIds": "ids of other seeds",
    "SameSteps": "ids of other seeds",
    "AnyEnd": "at once answer(name='')",
}


def audited(name: str, **options: Any) -> Audit:
    return run_audit(AuditConfig(name, seeds=60, demonstrations=100, **options))


@pytest.mark.rotation(name=[world.__name__ for world in LEAKY])
def test_a_planted_leak_is_found(name: str) -> None:
    audit = audited(name)
    assert audit.verdict == "leak"
    assert FINDERS[name] in {row.name for row in audit.leaks}


@pytest.mark.rotation
def test_a_clean_world_passes() -> None:
    audit = audited("CleanNotes")
    assert audit.leaks == []
    baselines = {row.name: row.interval.value for row in audit.rows if row.kind == "baseline"}
    assert baselines["oracle"] == 1.0
    assert audit.ceiling.chance == 1 / leaky_worlds.SIZE
    assert audit.ceiling.source == "enumerated"


def test_a_leak_of_one_kind_is_told_from_the_others() -> None:
    """Only the rows that match the kind of leak report the leak."""
    audit = run_audit(AuditConfig("AnyEnd", seeds=40, demonstrations=20))
    assert [row.name for row in audit.leaks] == ["at once answer(name='')"]


def test_the_same_settings_give_the_same_table() -> None:
    config = AuditConfig("FirstOption", seeds=10, demonstrations=12)
    assert run_audit(config) == run_audit(config)


def test_an_adversary_of_a_world_is_played_in_it_and_in_those_derived_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentgym.assemble.adversaries._adversaries", {})

    def amber(env_id: str) -> Any:
        def policy(chats: Sequence[Chat]) -> list[Reply]:
            return [Reply(render(ToolCall("answer", {"name": "amber"}))) for _ in chats]

        return policy

    register_adversary(leaky_worlds.CleanNotes, "amber at once", amber)
    assert list(adversaries(leaky_worlds.ConstantAnswer)) == ["amber at once"]
    audit = run_audit(AuditConfig("ConstantAnswer", seeds=30, demonstrations=8))
    assert "amber at once" in {row.name for row in audit.leaks}


def test_a_world_that_nobody_solves_cannot_be_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaky_worlds.CleanNotes, "score", lambda self: 0.0)
    with pytest.raises(ValueError, match="CleanNotes has no demonstration: implement"):
        run_audit(AuditConfig("CleanNotes", seeds=2, demonstrations=4))


def test_a_world_without_optimal_calls_learns_from_lucky_episodes() -> None:
    audit = run_audit(AuditConfig("GuessOnce", seeds=60, demonstrations=20))
    assert audit.leaks == []
    assert "oracle" not in {row.name for row in audit.rows}
    assert audit.ceiling.chance == 0.25


@pytest.mark.parametrize(
    ("schemas", "count"),
    [
        ([{"type": "boolean"}], 2),
        ([{"enum": [1, 2, 3]}, {"type": "integer", "minimum": 1, "maximum": 4}], 12),
        ([{"type": "boolean"}, {"type": "string"}], 0),
        ([], 0),
    ],
)
def test_the_answers_of_a_tool_are_counted(schemas: list[Any], count: int) -> None:
    properties = {f"p{number}": schema for number, schema in enumerate(schemas)}
    assert answers_of(Tool("answer", "", {"properties": properties})) == count


@pytest.mark.parametrize(
    ("chance", "scores", "verdict"),
    [
        (0.0, [0] * 200, "holds"),
        (0.0, [0] * 30, "undecided"),
        (0.0, [0] * 60, "holds"),
        (0.0, [1] * 40 + [0] * 160, "leak"),
        (0.0, [1] * 20 + [0] * 180, "undecided"),
        (0.5, [1] * 100 + [0] * 100, "holds"),
        (0.5, [1] * 130 + [0] * 70, "leak"),
        (0.0, [0.5] * 100 + [0] * 100, "leak"),
    ],
)
def test_verdicts(chance: float, scores: list[float], verdict: str) -> None:
    ceiling = Ceiling(chance, "stated")
    assert ceiling.value == max(CAP, chance)
    assert ceiling.verdict(score_interval(scores)) == verdict


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"seeds must be an integer in \[1, 100000\], got 0"):
        AuditConfig("ListWorld", seeds=0)
    with pytest.raises(ValueError, match="there is no world 'NoWorld'"):
        run_audit(AuditConfig("NoWorld"))
