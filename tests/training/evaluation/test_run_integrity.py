from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentgym import make
from agentgym.cli import app
from agentgym.training.evaluation import load_results, log_of, prepare_ablation, run_ablation
from agentgym.training.evaluation import study as study_module
from agentgym.training.evaluation.study_folder import SETTINGS, Study, result_cell
from agentgym.training.evaluation.verification import contradiction
from agentgym.training.rollout import (
    CollectionError,
    DamagedFileError,
    PolicyConfig,
    RunLock,
    RunLockedError,
    TrajectoryLog,
    rollout,
)
from agentgym.training.rollout.seat_policies import agents_of
from agentgym.training.rollout.storage import whole_lines
from tests.training.evaluation import lethal_policies
from tests.training.evaluation.studies import small
from tests.training.rollout.disk import full_disk

MODULE = "tests.training.evaluation.lethal_policies"
# The log is uncompressed, because the tests duplicate and damage lines.
TRAJECTORIES = "trajectories.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / TRAJECTORIES).touch()
    run_ablation(small(), tmp_path / "run", 1)
    yield tmp_path / "run"
    assert not list((tmp_path / "run").glob("*.lock"))


def lines_of(run: Path) -> list[bytes]:
    return [line for _, line in whole_lines(log_of(run).path)]


def doctor(run: Path, *options: str) -> tuple[int, str]:
    shown = CliRunner().invoke(app, ["doctor", str(run), *options])
    return shown.exit_code, shown.output


@pytest.mark.rotation
def test_a_cell_that_kills_each_worker_is_lost_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_module, "RETRIES", 1)
    ablation = small(f"{MODULE}:die_always")
    losses: dict[Any, str] = {}
    results = run_ablation(ablation, tmp_path / "a", 3, on_loss=losses.__setitem__)
    assert 0 < len(losses) < 8
    assert {(row.arm, row.seed) for row in results} == {
        (cell[1], cell[4]) for cell in ablation.cells() if cell not in losses
    }
    cause = "exit code -9: it was killed, possibly out of memory (attempt 2)"
    assert all(cause in each for each in losses.values())
    assert sum(bool(t.failure) for t in log_of(tmp_path / "a")) == len(losses)


def test_cells_that_are_lost_are_named_and_played_when_the_run_goes_on(tmp_path: Path) -> None:
    ablation = small(f"{MODULE}:be_silent", arms=("",), seeds=5)
    losses: dict[Any, str] = {}
    results = run_ablation(ablation, tmp_path / "a", 1, on_loss=losses.__setitem__)
    assert len(losses) == 2
    played = set(map(result_cell, results))
    assert played | losses.keys() == set(ablation.cells())
    assert not played & losses.keys()
    assert set(losses.values()) == {"PolicyError: server error 500"}
    failures = [t for t in log_of(tmp_path / "a") if t.failure]
    assert len(failures) == len(losses)
    again: dict[Any, str] = {}
    run_ablation(ablation, tmp_path / "a", 1, on_loss=again.__setitem__)
    assert again == losses
    assert len(load_results(tmp_path / "a")) == len(played), "failures do not count"
    with pytest.warns(UserWarning, match=r"2 episodes were lost .*server error 500; run it again"):
        results = run_ablation(ablation, tmp_path / "a", 1)
    assert [row.missing for row in results.missing] == ["lost"] * 2


@pytest.mark.rotation
def test_the_command_names_what_was_lost(tmp_path: Path) -> None:
    line = f"ablate --policy {MODULE}:be_silent --world ListWorld --oracles none --horizons 3 --episodes 5"
    out = ["--workers", "1", "--out", str(tmp_path / "a")]
    shown = CliRunner().invoke(app, [*line.split(), *out])
    assert shown.exit_code == 1
    lost = (
        "lost: ListWorld, arm none, context none, horizon 3, seed 0: PolicyError: server error 500"
    )
    assert lost in shown.stderr
    assert (
        "2 cells failed and are missing from all figures; rerun the command to play them again"
        in shown.stderr
    )
    assert "ListWorld: 3 episodes" in shown.stdout
    out[-1] = str(tmp_path / "b")
    with full_disk(30_000):
        shown = CliRunner().invoke(app, [*line.split(), *out])
    assert shown.exit_code == 1
    assert shown.stderr.startswith("error: [Errno 27] File too large")
    assert "rerun the command to resume" in shown.stderr


def test_when_every_cell_is_lost_the_run_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lethal_policies, "hash_text", lambda text: 0)
    with pytest.raises(CollectionError, match="3 consecutive cells failed; the last"):
        run_ablation(small(f"{MODULE}:be_silent"), tmp_path / "a", 1)


ABLATE = "ablate --policy oracle --world ListWorld --oracles none,S --horizons 3 --episodes 4 --out"


@pytest.mark.parametrize("command", [ABLATE.split(), ["score"], ["doctor"]])
def test_a_second_writer_is_told_in_one_line(run: Path, command: list[str]) -> None:
    before = lines_of(run)
    with RunLock(run):
        shown = CliRunner().invoke(app, [*command, str(run)])
        with pytest.raises(RunLockedError):
            run_ablation(small(), run, 1)
    assert shown.exit_code == 2
    assert len(shown.stderr.strip().splitlines()) == 1
    assert f"{run} is being written by process {os.getpid()} on " in shown.stderr
    assert lines_of(run) == before


def test_doubles_and_strays_do_not_count_and_are_said_once(run: Path, tmp_path: Path) -> None:
    expected = load_results(run)
    run_ablation(small(arms=("S", "P"), seeds=5), tmp_path / "other", 1)
    first, *_ = lines_of(run)
    with (run / TRAJECTORIES).open("ab") as file:
        file.write(first.replace(b'"reward": 1.0', b'"reward": 0.0') + first)
        file.writelines(lines_of(tmp_path / "other"))
    with pytest.warns(UserWarning, match="do not count") as said:
        assert load_results(run) == expected
    texts = [str(warning.message) for warning in said]
    assert len(texts) == 2
    assert texts[0].startswith("6 trajectories in ")
    assert "doubles" in texts[0]
    assert texts[1].startswith("6 trajectories in ")
    assert all(f"agentgym doctor {run} --repair" in text for text in texts)
    with pytest.warns(UserWarning, match="do not count") as said:
        assert run_ablation(small(), run, 1) == expected
    assert len(said) == 2
    code, shown = doctor(run, "--repair")
    kinds = ("its rewards sum to 0", "it duplicates line", "it is not a cell of")
    assert (code, *map(shown.count, kinds)) == (0, 1, 5, 6)
    assert load_results(run) == expected
    assert len((run / f"{TRAJECTORIES}.damaged").read_bytes().splitlines()) == 12


@pytest.mark.parametrize(
    "line", [b'{"bad', b"\xff\xfe", b"\x00" * 9, b"[" * 100_000, b'{"seed": 1}']
)
def test_a_damaged_line_is_moved_aside_and_its_cell_is_played_again(run: Path, line: bytes) -> None:
    whole, expected = lines_of(run), load_results(run)
    (run / TRAJECTORIES).write_bytes(b"".join([*whole[:3], line + b"\n", *whole[4:], b'{"torn']))
    with pytest.raises(DamagedFileError, match=f"{TRAJECTORIES}, line 4: "):
        run_ablation(small(), run, 1)
    code, shown = doctor(run)
    assert code == 1
    assert f"{TRAJECTORIES}, line 4: it is not a trajectory; the episode is replayed" in shown
    assert "to repair this: agentgym doctor" in shown
    code, shown = doctor(run, "--repair")
    assert code == 0
    assert (run / f"{TRAJECTORIES}.damaged").read_bytes().startswith(line + b"\n")
    assert doctor(run)[0] == 0
    assert run_ablation(small(), run, 1) == expected
    assert sorted(lines_of(run)) == sorted(whole)


TEAMS = ("PuzzleWorld-duel", "PursuitWorld-match", "PuzzleWorld-host", "ListWorld-team")


@pytest.mark.parametrize("team", TEAMS)
def test_honest_episodes_of_teams_and_seats_contradict_nothing(team: str) -> None:
    noisy = PolicyConfig("noisy:p=0.5").make(team)
    agents = agents_of(make(team))
    share = {agents[0]: 0.5} if team == "ListWorld-team" else "shared"
    for seat in agents:
        oracles = {agent: "oracle" for agent in agents if agent != seat}
        for own in ({}, {"seat": seat, "opponents": oracles}):
            played = rollout(noisy, make(team, reward=share, **own), 1)
            assert not contradiction(Study(), played, replay=not own)
            last = replace(played.steps[-1], reward=played.steps[-1].reward + 0.5)
            forged = replace(played, steps=(*played.steps[:-1], last))
            assert "its rewards sum to" in contradiction(Study(), forged, replay=False)


def lose(data: Any) -> None:
    last = data["steps"][-1]
    last["reward"] = last["info"]["detail"]["score"] = 0.0
    last["info"]["success"] = False


def swap_arm(data: Any) -> None:
    data["labels"]["arm"] = "" if data["labels"]["arm"] else "S"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lose, "replays as"),
        (swap_arm, "its env is not that of its labels"),
        (lambda data: data.update(seed=(data["seed"] + 1) % 4), "a replay"),
    ],
)
def test_doctor_finds_what_contradicts_an_episode(
    run: Path, change: Callable[[Any], None], said: str
) -> None:
    assert doctor(run) == (0, f"{run} is undamaged\n")
    whole, expected = lines_of(run), load_results(run)
    data = json.loads(whole[4])
    change(data)
    whole[4] = json.dumps(data).encode() + b"\n"
    (run / TRAJECTORIES).write_bytes(b"".join(whole))
    code, shown = doctor(run)
    assert (code, shown.count(f"{TRAJECTORIES}, line ")) == (1, 1)
    assert f"{TRAJECTORIES}, line 5: " in shown
    assert said in shown
    assert doctor(run, "--repair")[0] == 0
    assert run_ablation(small(), run, 1) == expected


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda data: data.update(policies=None), "policies"),
        (lambda data: data["runs"][0].update(horizons=[{}]), "horizons"),
        (lambda data: data["runs"][0].update(seeds=None), "seeds"),
        (lambda data: data["runs"][0]["policy"].update(label=3), "label"),
    ],
)
def test_a_wrong_setting_is_named(run: Path, change: Callable[[Any], None], named: str) -> None:
    settings = json.loads((run / SETTINGS).read_bytes())
    change(settings)
    (run / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(
        DamagedFileError, match=rf"{SETTINGS}: it contains no run settings .*{named}"
    ):
        load_results(run)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"5", b"{}", b"\xff", b"[" * 100_000, b'{"worlds": ["ListWorld"]}']
)
def test_settings_that_are_not_whole_are_named_and_moved_aside(run: Path, data: bytes) -> None:
    expected = load_results(run)
    (run / SETTINGS).write_bytes(data)
    for action in (load_results, lambda run: run_ablation(small(), run, 1)):
        with pytest.raises(
            DamagedFileError, match=f"{SETTINGS}: it contains no run settings .*doctor"
        ):
            action(run)
    code, shown = doctor(run)
    assert (code, f"{SETTINGS}: " in shown) == (1, True)
    assert doctor(run, "--repair")[0] == 0
    assert (run / f"{SETTINGS}.damaged").read_bytes() == data
    with pytest.raises(ValueError, match="contains an episode of another ablation"):
        prepare_ablation(small(arms=("P",)), run)
    assert run_ablation(small(), run, 1) == expected
    assert len(lines_of(run)) == 8


def test_what_a_repair_moves_it_never_overwrites(run: Path) -> None:
    for number in range(3):
        (run / SETTINGS).write_text(f"{number}")
        with (run / TRAJECTORIES).open("a") as file:
            file.write(f"bad {number}\n")
        assert doctor(run, "--repair")[0] == 0
    moved = {path.name: path.read_text() for path in run.glob("*.damaged*")}
    assert moved == {
        f"{SETTINGS}.damaged": "0",
        f"{SETTINGS}.damaged-2": "1",
        f"{SETTINGS}.damaged-3": "2",
        f"{TRAJECTORIES}.damaged": "bad 0\nbad 1\nbad 2\n",
    }


def test_a_log_by_itself_and_answers_can_be_repaired(run: Path, tmp_path: Path) -> None:
    log = tmp_path / "t.jsonl"
    log.write_bytes(lines_of(run)[0] + b"bad\n" + lines_of(run)[0] + b'{"torn')
    code, shown = doctor(log)
    assert (code, shown.count(f"{log}, line ")) == (1, 2)
    assert doctor(log, "--repair")[0] == 0
    assert len(list(TrajectoryLog(log))) == 2, "an instance may be played twice"
    answers = tmp_path / "answers" / "a.jsonl"
    answers.parent.mkdir()
    answers.write_text('{"id": 1, "raw_response": "x"}\n{"raw_response\n5\n')
    assert doctor(answers.parent, "--repair")[0] == 0
    assert json.loads(answers.read_text())["id"] == 1
    assert doctor(tmp_path / "nothing")[0] == 2
