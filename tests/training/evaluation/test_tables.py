from __future__ import annotations

from dataclasses import fields

from agentgym import ARMS
from agentgym.training.evaluation import Result, ablation_tables
from agentgym.training.evaluation.tables import p_value
from agentgym.training.rollout import Usage
from tests.training.evaluation.studies import result


def row(seed: int, arm: str, success: float, context: str = "none", **more: object) -> Result:
    usage = Usage("cl100k_base", *[0] * (len(fields(Usage)) - 1)) if context != "none" else None
    return result(seed, arm, success, context=context, usage=usage, **more)


def test_p_values_are_corrected_for_all_effects_of_the_table() -> None:
    rows = [row(seed, arm, float("P" in arm or seed % 2)) for seed in range(24) for arm in ARMS]
    *_, (title, header, lines) = ablation_tables(rows)
    assert "p corrected for the 6 effects of this table" in title
    assert header == [
        *("world", "intervention", "pairs", "success rate", "p (Holm)", "step accuracy"),
        *("p (Holm)", "missing", "over window", "unreadable"),
    ]
    by_name = {line[1]: line for line in lines}
    assert by_name["plan"][2:5:2] == ["72", "p < 0.001"]
    assert by_name["history"][4] == by_name["history"][6] == "p = 1.000"


def test_right_hints_are_compared_with_what_stands_in_their_place() -> None:
    solved = {"": 12, "SP": 20, "P_S_": 12, "P0S": 4, "S0.5": 9, "PH": 1}
    rows = [
        row(seed, arm, float(seed < count)) for arm, count in solved.items() for seed in range(24)
    ]
    *_, (title, _, lines) = ablation_tables(rows)
    assert title.startswith("Right hints against others")
    assert "p corrected for the 4 effects of this table" in title
    by_name = {line[1]: line[3].partition(" ")[0] for line in lines}
    assert by_name == {"SP vs P0S": "+66.7", "SP vs P_S_": "+33.3"}, (
        "S0.5 has no S to be held against"
    )
    order = [
        line[0]
        for line in next(each for each in ablation_tables(rows) if "ListWorld" in each[0])[2]
    ]
    assert order == ["none", "SP", "P0S", "PH", "P_S_", "S0.5"]


def test_few_instances_are_warned_of() -> None:
    few = [row(seed, arm, 1.0) for seed in range(19) for arm in ARMS]
    assert all("WARNING: 19 instances a cell" in title for title, *_ in ablation_tables(few))
    enough = [*few, *(row(19, arm, 1.0) for arm in ARMS)]
    assert not any("WARNING" in title for title, *_ in ablation_tables(enough))


def test_arms_and_contexts_have_cells() -> None:
    solved = {("", "none"): 4, ("S", "none"): 16, ("", "memory"): 12, ("S", "memory"): 13}
    rows = [
        row(seed, arm, float(seed < count), context)
        for (arm, context), count in solved.items()
        for seed in range(20)
    ]
    tables = {title: (header, lines) for title, header, lines in ablation_tables(rows)}
    (title,) = (title for title in tables if "arms x contexts" in title)
    header, lines = tables[title]
    assert header == ["arm", "none", "memory", "missing", "over window", "unreadable"]
    assert lines[0][:2] == ["none", "20.0 [8.1, 41.6]"]
    assert lines[1][2].startswith("65.0 [")


def test_p_values_are_written_as_papers_do() -> None:
    assert (p_value(0.0002), p_value(0.0124)) == ("p < 0.001", "p = 0.012")
