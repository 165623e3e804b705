from __future__ import annotations

from math import isnan, nan
from pathlib import Path as File
from typing import Any

import numpy as np
import pytest

from agentgym import Chat, Reply, make
from agentgym.envs.gsm_agent.database import DatabaseOptions, get_database
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.training.evaluation import drawing
from agentgym.training.papers.gsm_agent import (
    SearchResult,
    metrics,
    outcome,
    revisits_figure,
    summary,
)
from agentgym.training.papers.reasoning_graph import (
    Path,
    ReasoningGraph,
    figures,
    graph_of,
    graph_summary,
    paths_of,
)
from agentgym.training.rollout import Step, Trajectory, TrajectoryLog, rollout
from tests.cli.test_main import command

# Appendix C.4 lists the node and the label of each of o3's 36 steps.
CASE = (
    (198, "-"), (152, "exploration"), (204, "exploration"), (109, "exploration"), (204, "revisit"), (198, "revisit"),
    (109, "revisit"), (198, "revisit"), (109, "revisit"), (184, "exploration"), (198, "revisit"), (204, "exploration"),
    (60, "exploration"), (198, "revisit"), (9, "exploration"), (104, "exploration"), (198, "revisit"), (198, "exploitation"),
    (204, "revisit"), (9, "revisit"), (198, "revisit"), (204, "revisit"), (109, "revisit"), (198, "revisit"),
    (16, "exploration"), (109, "revisit"), (109, "revisit"), (27, "exploration"), (66, "exploration"), (198, "revisit"),
    (9, "revisit"), (66, "revisit"), (109, "revisit"), (29, "exploration"), (146, "exploration"), (235, "exploration"),
)  # fmt: skip


def test_the_case_study_is_relabelled() -> None:
    """34 of 36 labels agree; the paper labels a known node at step 12 as exploration."""
    path = Path.of([node for node, _ in CASE])
    told = ["exploration" if label == "-" else label for _, label in CASE]
    differ = [
        step
        for step, (mine, theirs) in enumerate(zip(path.kinds, told, strict=True), 1)
        if mine != theirs
    ]
    assert differ == [12, 27]
    assert [path.kinds[step - 1] for step in differ] == ["revisit", "exploitation"]
    assert path.visited == 14
    counts = [path.kinds.count(kind) for kind in ("exploration", "exploitation", "revisit")]
    assert counts == [14, 2, 20]
    assert path.ratio("revisit") == pytest.approx(20 / 35)
    assert path.ratio("exploration") == pytest.approx(13 / 35)


def test_figures_of_paths() -> None:
    found = figures(
        [Path.of([1, 1, 1]), Path.of([1, 2, 1]), Path.of([1, 2, 3, 1]), Path.of([4]), Path.of([])]
    )
    assert pytest.approx((1 + 2 + 3 + 1) / 4) == found["V"]
    assert found["hasRvst"] == 0.5
    assert (found["Expl"], found["Expt"], found["Rvst"]) == pytest.approx(
        ((0 + 1 / 2 + 2 / 3) / 3, 1 / 3, (1 / 2 + 1 / 3) / 3)
    )
    assert found["Expl"] + found["Expt"] + found["Rvst"] == pytest.approx(1)
    alone = figures([Path.of([4, 4])])
    assert (alone["Expl"], alone["Expt"]) == (0, 1), (
        "as in the tables, where the first step does not count"
    )
    _title, header, rows = graph_summary({"o3": [Path.of([4, 4])], "none": []})
    assert header == ["setting", "V", "hasRvst", "Expl", "Expt", "Rvst"]
    assert rows[0] == ["o3", "1.00", "0.00%", "0.00%", "100.00%", "0.00%"]
    assert rows[1] == ["none", *[""] * 5]


def step(
    turn: int, text: str = "x", ids: tuple[int, ...] = (), calls: int = 1, **more: Any
) -> Step:
    return Step(
        Chat(),
        Reply(text, ids=ids),
        0.0,
        {"turn": turn, "success": False, "detail": {"calls": calls}, **more},
    )


def episode(
    *steps: Step,
    log: list[dict[str, Any]],
    answer: str | None,
    wanted: list[str],
    early: int = 0,
    **labels: Any,
) -> Trajectory:
    report = {"searches": log, "oracle_documents": wanted, "early_stops": early, "answer": answer}
    last = steps[-1]
    info = {
        **last.info,
        "success": answer == "5",
        "detail": {**last.info["detail"], "report": report},
    }
    played = (*steps[:-1], Step(last.chat, last.reply, 0.0, info))
    return Trajectory("{}", 3, played, Chat(), True, False, labels)


def look(turn: int, *ids: str) -> dict[str, Any]:
    return {"turn": turn, "tool": "search", "query": "q", "page": 1, "ids": list(ids)}


def test_outcomes_by_hand() -> None:
    """Turn 1 searches twice, turn 2 gives no number, turn 3 searches once, and turn 4 answers."""
    log = [look(1, "a", "x"), look(1, "b"), look(3, "a")]
    steps = (
        step(1, ids=(1, 2, 3)),
        step(2, "I think I am done.", (1, 1), calls=0),
        step(3, ids=(1,)),
        step(4, "#### 5", (1,) * 10),
    )
    found = outcome(episode(*steps, log=log, answer="#### 5", wanted=["a", "b"], seconds=2.5))
    assert found == SearchResult(False, 2, 2.5, True, 1.0, True, 1, 4.0)
    assert (
        outcome(episode(*steps, log=log, answer="5", wanted=["a", "b"], early=2)).early_stops == 3
    )
    lost = outcome(episode(step(1, "no"), log=[look(1, "a")], answer=None, wanted=["a", "b"]))
    assert (lost.complete, lost.followed_format, lost.success) == (False, False, False)
    assert all(map(isnan, (lost.extra, lost.seconds, lost.tokens)))
    counted = outcome(
        episode(step(1, "two words"), log=[look(1, "a")], answer=None, wanted=["b"]),
        lambda text: len(text.split()),
    )
    assert counted.tokens == 2.0
    unsearched = outcome(episode(step(1, "#### 5", (1, 2)), log=[], answer="#### 5", wanted=["a"]))
    assert (unsearched.rounds, unsearched.tokens) == (0, 0.0)
    assert unsearched.followed_format
    vague = outcome(episode(step(1, "#### ?"), log=[], answer="#### ?", wanted=["a"]))
    assert not vague.followed_format


def test_replies_that_sum_up_are_no_stops_and_no_turns() -> None:
    steps = (
        step(1, ids=(1,)),
        step(1, "A summary.", (1,) * 9, calls=0, context={"phase": "summary"}),
        step(2, ids=(1,)),
    )
    found = outcome(episode(*steps, log=[look(1, "a")], answer=None, wanted=["a"]))
    assert (found.early_stops, found.tokens) == (0, 1.0)


def test_what_is_not_of_this_world_is_refused() -> None:
    played = rollout(OraclePolicy("ListWorld"), make("ListWorld", items=3, removals=1), 0)
    with pytest.raises(
        ValueError, match="the trajectory of seed 0 does not end with a report of SearchWorld"
    ):
        outcome(played)
    with pytest.raises(ValueError, match="there are no episodes to average"):
        metrics([])


def test_means_are_those_of_the_tables() -> None:
    one = SearchResult(True, 2, 1.0, True, 3.0, True, 0, 100.0)
    two = SearchResult(False, 4, 3.0, False, nan, True, 2, 400.0)
    none = SearchResult(False, 0, 2.0, False, nan, False, 1, 0.0)
    found = metrics([one, two, none])
    assert [found[name] for name in ("Acc", "SR", "Dur (s)", "SC")] == pytest.approx(
        [1 / 3, 2, 2, 1 / 3]
    )
    assert [found[name] for name in ("ER", "FF", "PremT", "TotTok")] == pytest.approx(
        [3, 2 / 3, 1, 500 / 3]
    )
    assert found["Tok/R"] == pytest.approx((50 + 100) / 2), (
        "the mean of ratios, over episodes with a search; not the ratio of means"
    )
    _title, header, rows = summary({"all": [one, two, none], "lost": [none]})
    names = "Acc|SR|Dur (s)|SC|ER|FF|PremT|TotTok|Tok/R"
    assert header == ["setting", *names.split("|")]
    assert rows[0][:6] == ["all", "33.33%", "2.00", "2.00", "33.33%", "3.00"]
    assert (rows[1][5], rows[1][-1]) == ("", "")


def test_episodes_as_they_are_played() -> None:
    env = make("SearchWorld", tasks=60)
    for seed in range(6):
        trajectory = Trajectory.from_json(rollout(OraclePolicy("SearchWorld"), env, seed).to_json())
        found = outcome(trajectory, len)
        assert found.success
        assert found.complete
        assert found.followed_format
        assert found.extra == 0, "the scripted searcher answers as soon as it can"
        assert found.rounds == len(trajectory.steps) - 1
        assert found.tokens == sum(len(each.reply.text) for each in trajectory.steps[:-1])


def test_the_graph_of_a_database() -> None:
    trajectories = [
        rollout(NoisyPolicy("SearchWorld", 0.3), make("SearchWorld", tasks=60), seed)
        for seed in range(5)
    ]
    graph = graph_of(trajectories[0])
    database = get_database(DatabaseOptions(tasks=60))
    assert graph.documents.shape == (len(database.documents),)
    assert len(graph.centroids) == round(250 * np.sqrt(len(database.documents) / 30_000))
    paths = paths_of(trajectories)
    logs = [each.steps[-1].info["detail"]["report"]["searches"] for each in trajectories]
    assert [len(path.nodes) for path in paths] == list(map(len, logs))
    for path, log in zip(paths, logs, strict=True):
        for k, entry in enumerate(log):
            assert path.nodes[k] == (
                path.nodes[k - 1] if entry["tool"] == "next_page" else graph.node(entry["query"])
            )
    assert graph_of(trajectories[0]) is graph


def test_clusters_part_what_is_different() -> None:
    texts = [f"{word} {word} number {k}" for word in ("apple", "boat", "cloud") for k in range(8)]
    graph = ReasoningGraph(texts, nodes=3)
    groups = [set(graph.documents[start : start + 8]) for start in (0, 8, 16)]
    assert all(len(group) == 1 for group in groups)
    assert len(set.union(*groups)) == 3
    assert graph.node("a cloud") == graph.documents[16]
    with pytest.raises(ValueError, match=r"nodes must be an integer in \[1, 24\], got 25"):
        ReasoningGraph(texts, nodes=25)


def test_the_command_writes_tables_and_the_scatter(tmp_path: File) -> None:
    log = TrajectoryLog(tmp_path / "noisy.jsonl")
    log.append(
        *(
            rollout(NoisyPolicy("SearchWorld", 0.3), make("SearchWorld", tasks=60), seed).to_json()
            for seed in range(4)
        )
    )
    shown = command("gsm", f"noisy={log.path}", "--out", str(tmp_path), "--count")
    assert shown.returncode == 0, shown.stderr
    written = (tmp_path / "summary.md").read_text()
    assert "| setting | Acc | SR |" in written
    assert "| setting | V | hasRvst |" in written
    assert written.count("| noisy |") == 2
    assert (tmp_path / "revisits.png").exists()
    for wrong, message in (
        ("noisy", "a setting must be name=FILE, got 'noisy'"),
        ("no=nowhere", "contains no trajectories"),
    ):
        shown = command("gsm", wrong)
        assert shown.returncode != 0
        assert message in " ".join(shown.stderr.split())


def test_the_scatter_shows_each_setting(tmp_path: File) -> None:
    points = {"o3": (0.3, 0.7), "gpt": (0.02, 0.2), "none": (nan, 0.5)}
    figure = revisits_figure(points)
    (panel,) = figure.axes
    assert [line.get_label() for line in panel.lines] == ["o3", "gpt"]
    drawing.save(figure, tmp_path / "revisits.png")
    assert (tmp_path / "revisits.png").stat().st_size > 5_000
