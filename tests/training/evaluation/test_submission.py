from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from itertools import cycle, islice
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate
from typer.testing import CliRunner

from agentgym.cli import app
from agentgym.envs.lumina.list_world import ListWorld
from agentgym.training.evaluation import log_of, run_ablation
from agentgym.training.evaluation.submission import SUBMISSION, Submission, objections, schema
from agentgym.training.rollout import PolicyConfig
from agentgym.training.rollout.storage import whole_lines
from agentgym.world.world import World
from tests.training.evaluation.studies import small

# The log is uncompressed, because the tests change lines.
TRAJECTORIES = "trajectories.jsonl"


def play(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    (folder / TRAJECTORIES).touch()
    settings = {"seeds": 20, "horizons": (4,), "options": {"": {"split": "test"}}}
    run_ablation(small("noisy:p=0.5", **{**settings, **changes}), folder, 1)
    return folder


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = play(tmp_path_factory.mktemp("submission") / "run")
    code, shown = call("submit", folder)
    assert code == 0, shown
    return folder


@pytest.fixture
def run(played: Path, tmp_path: Path) -> Path:
    return shutil.copytree(played, tmp_path / "run")


def call(*arguments: object) -> tuple[int, str]:
    shown = CliRunner().invoke(app, [str(word) for word in arguments])
    assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
    return shown.exit_code, re.sub(r"\s+", " ", shown.output)


def review(run: Path, *options: str) -> tuple[int, str]:
    return call("review", run / SUBMISSION, run, *options)


def rewrite(path: Path, change: Callable[[Any], None]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def rewrite_line(run: Path, number: int, change: Callable[[Any], None]) -> None:
    lines = [json.loads(line) for _, line in whole_lines(log_of(run).path)]
    change(lines[number])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    log_of(run).path.write_text(text, encoding="utf-8")


def submit_anyway(run: Path) -> None:
    (run / SUBMISSION).write_text(Submission.of(run).to_json(), encoding="utf-8")


def test_an_honest_run_is_accepted_and_counted_like_its_episodes(run: Path) -> None:
    assert review(run)[0] == 0
    data = json.loads((run / SUBMISSION).read_text(encoding="utf-8"))
    validate(data, schema())
    episodes = [json.loads(line) for _, line in whole_lines(log_of(run).path)]
    solved = sum(each["steps"][-1]["info"]["success"] for each in episodes)
    assert 0 < solved < 40
    assert sum(cell["solved"] for cell in data["cells"]) == solved
    assert sum(cell["episodes"] for cell in data["cells"]) == len(episodes) == 40
    assert sum(cell["replies"] for cell in data["cells"]) == sum(len(e["steps"]) for e in episodes)


def test_each_changed_figure_is_rejected(run: Path) -> None:
    honest = json.loads((run / SUBMISSION).read_text(encoding="utf-8"))
    for place, cell in enumerate(honest["cells"]):
        for name, value in cell.items():
            changed = json.loads(json.dumps(honest))
            changed["cells"][place][name] = value + (1 if isinstance(value, int) else "P")
            (run / SUBMISSION).write_text(json.dumps(changed), encoding="utf-8")
            code, shown = review(run, "--replay", "0")
            assert (code, "forged: " in shown) == (1, True), (name, shown)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data["cells"].pop(), "is only in the run"),
        (lambda data: data["cells"].append(data["cells"][0]), "lists a cell twice"),
        (lambda data: data.update(log="0" * 64), "its field log differs from the run"),
        (lambda data: data["runs"][0].update(seeds=10), "its field runs differs from the run"),
        (lambda data: data["policies"].clear(), "its field policies differs from the run"),
        (lambda data: data["runs"][0].update(shots=False), "its field runs differs from the run"),
        (lambda data: data.update(agentgym="0.0.1"), "outdated: the file: its agentgym was"),
        (lambda data: data.update(commit="main | other"), "commit: String should match pattern"),
        (lambda data: data.update(format=2), "format: Input should be 1"),
        (lambda data: data.update(bonus=1), "bonus: Unexpected keyword argument"),
        (lambda data: data["cells"][0].pop("lost"), "cells.0.lost: Field required"),
        (lambda data: data["cells"][0].update(solved="7"), "cells.0.solved: Input should be"),
    ],
)
def test_a_changed_file_is_rejected(run: Path, change: Callable[[Any], None], reason: str) -> None:
    rewrite(run / SUBMISSION, change)
    code, shown = review(run)
    assert code != 0
    assert reason in shown


def win(line: Any) -> None:
    last = line["steps"][-1]
    last["reward"] = last["info"]["detail"]["score"] = 1.0
    last["info"]["success"] = True


def relabel(line: Any) -> None:
    line["labels"]["arm"] = "S"


def pay_each_step(line: Any) -> None:
    for step in line["steps"]:
        step["reward"] = 1.0 - step["reward"]


def answer_otherwise(line: Any) -> None:
    line["steps"][0]["reply"]["text"] = "```python\nadd(1)\n```"


def claim_a_won_game(line: Any) -> None:
    team = {"rewards": {"player": 1.0}, "winners": ["player"]}
    line["steps"][-1]["info"]["detail"]["report"] = {"team": team}


def claim_to_have_left(line: Any) -> None:
    win(line)
    line["steps"][-1]["info"]["detail"]["ended"] = "left"


def claim_other_code(line: Any) -> None:
    line["labels"]["provenance"]["code"] = "0" * 16


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (win, "replays as"),
        (lambda line: line["steps"][-1]["info"].update(success=True), "success is True with a sc"),
        (pay_each_step, "its rewards sum to"),
        (answer_otherwise, "replay"),
        (claim_a_won_game, "the team's report after reply"),
        (claim_to_have_left, "replays as"),
        (lambda line: line["steps"][-1]["info"].update(over_window=True), "only one of it and its"),
        (claim_other_code, "its player is not that of the study: its code was"),
        (lambda line: line["steps"][0]["info"].update(optimal=None), "optimal after reply 1 is"),
        (lambda line: line["steps"][0]["info"].update(turn=2), "turn after reply 1 is 2"),
        (lambda line: line.update(seed=line["seed"] + 1), "duplicate"),
        (relabel, "its env is not that of its labels"),
        (lambda line: line["labels"].pop("provenance"), "does not record who played it"),
    ],
)
def test_a_changed_episode_is_rejected(
    run: Path, change: Callable[[Any], None], reason: str
) -> None:
    lines = [json.loads(line) for _, line in whole_lines(log_of(run).path)]
    lost = [k for k, line in enumerate(lines) if not line["steps"][-1]["info"]["success"]]
    rewrite_line(run, max(lost, key=lambda k: len(lines[k]["steps"])), change)
    assert review(run)[0] == 1, review(run)[1]
    submit_anyway(run)
    code, shown = review(run)
    assert code == 1
    assert reason in shown, shown


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda run, facts: run["policy"].update(seed=5), "its seed was 0 and is 5"),
        (lambda run, facts: facts.update(policy="m:f"), 'its policy was "m:f" and is "noisy:p'),
        (lambda run, facts: facts.update(sampler={}), "its sampler was {} and is"),
        (lambda run, facts: run.update(seeds=10**9), "more than 10,000,000 episodes"),
    ],
)
def test_settings_that_contradict_the_policy_are_rejected(
    run: Path, change: Callable[[Any, Any], None], reason: str
) -> None:
    settings = run / "ablation.json"
    rewrite(settings, lambda data: change(data["runs"][0], *data["policies"].values()))
    code, shown = call("submit", run)
    assert code != 0
    assert reason in shown, shown


def test_a_run_of_another_version_or_of_a_policy_without_episodes_is_rejected(run: Path) -> None:
    lines = [json.loads(line) for _, line in whole_lines(log_of(run).path)]
    for line in lines:
        line["labels"]["provenance"]["agentgym"] = "0.0.1"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    log_of(run).path.write_text(text, encoding="utf-8")
    facts = {"noisy:p=0.5": lines[0]["labels"]["provenance"], "other": {"code": "0" * 16}}
    rewrite(run / "ablation.json", lambda data: data.update(policies=facts))
    code, shown = call("submit", run)
    assert code == 1
    assert 'outdated: noisy:p=0.5: its agentgym was "0.0.1" and is' in shown
    assert "forged: its policy other played no run; delete it from ablation.json" in shown
    assert not Submission.of(run).commit  # the commit does not describe the code that played


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value if isinstance(value, dict) else range(len(value)) if type(value) is list else ()
    for key in inner:
        yield (*at, key)
        yield from places(value[key], (*at, key))


@pytest.mark.parametrize("name", [TRAJECTORIES, "ablation.json"])
def test_values_of_wrong_types_are_named_without_a_traceback(tmp_path: Path, name: str) -> None:
    run = play(tmp_path / "run", seeds=1, arms=("",))
    honest = json.loads((run / name).read_text(encoding="utf-8"))
    wrong = cycle([None, "x", 5, [], {}, True, float("nan"), 10**400, -1, ["x"], {"x": 1}])
    for place in places(honest):
        for value in islice(wrong, 3):
            line = json.loads(json.dumps(honest))
            reduce(getitem, place[:-1], line)[place[-1]] = value
            (run / name).write_text(json.dumps(line) + "\n", encoding="utf-8")
            with suppress(ValueError):
                list(objections(Submission.of(run), run))


def test_arms_of_unequal_size_are_rejected_and_the_seed_of_a_review_is_not_known(
    run: Path, tmp_path: Path
) -> None:
    assert review(run, "--replay", "1") != review(run, "--replay", "1")  # both state their seed
    more, split = play(tmp_path / "more", arms=("",), seeds=24), {"": {"split": "test"}}
    run_ablation(small("noisy:p=0.5", seeds=20, horizons=(4,), options=split), more, 1)
    shown = call("submit", more)[1]
    assert "partial: some arms have fewer instances than others" in shown
    assert "with --episodes 24 and all arms" in shown
    shown = call("submit", run, "--out", run / "ablation.json")[1]
    assert "would replace a file of the run" in shown


class Bare(ListWorld):
    """World without optimal calls, so no scripted policy can play."""

    optimal_calls = World.optimal_calls


def test_a_world_that_only_own_policies_can_play_is_accepted(tmp_path: Path) -> None:
    settings = {
        "axis": "items",
        "horizons": (4,),
        "arms": ("",),
        "options": {"": {"split": "test"}},
    }
    policy, worlds = PolicyConfig("object:mine"), (f"{__name__}:Bare",)
    ablation = small(policy, worlds=worlds, seeds=20, **settings)
    run_ablation(ablation, tmp_path, 1, player=lambda chats: ["no call" for _ in chats])
    assert not list(objections(Submission.of(tmp_path), tmp_path))


def test_partial_outdated_and_training_runs_are_rejected(run: Path, tmp_path: Path) -> None:
    few = play(tmp_path / "few", seeds=5)
    assert "partial: a cell has 5 instances, fewer than 20" in call("submit", few)[1]
    train = play(tmp_path / "train", options={"": {"split": "train"}})
    assert "training split: 40 episodes have the split train" in call("submit", train)[1]
    anything = play(tmp_path / "anything", options={})
    assert "training split: 40 episodes have the split None" in call("submit", anything)[1]
    assert not any(path.parent != run for path in tmp_path.glob(f"*/{SUBMISSION}"))
    lines = [line for _, line in whole_lines(log_of(run).path)]
    log_of(run).path.write_bytes(b"".join(lines[:-3]))
    assert "partial: 3 episodes are not played" in call("submit", run)[1]
    log_of(run).path.write_bytes(b"".join(lines))
    worlds = {"ListWorld": "0" * 16}
    rewrite(
        run / "ablation.json",
        lambda data: next(iter(data["policies"].values())).update(worlds=worlds),
    )
    assert "outdated: noisy:p=0.5 played another version of ListWorld" in call("submit", run)[1]


def test_what_is_no_run_or_no_submission_is_named(run: Path, tmp_path: Path) -> None:
    assert "lacks ablation.json" in call("submit", tmp_path)[1]
    assert "does not exist" in call("review", tmp_path / "none.json", run)[1]
    twice = (run / SUBMISSION).read_bytes().replace(b'"lost"', b'"solved": 20, "lost"', 1)
    for content in (b"", b"{", b"[]", b"\xff\xfe", b'{"format": 1}', b"null", b"[" * 9_999, twice):
        (run / SUBMISSION).write_bytes(content)
        code, shown = review(run)
        assert (code, "error: " in shown) == (2, True), shown
        assert "write the file again with agentgym submit" in shown
