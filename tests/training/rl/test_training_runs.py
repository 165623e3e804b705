from __future__ import annotations

import copy
import json
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from typer.testing import CliRunner

from agentgym.cli import app
from agentgym.training.evaluation import evaluate
from agentgym.training.rl import (
    GRPO,
    TRAIN_SEED,
    Cloning,
    CloningConfig,
    GRPOConfig,
    Trainer,
)
from agentgym.training.rl.cloning import Tokenized
from agentgym.training.rollout import Collector, DamagedFileError, LocalPolicy, RunLockedError
from tests.training.rl.echo_trainers import (
    Echo,
    make_words_tokenizer,
    parameters,
    small_model,
    stop_at,
    wavering_model,
)
from tests.training.rl.echo_world import make_env
from tests.training.rollout.disk import full_disk

KINDS = ["cloning", "grpo"]


Start = Callable[..., Trainer[Any]]


@pytest.fixture(scope="module")
def start() -> Start:
    tokenizer = make_words_tokenizer()
    wavering = wavering_model(tokenizer, turns=2)

    def begin(kind: str, out: Path | None, **changes: Any) -> Trainer[Any]:
        model = copy.deepcopy(wavering)
        common: dict[str, Any] = {"steps": 6, "save_every": 3, "num_envs": 4, **changes}
        if kind == "cloning":
            return Cloning(
                Echo(), model, tokenizer, make_env, CloningConfig(episodes=4, **common), out
            )
        common = {"max_new_tokens": 4, "kl": 0.1, "epochs": 2, "minibatches": 2, **common}
        common |= {"groups": 2, "group_size": 2, "importance_cap": 2.0}
        return GRPO(model, tokenizer, lambda: make_env(2), GRPOConfig(**common), out)

    return begin


def logged(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.rotation(kind=KINDS)
def test_a_run_that_was_stopped_goes_on_exactly(start: Start, kind: str, tmp_path: Path) -> None:
    whole = start(kind, tmp_path / "whole")
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        start(kind, tmp_path / "cut").train(stop_at(5))
    assert [line["step"] for line in logged(tmp_path / "cut")] == [1, 2, 3, 4, 5]
    resumed = start(kind, tmp_path / "cut")
    assert resumed.step == 3, "the last checkpoint"
    assert not torch.equal(parameters(resumed), parameters(whole))
    resumed.train()
    assert torch.equal(parameters(resumed), parameters(whole))
    assert logged(tmp_path / "cut") == logged(tmp_path / "whole"), (
        "steps 4 and 5, which were repeated, are there once"
    )
    assert [line["step"] for line in logged(tmp_path / "whole")] == [1, 2, 3, 4, 5, 6]
    assert whole.source.seeds(1)[0] >= TRAIN_SEED, "evaluation has the seeds from 0 on"
    assert max(line["grad_norm"] for line in logged(tmp_path / "whole")[3:]) > 0.1, (
        "there was something to learn"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_random_choices_depend_only_on_the_step(start: Start, kind: str, tmp_path: Path) -> None:
    def begin(out: Path) -> Trainer[Any]:
        trainer: Any = start(kind, out, learning_rate=1e-2)
        teacher = LocalPolicy(start(kind, None).model, trainer.tokenizer, 1.0, 3)
        trainer.teacher = Tokenized(teacher, trainer.renderer)
        for module in trainer.model.train().modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.3
        return trainer

    (whole := begin(tmp_path / "whole")).train()
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path / "cut").train(stop_at(5))
    (resumed := begin(tmp_path / "cut")).train()
    assert torch.equal(parameters(resumed), parameters(whole))


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(
    start: Start, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        start("cloning", tmp_path).train(stop_at(2))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    start("cloning", tmp_path).train()
    assert [line["step"] for line in logged(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_tensorboard_shows_each_step_once(start: Start, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415 - slow

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        start("grpo", tmp_path, tensorboard=True).train(stop_at(5))
    assert threading.active_count() == before
    start("grpo", tmp_path, tensorboard=True).train()
    assert threading.active_count() == before
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    lines = logged(tmp_path)
    assert sorted(events.Tags()["scalars"]) == sorted(
        {name for line in lines for name in line} - {"step"}
    )
    for name in events.Tags()["scalars"]:
        found = [(event.step, event.value) for event in events.Scalars(name)]
        expected = [
            (line["step"], pytest.approx(line[name], rel=1e-5)) for line in lines if name in line
        ]
        assert found == expected, name


def test_tensorboard_is_an_extra(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(
        ImportError,
        match=r"tensorboard=True needs its extra: pip install 'agentgym-suite\[tensorboard\]'",
    ):
        start("cloning", tmp_path, tensorboard=True).train()


def test_a_checkpoint_is_for_the_run_that_wrote_it(start: Start, tmp_path: Path) -> None:
    start("grpo", tmp_path, steps=1).train()
    with pytest.raises(
        ValueError,
        match="has model, reference, but this run has model; continue with the trainer",
    ):
        start("cloning", tmp_path)
    assert not list(tmp_path.glob("*.new")), "files are written beside their place, and moved there"


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore::UserWarning:peft")
def test_a_checkpoint_is_for_the_weights_that_it_contains(tmp_path: Path) -> None:
    def begin(out: str, targets: str = "", width: int = 32) -> Cloning:
        tokenizer = make_words_tokenizer()
        model: Any = small_model(tokenizer, width)
        if targets:
            model = get_peft_model(model, LoraConfig(target_modules=[targets], fan_in_fan_out=True))
        config = CloningConfig(steps=1, episodes=2)
        return Cloning(Echo(), model, tokenizer, make_env, config, tmp_path / out)

    begin("whole").train()
    begin("adapter", "c_attn").train()
    for out, targets, width in (("whole", "", 64), ("whole", "c_fc", 32), ("adapter", "c_fc", 32)):
        with pytest.raises(ValueError, match=r"has other weights: .*; continue with"):
            begin(out, targets, width)


def test_a_run_without_a_folder_leaves_nothing(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start("cloning", None, steps=1, tensorboard=True).train()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_global_generators_are_left_alone(start: Start, kind: str) -> None:
    before = torch.get_rng_state(), random.getstate()
    start(kind, None, steps=1).train()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


COLLECT = Collector.collect


def broken(monkeypatch: pytest.MonkeyPatch, share: int) -> None:
    def breaking(*args: Any, **options: Any) -> Iterator[Any]:
        for k, trajectory in enumerate(COLLECT(*args, **options)):
            failed = replace(
                trajectory, steps=(), terminated=False, truncated=True, failure="the worker died"
            )
            yield failed if k % share == 0 else trajectory

    monkeypatch.setattr(Collector, "collect", breaking)


@pytest.mark.parametrize("kind", KINDS)
def test_failures_are_dropped_and_counted(
    start: Start, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, 4)
    start(kind, tmp_path, steps=1).train()
    metrics: Any
    (metrics,) = logged(tmp_path)
    assert metrics["lost"] == [{"seed": TRAIN_SEED, "failure": "the worker died"}]
    assert (metrics["failures"], metrics["retried"]) == (1, 0)
    assert metrics["truncated"] == 0
    assert metrics["turns"] == (1 if kind == "cloning" else 2)
    assert kind != "cloning" or metrics["reward"] == metrics["success"] == 1.0, (
        "a failure is no lost episode"
    )
    broken(monkeypatch, 1)
    with pytest.raises(RuntimeError, match="none of 4 episodes was completed: the worker died; f"):
        start(kind, None, steps=1).train()


def test_failures_do_not_count_in_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, 2)
    assert evaluate(Echo(), make_env, 10) == 1.0
    broken(monkeypatch, 1)
    with pytest.raises(RuntimeError, match="none of 10 episodes was completed"):
        evaluate(Echo(), make_env, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_episodes_can_be_played_by_workers_that_stay_for_the_run(start: Start, kind: str) -> None:
    others = set(threading.enumerate())  # earlier tests may have left hung threads
    opened: list[set[threading.Thread]] = []

    def look(step: int, metrics: Mapping[str, float]) -> None:
        assert metrics["failures"] == 0
        opened.append(set(threading.enumerate()) - others)

    start(kind, None, steps=3, engine="threads", timeout=60.0, num_envs=2).train(look)
    assert opened[0]
    assert opened[0] <= opened[1] <= opened[2], "more may be started, and none ends before the run"
    for thread in opened[-1]:
        assert thread.name == "agentgym-env"
        thread.join(60)
        assert not thread.is_alive()


def test_a_folder_has_one_trainer(start: Start, tmp_path: Path) -> None:
    def begin_another(step: int, metrics: Mapping[str, float]) -> None:
        before = logged(tmp_path)
        with pytest.raises(RunLockedError, match=f"{tmp_path.name} is being written by process"):
            start("cloning", tmp_path).train()
        assert logged(tmp_path) == before

    start("cloning", tmp_path, steps=1).train(begin_another)


@pytest.mark.rotation(kind=KINDS)
def test_a_training_on_a_full_disk_goes_on_when_there_is_room(
    start: Start, kind: str, tmp_path: Path
) -> None:
    start(kind, tmp_path / "whole").train()
    size = (tmp_path / "whole" / "checkpoint.pt").stat().st_size
    with pytest.raises(KeyboardInterrupt):
        start(kind, tmp_path / "cut").train(stop_at(4))
    with full_disk(size // 2), pytest.raises(OSError, match="too large"):
        start(kind, tmp_path / "cut").train()
    assert not list((tmp_path / "cut").glob("*.new"))
    resumed = start(kind, tmp_path / "cut")
    assert resumed.step == 3, "the checkpoint before is whole"
    resumed.train()
    assert logged(tmp_path / "cut") == logged(tmp_path / "whole")


@pytest.mark.rotation(damage=[b"", b"PK", None])
def test_a_checkpoint_that_is_not_whole_is_named_and_moved_aside(
    start: Start, tmp_path: Path, damage: bytes | None
) -> None:
    start("cloning", tmp_path, steps=2).train()
    path = tmp_path / "checkpoint.pt"
    if damage is None:
        torch.save({"model": {}}, path)
    else:
        path.write_bytes(damage)
    with pytest.raises(
        DamagedFileError, match=r"checkpoint.pt: it is an incomplete checkpoint \(.*doctor"
    ):
        start("cloning", tmp_path, steps=2)
    shown = CliRunner().invoke(app, ["doctor", str(tmp_path)])
    assert (shown.exit_code, "training restarts this phase" in shown.output) == (1, True)
    assert CliRunner().invoke(app, ["doctor", str(tmp_path), "--repair"]).exit_code == 0
    assert (tmp_path / "checkpoint.pt.damaged").exists()
    assert start("cloning", tmp_path, steps=2).step == 0


def test_a_damaged_line_of_metrics_is_named_and_moved_aside(start: Start, tmp_path: Path) -> None:
    start("cloning", tmp_path, steps=3, save_every=1).train()
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"step": 2', b'{"step" 2'))
    with pytest.raises(
        DamagedFileError, match=r"metrics.jsonl, line 2: it lacks the figures of a step"
    ):
        start("cloning", tmp_path, steps=4).train()
    assert CliRunner().invoke(app, ["doctor", str(tmp_path), "--repair"]).exit_code == 0
    start("cloning", tmp_path, steps=4).train()
    assert [line["step"] for line in logged(tmp_path)] == [1, 3, 4]


@pytest.mark.parametrize("settings", ["train.json", "finetune.json"])
def test_damaged_settings_of_training_are_moved_aside(tmp_path: Path, settings: str) -> None:
    (tmp_path / settings).write_text("{}")
    (tmp_path / "curve.jsonl").write_text('{"phase": 1\n')
    shown = CliRunner().invoke(app, ["doctor", str(tmp_path), "--repair"])
    assert shown.exit_code == 0
    problem = "it contains no run settings (setting names must match the defaults)"
    assert f"{settings}: {problem}" in shown.output
    assert "curve.jsonl, line 1: it is unreadable" in shown.output
    assert (tmp_path / f"{settings}.damaged").exists()
