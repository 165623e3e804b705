from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from typer.testing import CliRunner

import agentgym
from agentgym import ToolCall, make, tool_env
from agentgym.cli import app
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.oracles.policies import ThinkingPolicy
from agentgym.text.parsing import parse
from agentgym.training.evaluation import evaluate
from agentgym.training.rl import Curve, LearnConfig, Learning, Point
from agentgym.training.rl import from_scratch as learn
from agentgym.training.rl.learning_curve import CURVE, learning_figure
from agentgym.training.rollout import Episode, PolicyConfig, collect, load_policy, replay, rollout
from agentgym.training.rollout.mixture import mixture

SIZES: dict[str, Any] = {
    "width": 16,
    "layers": 1,
    "heads": 2,
    "context": 1_024,
    "max_new_tokens": 8,
}
STEPS: dict[str, Any] = {
    "cloning_steps": 6,
    "hint_steps": 2,
    "rl_steps": 2,
    "groups": 2,
    "evaluations": 3,
    "episodes": 4,
}
TINY = LearnConfig(
    horizons=(1,),
    arms=("", "SP"),
    contexts=("none", "clear_thinking"),
    window=900,
    **SIZES,
    **STEPS,
)


def read(task: str) -> Any:
    return tool_env(make("ListWorld")).world_class.read_task(task)


def test_the_reasoning_of_a_list_world_goes_from_the_lock_to_the_call() -> None:
    world = read("Initial list: [11, 12, 13, 14]\nTarget list: [11, 14]\nTurn budget: 5")
    assert world.reasoning(ToolCall("pop", {"id": 1})) == "0: 11 keep\n1: 12 pop"
    world.pop(1)
    assert world.reasoning(ToolCall("pop", {"id": 1})) == "1: 13 pop"
    assert world.reasoning(ToolCall("pop", {"id": 2})) == "1: 13 keep\n2: 14 pop", (
        "a wrong call has the words that lead to it"
    )
    world.pop(1)
    assert world.reasoning(ToolCall("done", {})) == "1: 14 keep"


def test_other_worlds_reason_with_their_state() -> None:
    world = tool_env(make("TreeWorld")).world_class
    env = tool_env(make("TreeWorld"))
    env.reset(seed=0)
    assert isinstance(env.world, world)
    assert env.world.reasoning(env.world.optimal_calls()[0]) == env.world.state()


@pytest.mark.parametrize("arm", agentgym.ARMS)
def test_the_teacher_thinks_unless_it_is_told_all_and_plays_as_without(arm: str) -> None:
    env = make("ListWorld", items=6, removals=2, oracles=arm)
    for policy in (OraclePolicy("ListWorld"), NoisyPolicy("ListWorld", 0.5)):
        for seed in range(4):
            aloud, silent = rollout(ThinkingPolicy(policy), env, seed), rollout(policy, env, seed)
            calls = [
                [parse(step.reply.text).calls for step in played.steps]
                for played in (aloud, silent)
            ]
            assert calls[0] == calls[1]
            thought = [parse(step.reply.text).thinking for step in aloud.steps]
            assert [bool(text) for text in thought[:1]] == [not {"S", "P"} <= set(arm)]


def test_a_mixture_plays_the_env_that_the_seed_chooses() -> None:
    specs = [agentgym.spec("ListWorld", items=4 + k, removals=1) for k in range(3)]
    spec = mixture(specs)
    played = list(collect(OraclePolicy("ListWorld"), spec, range(7), num_envs=2))
    assert {t.seed: t.steps[0].chat for t in played} == {
        seed: gymnasium.make(specs[seed % 3]).reset(seed=seed)[0] for seed in range(7)
    }
    assert all(replay(trajectory) == trajectory for trajectory in played), (
        "its spec says what it is made of"
    )
    episode = Episode(gymnasium.make(spec), 1)
    episode.leave()
    assert (episode.trajectory().truncated, episode.trajectory().steps[0].ended) == (True, "left")
    with pytest.raises(ValueError, match="a mixture requires at least one spec"):
        gymnasium.make(mixture([]))


def test_hints_and_context_strategies_are_learnt_one_at_a_time() -> None:
    config = LearnConfig(
        horizons=(2, 3),
        arms=("", "PS"),
        contexts=("none", "clear_results", "compaction"),
        window=900,
    )
    cells = [("", "none"), ("PS", "none"), ("", "clear_results"), ("", "compaction")]
    assert config.cells() == cells
    envs = [gymnasium.make(spec) for spec in config.specs(config.cells())]
    for number, env in enumerate(envs):
        arm, context = cells[number % 4]
        stack = str(env)
        assert ("PlanOracle" in stack) == ("StateOracle" in stack) == (arm != "")
        assert ("ClearToolResults" in stack) == (context == "clear_results")
        assert ("Compaction" in stack) == (context == "compaction")
        env.reset(seed=0)
        assert len(tool_env(env).world.items) == (4 if number < 4 else 6)


def test_a_curve_drops_what_is_going_to_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / CURVE
    curve = Curve(path)
    points = [
        Point("teacher", 0, 0, 0.0, 1.0, 1.0),
        *(Point(p, k, 0, 0.0, 0.0, 0.0) for p in ("cloning", "rl") for k in (2, 4)),
    ]
    for point in points:
        curve.add(point)
    with path.open("a") as file:
        file.write('{"phase": "rl", "st')
    assert Curve(path).points == points
    again = Curve(path)
    again.truncate_after("rl", 2)
    assert again.points == Curve(path).points == points[:4]
    again.truncate_after("cloning", 2)
    assert Curve(path).points == points[:2]
    assert again.last("cloning") == points[1]
    assert again.last("rl") is None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("learn") / "whole"
    Learning(TINY, out).run()
    return out


def test_a_run_writes_its_curve_and_its_model(whole: Path) -> None:
    points = Curve(whole / CURVE).points
    steps = [(p.phase, p.step, p.episodes) for p in points]
    cloned = [("cloning", step, step * 18) for step in (0, 2, 4, 6)]
    rest = [("hints", 1, 7 * 18), ("hints", 2, 8 * 18), ("rl", 1, 144 + 16), ("rl", 2, 144 + 32)]
    assert steps == [("chance", 0, 0), ("teacher", 0, 0), *cloned, *rest]
    assert [p.seconds for p in points] == sorted(p.seconds for p in points)
    assert points[-1].seconds > 0
    env = mixture(TINY.specs([("", "none")]))
    assert points[-1].greedy == evaluate(load_policy(whole), env, TINY.episodes)
    assert json.loads((whole / "train.json").read_text())["arms"] == ["", "SP"]
    assert [
        len((whole / phase / "metrics.jsonl").read_text().splitlines())
        for phase in ("cloning", "hints", "rl")
    ] == [6, 2, 2]


def test_a_run_that_has_ended_is_not_repeated(whole: Path) -> None:
    before = Curve(whole / CURVE).points
    told: list[Any] = []
    assert Learning(TINY, whole).run(lambda *news: told.append(news)) == before
    assert told == [("cloning", 6, 6), ("hints", 2, 2), ("rl", 2, 2)], "only the ends"


def test_a_saved_model_plays_greedily_and_is_read_once(whole: Path) -> None:
    config = PolicyConfig(str(whole))
    policy = config.make("ListWorld")
    assert config.make("ListWorld") is policy
    env = make("ListWorld", items=2, removals=0, max_failed_rounds=1)
    texts = [
        [step.reply.text for step in rollout(player, env, 3).steps]
        for player in (policy, policy, load_policy(whole))
    ]
    assert texts[0] == texts[1] == texts[2]
    loaded: Any = policy
    assert (loaded.temperature, loaded.max_new_tokens) == (0.0, 8)


def test_the_figure_shows_phases_levels_and_both_ways_to_sample() -> None:
    points = [
        Point("chance", 0, 0, 0.0, 0.1, 0.1),
        Point("teacher", 0, 0, 0.0, 0.5, 0.5),
        Point("cloning", 0, 0, 0.0, 0.0, 0.0),
        Point("cloning", 5, 90, 10.0, 0.6, 0.4),
        Point("rl", 5, 730, 30.0, 0.9, 0.8),
    ]
    figure = learning_figure(points)
    (panel,) = figure.axes
    drawn = {
        str(line.get_label()): [
            list(map(float, data)) for data in (line.get_xdata(), line.get_ydata())
        ]
        for line in panel.lines
    }
    assert drawn["most probable tokens"] == [[0.0, 10.0, 30.0], [0.0, 60.0, 90.0]]
    assert drawn["sampled, temperature 1"][1] == [0.0, 40.0, 80.0]
    assert drawn["teacher"][1] == [50.0, 50.0]
    assert drawn["random legal play"][1] == [10.0, 10.0]
    (band,) = panel.patches
    assert (band.get_label(), band.get_x(), band.get_width()) == ("cloning", 0.0, 10.0)  # type: ignore[attr-defined]


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_trains_and_what_it_wrote_plays(
    at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        learn, "LearnConfig", partial(LearnConfig, groups=1, evaluations=1, **SIZES)
    )
    small = "--horizons 1 --oracles none --cloning 2 --rl 1 --episodes 2 --out t".split()
    shown = command("train", *small)
    assert shown.exit_code == 0, shown.output
    assert "teacher: " in shown.output
    assert "rl 1, 44 episodes" in shown.output
    assert (at / "t" / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert command("train", *small, "--seed", "1").exit_code == 2
    played = command(
        "rollout", "ListWorld", "--policy", "t", "--set", "items=2", "--set", "removals=0"
    )
    assert played.exit_code == 0, played.output
    assert "of 1" in played.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["train", "--horizons", "2,x"],
            "horizons must be a whole number, such as 60000 or 60k, got 'x'",
        ),
        (
            ["train", "--horizons", "2,2"],
            "horizons must list one or more distinct values, got [2, 2]",
        ),
        (["train", "--teacher", "noisy:p=2"], "p must be a number in [0.0, 1.0], got 2.0"),
        (["train", "--cloning", "0"], "cloning_steps must be an integer in"),
        (["train", "--set", "itmes=3"], "ListWorld has no option 'itmes'"),
        (["train", "--out", "file/t"], "file"),
        (["rollout", "ListWorld", "--policy", "empty"], "empty contains no trained model"),
        (["rollout", "ListWorld", "--policy", "nobody"], "or the folder of a trained model"),
    ],
)
def test_bad_input_is_one_clear_line_and_leaves_nothing_behind(
    at: Path, arguments: list[str], message: str
) -> None:
    (at / "file").write_text("a file where a folder should be")
    (at / "empty").mkdir()
    before = sorted(at.rglob("*"))
    shown = command(*arguments)
    assert shown.exit_code == 2, shown.output
    assert shown.stderr.startswith("error: ")
    assert len(shown.stderr.strip().splitlines()) == 1
    assert message in shown.stderr
    assert sorted(at.rglob("*")) == before


def test_another_run_in_the_folder_is_named(whole: Path) -> None:
    with pytest.raises(
        ValueError, match=r"contains a run with other settings: its .* \(see train.json\)"
    ):
        Learning(LearnConfig(**{**asdict(TINY), "seed": 5}), whole)


@pytest.mark.exhaustive
def test_the_default_run_takes_the_model_past_its_teacher(tmp_path: Path) -> None:
    config = LearnConfig()
    points = Learning(config, tmp_path).run()
    chance, teacher = points[:2]
    cloned = [point for point in points if point.phase == "cloning"]
    assert chance.sampled < 0.05
    assert cloned[0].greedy < 0.05
    assert teacher.sampled < 0.7
    assert cloned[-1].sampled < teacher.sampled + 0.1, "a clone is as good as its teacher"
    assert points[-1].sampled > teacher.sampled + 0.2, "and the reward takes it further"
    assert evaluate(load_policy(tmp_path), mixture(config.specs(config.cells())), 500) >= 0.9
