from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym.oracles import NoisyPolicy
from agentgym.training.evaluation import Price
from agentgym.training.viewer import RunIndex
from tests.training.viewer.episodes import HOSTILE, hostile_policy, played, write_run


def outcomes(index: RunIndex) -> list[str]:
    while index.refresh():
        pass
    return [row.outcome for row in index.rows]


def test_rows_have_the_figures_of_their_episodes(tmp_path: Path) -> None:
    index = RunIndex(write_run(tmp_path))
    assert outcomes(index)[0] == "solved"
    first, noisy, compacted, hostile, team = index.rows
    assert (first.world, first.arm, first.context, first.policy) == (
        "ListWorld",
        "none",
        "none",
        "oracle",
    )
    assert (first.seed, first.turns, first.reward, first.optimal) == (0, 6, 1.0, 1.0)
    assert first.instance == noisy.instance != hostile.instance
    assert (compacted.arm, compacted.context) == ("SP", "ClearToolResults+Compaction")
    assert compacted.edits > 0
    assert (compacted.tokens or 0) > 500
    assert len(team.agents) == 2
    assert hostile.labels == {"not optimal": 2}


def test_a_line_counts_once_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "t.jsonl"
    lines = [played(seed=k).to_json().encode() + b"\n" for k in range(3)]
    log.write_bytes(b"")
    index = RunIndex(log)
    assert outcomes(index) == []
    for place in (0, 1, len(lines[0]) - 1):
        log.write_bytes(lines[0][:place])
        assert outcomes(index) == []
    log.write_bytes(lines[0] + lines[1] + lines[2][:-1])
    assert outcomes(index) == ["solved"] * 2
    with log.open("ab") as file:
        file.write(b"\n")
    assert outcomes(index) == ["solved"] * 3
    assert index.generation == 0
    assert [json.loads(index.line(k))["seed"] for k in range(3)] == [0, 1, 2]


def test_a_part_is_read_at_a_time(tmp_path: Path) -> None:
    index = RunIndex(write_run(tmp_path))
    counts = []
    while index.refresh(part=1):
        counts.append(len(index.rows))
    assert counts == [1, 2, 3, 4, 5]


def test_runs_are_told_apart_and_places_count_by_log(tmp_path: Path) -> None:
    line = played().to_json() + "\n"
    logs = ("a/x/trajectories.jsonl", "a/x/try.jsonl", "b/x/trajectories.jsonl", "t.jsonl")
    for log in logs:
        (tmp_path / log).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / log).write_text(2 * line)

    def listed(*runs: Path) -> list[tuple[str, str, int]]:
        index = RunIndex(*runs)
        outcomes(index)
        return [(row.run, row.log, row.place) for row in index.rows[1::2]]

    assert listed(tmp_path) == [
        ("a/x", logs[0], 1),
        ("a/x/try", logs[1], 1),
        ("b/x", logs[2], 1),
        ("t", logs[3], 1),
    ]
    one, two = tmp_path / "a/x", tmp_path / "b/x"
    same = [(run.as_posix(), f"{run.as_posix()}/trajectories.jsonl", 1) for run in (one, two)]
    assert listed(one, two) == [same[0], (f"{one}/try", f"{one}/try.jsonl", 1), same[1]]
    assert listed(one, tmp_path / "t.jsonl")[-1] == ("t.jsonl", "t.jsonl", 1)
    assert listed(tmp_path / "b/x") == [("x", "trajectories.jsonl", 1)]


@pytest.mark.parametrize("by_step", [True, False])
def test_usage_is_summed_and_priced(tmp_path: Path, by_step: bool) -> None:
    data = json.loads(played().to_json())
    data["labels"]["provenance"] = {"model": "small"}
    if by_step:
        for step in data["steps"]:
            step["info"]["usage"] = {
                "prompt_tokens": 1_000, "completion_tokens": 100, "seconds": 0.5
            }  # fmt: skip
    else:
        data["labels"]["tokens"] = [6_000, 600]
    (tmp_path / "t.jsonl").write_text(json.dumps(data) + "\n")
    index = RunIndex(tmp_path, price=Price(2.0, 10.0))
    outcomes(index)
    (row,) = index.rows
    assert (row.model, row.prompt_tokens, row.reply_tokens) == ("small", 6_000, 600)
    assert row.seconds == (3.0 if by_step else None)
    assert row.cost == pytest.approx(0.018)


@pytest.mark.parametrize(
    "damage",
    [b"{", b'"', b"\xff\xfe", b"[" * 100_000, b'{"spec": {}, "seed": "x", "steps": []}'],
)
def test_a_damaged_line_is_shown_as_such_between_the_others(tmp_path: Path, damage: bytes) -> None:
    log = tmp_path / "t.jsonl"
    whole = played().to_json().encode()
    log.write_bytes(whole + b"\n" + damage + b"\n\n" + whole + b"\n" + damage)
    index = RunIndex(log)
    assert outcomes(index) == ["solved", "damaged", "solved"]
    assert index.rows[1].problem
    assert index.line(2) == whole + b"\n"
    assert list(index.search("pop")) == [0, 2]


def test_files_that_are_no_logs_are_left_out(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\nnot JSON\n[1]\n')
    (tmp_path / "notes.txt").write_text(played().to_json() + "\n")
    index = RunIndex(tmp_path)
    assert {row.log for row in index.rows} <= {"trajectories.jsonl"}
    assert len(outcomes(index)) == 5


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    write_run(outside)
    run = tmp_path / "run"
    run.mkdir()
    (run / "link.jsonl").symlink_to(outside / "trajectories.jsonl")
    (run / "folder").symlink_to(outside)
    assert outcomes(RunIndex(run)) == []


def test_a_log_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    log = tmp_path / "t.jsonl"
    log.write_text(played(seed=1).to_json() + "\n" + played(seed=2).to_json() + "\n")
    index = RunIndex(tmp_path)
    assert len(outcomes(index)) == 2
    other = tmp_path / "other"
    other.write_text(played(seed=7).to_json() + "\n")
    other.replace(log)
    outcomes(index)
    assert [row.seed for row in index.rows] == [7]
    assert index.generation == 1
    log.unlink()
    assert outcomes(index) == []


def test_search_finds_texts_in_any_case_and_not_the_markup_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "t.jsonl"
    episodes = [played(), played(NoisyPolicy("ListWorld", p=0.9)), played(hostile_policy)]
    log.write_text("".join(episode.to_json() + "\n" for episode in episodes))
    index = RunIndex(log)
    outcomes(index)
    assert list(index.search("TARGET LIST")) == [0, 1, 2]
    assert list(index.search("</SCRIPT><script>")) == [2]
    assert list(index.search("\u2028")) == [2]
    assert list(index.search(HOSTILE[:60])) == [2]
    assert list(index.search("pop(id=")) == [0, 1], "as the page writes calls"
    assert list(index.search("TARGET LIST", 1)) == [1, 2]
    assert list(index.search('"messages"')) == []
    assert list(index.search("entry_point")) == []


def test_a_run_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no run at .*nowhere; give a run folder"):
        RunIndex(tmp_path / "nowhere")
