from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from matplotlib.text import Text
from typer.testing import CliRunner

from agentgym import Chat, Reply
from agentgym.cli import app
from agentgym.training.evaluation import (
    Ablation,
    Result,
    Results,
    ablation_tables,
    comparison_tables,
    differences,
    drawing,
    effects,
    load_results,
    log_of,
    plots,
    run_ablation,
    summarize,
)
from agentgym.training.evaluation.tables import percent
from agentgym.training.papers.loca import lengths_figure, loca_tables
from agentgym.training.papers.lore import lore_figure, lore_tables
from agentgym.training.rollout import Trajectory
from tests.training.evaluation.studies import result, small

ARMS = ("", "S", "P", "SP")


def study(policy: str = "noisy:p=0.1", **changes: Any) -> Ablation:
    return small(policy, **{"arms": ARMS, "horizons": (4,), "seeds": 6, **changes})


@pytest.fixture(autouse=True)
def _unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the rendering of figures, whose texts the tests read from the figures themselves."""
    monkeypatch.setattr(drawing, "save", lambda figure, path: [path])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    out = tmp_path / "run"
    out.mkdir()
    (out / "trajectories.jsonl").touch()
    run_ablation(study(), out, 1)
    return out


def rewrite(out: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    path = out / "trajectories.jsonl"
    changed = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(data) + "\n" for data in changed if data is not None))


def is_hard(data: dict[str, Any]) -> bool:
    return data["labels"]["arm"] == "P" and not data["steps"][-1]["info"]["success"]


def lost(data: dict[str, Any]) -> dict[str, Any] | None:
    return {**data, "failure": "PolicyError: busy"} if is_hard(data) else data


def invalid(data: dict[str, Any]) -> dict[str, Any] | None:
    if is_hard(data):
        data["steps"][-1]["info"]["detail"]["invalid"] = "a host limit"
        data["failure"] = "a host limit"
    return data


def deleted(data: dict[str, Any]) -> dict[str, Any] | None:
    return None if is_hard(data) else data


DAMAGES = {"lost": lost, "invalid": invalid, "not played": deleted}


@pytest.mark.parametrize("cause", DAMAGES)
def test_every_report_counts_what_an_arm_lacks(run: Path, tmp_path: Path, cause: str) -> None:
    hard = {row.seed for row in load_results(run) if row.arm == "P" and not row.success}
    assert hard
    rewrite(run, DAMAGES[cause])
    results = load_results(run)
    assert {(row.arm, row.seed, row.missing) for row in results.missing} == {
        ("P", seed, cause) for seed in hard
    }
    said = f"{len(hard)} {cause}"
    _, header, lines = next(t for t in ablation_tables(results) if t[0].startswith("ListWorld:"))
    missing = {line[0]: line[header.index("missing")] for line in lines}
    assert missing == {"none": "0", "S": "0", "P": said, "SP": "0"}
    rate = next(line for line in lines if line[0] == "P")[header.index("success rate")]
    assert rate.endswith(f" to 100.0 with the {len(hard)} missing")
    out = tmp_path / "both"
    for line in (["score", str(run)], ["compare", str(run), f"--out={out}"]):
        shown = CliRunner().invoke(app, line)
        assert shown.exit_code == 0, shown.output
        assert f"24 episodes were expected and {len(hard)} are missing ({said})" in " ".join(
            shown.output.split()
        )
    assert said in (run / "summary.md").read_text()
    assert any(f"lacks {len(hard)} episodes" in each for each in texts(plots.arms_figure(results)))


def test_results_without_settings_expect_the_union_of_seeds(run: Path) -> None:
    rewrite(run, deleted)
    known = load_results(run)
    for form in (list(known), known):
        _, header, lines = next(t for t in ablation_tables(form) if t[0].startswith("ListWorld:"))
        assert [line[header.index("missing")][0] for line in lines] == [
            *"00",
            str(len(known.missing)),
            "0",
        ]
    (run / "ablation.json").unlink()
    assert [(r.arm, r.seed) for r in load_results(run).missing] == [
        (r.arm, r.seed) for r in known.missing
    ]


def test_a_study_that_grew_unevenly_lacks_nothing(tmp_path: Path) -> None:
    run_ablation(study(arms=("", "S"), seeds=2), tmp_path, 1)
    rows = run_ablation(study(arms=("P",), seeds=4), tmp_path, 1)
    assert (len(rows), rows.missing, rows.notes()) == (8, [], [])


def texts(figure: Any) -> list[str]:
    found = [" ".join(text.get_text().split()) for text in figure.findobj(Text)]
    return [text for text in found if text]


row = partial(result, horizon=8, replies=4, policy="a")


LORE = {
    **dict.fromkeys(("operations", "height", "lost_leads", "reads", "redundant_reads"), 3),
    **dict.fromkeys(("guessed_reads", "premature_halt", "synthesis_error"), 0),
}
LOCA = {"report": {"description_tokens": 9}, "axis": "length", "horizon": 8_000}
TABLES: dict[str, tuple[Callable[[Sequence[Result]], list[Any]], dict[str, Any]]] = {
    "ablation": (ablation_tables, {}),
    "comparison": (comparison_tables, {}),
    "lore": (lore_tables, {"report": LORE}),
    "loca": (loca_tables, LOCA),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_the_missing_and_the_unreadable(name: str) -> None:
    build, more = TABLES[name]
    rows = [
        row(
            seed,
            arm,
            float(seed % 2),
            policy=policy,
            horizon=more.get("horizon", size),
            unreadable=1,
            **{key: value for key, value in more.items() if key != "horizon"},
        )
        for policy in ("a", "b")
        for size in (4, 8)
        for arm in ("", "S", "S_")
        for seed in range(12)
        if (arm, seed) != ("S", 3)
    ]
    for title, header, lines in build(rows):
        if title == "Notes":
            continue
        names = {*header, *(line[0] for line in lines)}
        assert {"missing", "unreadable"} <= names, title
        cells = {cell for line in lines for cell in line}
        # No episodes of the arm `none`, which determines the sizes, are missing.
        complete = "Sizes at" in title or "arm none" in title or "arm S_" in title
        assert complete or any("not played" in cell for cell in cells), title
        assert "25.0" in cells, "each episode has one unreadable reply of four"


FIGURES: list[tuple[Callable[[Sequence[Result]], Any], dict[str, Any]]] = [
    (plots.arms_figure, {}),
    (plots.levelled_figure, {}),
    (plots.horizons_figure, {}),
    (plots.interventions_figure, {}),
    (plots.contexts_figure, {}),
    (lore_figure, {"report": LORE}),
    (lengths_figure, LOCA),
]


@pytest.mark.parametrize(("draw", "more"), FIGURES)
def test_every_figure_names_the_missing(draw: Callable[..., Any], more: dict[str, Any]) -> None:
    rows = [row(seed, arm, **more) for arm in ("", "S") for seed in range(9)]
    (caption,) = (text for text in texts(draw(rows[:-2])) if "n = " in text)
    assert "ListWorld (state) lacks 2 episodes" in caption
    assert "lacks" not in " ".join(texts(draw(rows)))


@pytest.mark.parametrize("metric", ["success", "step_accuracy"])
def test_bounds_hold_what_the_whole_study_shows_whatever_is_missing(metric: str) -> None:
    rng = Random(3)
    marks = []
    for _ in range(40):
        rows = []
        for seed, arm, size in product(range(8), ARMS, (4, 8)):
            rows.append(row(seed, arm, float(rng.random() < 0.5), horizon=size))
        lost = set(rng.sample(range(len(rows)), rng.randrange(40)))
        kept = [each for k, each in enumerate(rows) if k not in lost]
        gone = [replace(rows[k], missing="lost") for k in lost]
        whole, bare = summarize(rows, ("arm",), metric), summarize(kept, ("arm",), metric)
        for key, rate in summarize(Results(kept, gone), ("arm",), metric).items():
            assert rate == bare[key]
            inside = rate.low <= rate.worst <= rate.best <= rate.high
            if rate.missing:
                assert rate.worst - 1e-9 <= whole[key].value <= rate.best + 1e-9
                assert ("missing" in percent(rate)) != inside
                marks.append(inside)
            else:
                assert "missing" not in percent(rate)
    assert {True, False} == set(marks)


def test_differences_state_their_complete_pairs() -> None:
    rows = [row(seed, arm) for arm in ("", "S") for seed in range(10)]
    gone = [replace(each, missing="lost") for each in (rows[2], rows[13], rows[17])]
    played = [each for k, each in enumerate(rows) if k not in (2, 13, 17)]
    assert differences(Results(played, gone), (), "success")["S",].count == 7
    assert effects(Results(played, gone), (), "success")["S",].count == 7
    title, header, lines = ablation_tables(Results(played, gone))[-1]
    assert title.startswith("Effect of each intervention")
    assert lines[0][header.index("pairs")] == "7"


OVERFLOWS: list[Callable[[dict[str, Any]], None]] = [
    lambda data: data["steps"][-1]["info"]["detail"].update(ended="over_window"),
    lambda data: data["steps"][-1]["info"].update(reason="over_window"),
    lambda data: data["steps"][-1]["info"]["detail"].update(ended="context_overflow"),
    lambda data: data.update(failure="ContextLengthError: 5,000 tokens"),
    lambda data: data.update(failure="over_window", steps=[], last=data["steps"][0]),
]


@pytest.mark.parametrize("change", OVERFLOWS)
def test_an_episode_over_the_window_is_a_failure_and_said(
    run: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    def outgrow(data: dict[str, Any]) -> dict[str, Any]:
        if data["labels"]["arm"] == "P":
            change(data)
        return data

    rewrite(run, outgrow)
    rows = load_results(run)
    assert (len(rows), rows.missing) == (24, [])
    over = [each for each in rows if each.over_window]
    assert {(each.arm, each.success) for each in over} == {("P", 0.0)}
    _, header, lines = next(t for t in ablation_tables(rows) if t[0].startswith("ListWorld:"))
    assert [line[header.index("over window")] for line in lines] == ["0", "0", "6", "0"]
    assert any("6 episodes outgrew the model's context window" in note for note in rows.notes())
    run_ablation(study(), run, 1)
    assert len(list(log_of(run))) == 24, "such an episode is not played again"


@pytest.mark.parametrize(
    ("context", "name"),
    [
        ("clear_results:trigger=90%", "ClearToolResults"),
        ("compaction:trigger=90%", "Compaction"),
        ("clear_thinking", "ClearThinking"),
        ("memory+compaction:trigger=90%", "Compaction"),
    ],
)
def test_a_strategy_that_never_acted_is_flagged(tmp_path: Path, context: str, name: str) -> None:
    ablation = study("oracle", arms=("",), contexts=("none", context), window=100_000)
    rows = run_ablation(ablation, tmp_path, 1)
    (note,) = rows.notes()
    assert note.startswith(f"{name} never acted")
    assert f"context {context}, size 4 (6)" in note
    _, _, lines = next(t for t in ablation_tables(rows) if "context strategies" in t[0])
    assert [line[0] for line in lines] == ["none", f"{context} ({name} never acted)"]
    shown = CliRunner().invoke(app, ["score", str(tmp_path)])
    assert f"{name} never acted" in " ".join(shown.output.split())


@pytest.mark.parametrize("text", ["", "hm", "```python\nfoo(\n```", '<tool_call>{"a"</tool_call>'])
def test_a_policy_that_writes_nothing_readable_does_not_look_like_one_that_fails(
    tmp_path: Path, text: str
) -> None:
    def silent(chats: Sequence[Chat]) -> list[Reply]:
        return [Reply(text) for _ in chats]

    rows = run_ablation(study(seeds=2), tmp_path, 1, player=silent)
    for title, header, lines in ablation_tables(rows):
        assert {line[header.index("unreadable")] for line in lines} == {"100.0"}, title
    noisy = run_ablation(study(seeds=2), tmp_path / "noisy", 1)
    assert sum(each.unreadable for each in noisy) == 0
    assert sum(each.replies for each in noisy) == sum(
        len(Trajectory.from_json(t.to_json()).steps) for t in log_of(tmp_path / "noisy")
    )
