"""The command `train`: train from scratch, or fine-tune a language model."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, TaskID

from agentgym.assemble.registry import is_team, resolve
from agentgym.cli.common import (
    CONTEXT_HELP,
    BatchSize,
    Device,
    DTypeName,
    MaxNewTokens,
    Options,
    Template,
    Window,
    exit_on_user_error,
    parse_arms,
    parse_options,
    parse_sizes,
    parse_tokens,
    progress_bar,
    resume_hint,
    show_table,
    split,
    without_none,
)
from agentgym.text.validation import list_names
from agentgym.training.evaluation import Result, Table, load_results, percent, summarize
from agentgym.training.extras import needs_extra
from agentgym.training.rl.learning_curve import PHASES, Curve, PhasedRun, Point, learning_figure
from agentgym.training.rollout.policies import read_seats

FIGURE = "learning_curve.png"
_TEAM_TEACHER = "noisy:p=0.2"


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        exists=True,
        dir_okay=False,
        help="A TOML file with fields of FineTuneConfig; --model, --seed and --setting override it.",
    ),
]
Model = Annotated[
    str | None, "Fine-tune this model: a transformers folder, a GGUF file, or smollm2."
]
World = Annotated[str, "The training world."]
Arms = Annotated[
    str, "Oracle arms in training, comma-separated; the learning curve uses the first."
]
Contexts = Annotated[str, f"Context strategies in training, comma-separated: {CONTEXT_HELP}."]
HintSteps = Annotated[
    int | None, "Steps of cloning in all arms and contexts, between cloning and GRPO; default 300."
]
Teacher = Annotated[
    str | None,
    "The policy to clone, in the form of rollout's --policy; default thinking:p=0.2 (noisy:p=0.2 "
    "for a team), or oracle with --model.",
]
Opponents = Annotated[
    list[str],
    "A policy for a team's seat that is not trained, as in player_1=oracle; may be repeated.",
]
Episodes = Annotated[
    int | None, "Held-out episodes; default 100 per evaluation, or 24 per cell with --model."
]
Pool = Annotated[
    str | None,
    "Opponents in the GRPO steps of a team, comma-separated: current, past, or a policy.",
]
Evaluation = Annotated[
    str | None,
    typer.Option(
        "--eval",
        help="Arms and horizons to evaluate before and after, as ORACLES:HORIZONS, e.g. none,P:2,3,4.",
    ),
]
Curriculum = Annotated[
    str | None, "GRPO curriculum: none, horizons (gradually longer), hints (gradually fewer)."
]
SamplerOptions = Annotated[
    list[str], "A sampler option as name=value, e.g. max_model_len=8192; may be repeated."
]
Settings = Annotated[
    list[str],
    "Another field of FineTuneConfig as name=value, e.g. clone_rate=1e-4; may be repeated.",
]
RunSeed = Annotated[int, typer.Option(min=0, help="Random seed of the weights and all samples.")]
Out = Annotated[Path, "Folder for the model, its checkpoints and its learning curve."]


def train(
    command: typer.Context,
    config: ConfigFile = None,
    model: Model = None,
    world: World = "ListWorld",
    horizons: Annotated[str, "Optimal episode lengths in training, comma-separated."] = "3",
    oracles: Arms = "none",
    context: Contexts = "none",
    window: Window = None,
    options: Options = [],  # noqa: B006
    cloning: Annotated[int | None, "Cloning steps; default 600, or 40 with --model."] = None,
    rl: Annotated[int | None, "GRPO steps after cloning; default 120, or 20 with --model."] = None,
    hints: HintSteps = None,
    episodes: Episodes = None,
    lora: Annotated[int | None, "Only train LoRA adapters of this rank."] = None,
    teacher: Teacher = None,
    opponent: Opponents = [],  # noqa: B006
    pool: Pool = None,
    method: Annotated[str | None, "clone, grpo or both."] = None,
    evaluation: Evaluation = None,
    curriculum: Curriculum = None,
    sampler: Annotated[str | None, "GRPO sampler: vllm."] = None,
    sampler_set: SamplerOptions = [],  # noqa: B006
    setting: Settings = [],  # noqa: B006
    max_new_tokens: MaxNewTokens = None,
    device: Device = None,
    dtype: DTypeName = None,
    batch_size: BatchSize = None,
    template: Template = [],  # noqa: B006
    seed: RunSeed = 0,
    out: Out = Path("runs/train"),
) -> None:
    """Train a small transformer from scratch, or fine-tune a language model, by cloning and GRPO.

    An interrupted command resumes.
    """
    if config is not None:
        with exit_on_user_error():
            settings = _read_config(command, config) | parse_options(setting, "--setting")
        finetune(settings, out)
        return
    with exit_on_user_error():
        settings = {
            "world": world,
            "horizons": parse_sizes(horizons),
            "arms": parse_arms(oracles),
            "contexts": split(context),
            "window": parse_tokens("window", window),
            "options": parse_options(options),
            "seed": seed,
        }
        if opponent:
            settings["opponents"] = _read_opponents(opponent)
        if teacher is None and model is None and is_team(resolve(world)):
            teacher = _TEAM_TEACHER
            typer.echo(f"teacher: {teacher}, because thinking:p=0.2 cannot play a team")
        tuning = {
            "lora": lora,
            "method": method,
            "curriculum": curriculum,
            "sampler": sampler,
            "sampler_options": parse_options(sampler_set, "--sampler-set") or None,
            "max_new_tokens": parse_tokens("max_new_tokens", max_new_tokens),
            "device": device,
            "dtype": dtype,
            "batch_size": batch_size,
            "template": parse_options(template) or None,
        }
        tuning |= _parse_cells(evaluation) | parse_options(setting, "--setting")
        tuning = without_none(tuning)
        steps: dict[str, Any] = {"rl_steps": rl, "episodes": episodes, "teacher": teacher}
        steps["pool"] = split(pool) if pool else None
        if model is None:
            _refuse(tuning, "requires --model; without it a small model is trained from scratch")
            steps |= {"cloning_steps": cloning, "hint_steps": hints}
        else:
            _refuse({"hints": hints}, "applies to training from scratch; omit it with --model")
            steps |= {"clone_steps": cloning, "model": model, **tuning}
        settings |= without_none(steps)
    (_learn if model is None else finetune)(settings, out)


def _read_config(command: typer.Context, path: Path) -> dict[str, Any]:
    # Compare parameter sources by name, because their class differs between typer releases.
    given = set()
    for name in command.params:
        source = command.get_parameter_source(name)
        if source and source.name == "COMMANDLINE":
            given.add(name)
    if other := sorted(given - {"config", "model", "seed", "setting", "out"}):
        flags = {each.name: each.opts[-1] for each in command.command.params}
        raise ValueError(
            f"{flags[other[0]]} cannot be used with --config; set the field of FineTuneConfig in {path} "
            "or with --setting"
        )
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not a valid TOML file: {error}") from None
    return settings | {name: command.params[name] for name in ("model", "seed") if name in given}


def _read_opponents(texts: list[str]) -> dict[str, str]:
    if wrong := [text for text in texts if not read_seats(text)]:
        raise ValueError(f"--opponent must be SEAT=POLICY, like player_1=oracle, got {wrong[0]!r}")
    return read_seats(",".join(texts))


def _refuse(options: dict[str, Any], reason: str) -> None:
    if given := list(without_none(options)):
        raise ValueError(f"{given[0]} {reason}")


def _learn(settings: dict[str, Any], out: Path) -> None:
    with exit_on_user_error():
        with needs_extra("training", "train"):
            from agentgym.training.rl.from_scratch import LearnConfig, Learning  # noqa: PLC0415 - slow to import, and an extra
        learning = Learning(LearnConfig(**settings), out)
    with resume_hint(out):
        _run(learning, out)
    typer.echo(f"wrote {out}, {learning.curve.path}, {out / FIGURE}")


def _run(run: PhasedRun[Any], out: Path) -> None:
    from agentgym.training.evaluation import drawing  # noqa: PLC0415 - matplotlib is slow to import

    with progress_bar() as progress:
        points = run.run(show_progress(run.curve, progress))
        drawing.save(learning_figure(points), out / FIGURE)


def finetune(settings: dict[str, Any], out: Path) -> None:
    """Fine-tune a model and compare its success before and after."""
    with exit_on_user_error():
        with needs_extra("fine-tuning", "train"):
            from agentgym.training.rl import FineTuneConfig, FineTuning  # noqa: PLC0415 - slow to import, and an extra
        names = [field.name for field in fields(FineTuneConfig)]
        if unknown := [name for name in settings if name not in names]:
            remedy = list_names(unknown[0], names, "settings")
            raise ValueError(f"unknown setting {unknown[0]!r}; {remedy}")
        tuning = FineTuning(FineTuneConfig(**settings), out)
    typer.echo(tuning.describe())
    with resume_hint(out), exit_on_user_error():
        _run(tuning, out)
    if tuning.config.episodes:
        show_table(comparison(load_results(out / "before"), load_results(out / "after")))
    typer.echo(f"wrote {out}, {tuning.curve.path}, {out / FIGURE}")


def show_progress(curve: Curve, progress: Progress) -> Callable[[str, int, int], None]:
    """Return a callback that shows progress, resumed phases and new points of the learning curve."""
    tasks: dict[str, TaskID] = {}
    shown = 0

    def on_progress(phase: str, step: int, steps: int) -> None:
        nonlocal shown
        if phase not in tasks:
            tasks[phase] = progress.add_task(phase)
            if step and phase in PHASES:
                progress.console.print(f"resumed {phase} after step {step:,} of {steps:,}")
        progress.update(tasks[phase], completed=step, total=steps)
        for point in curve.points[shown:]:
            progress.console.print(summarize_point(point), highlight=False)
        shown = len(curve.points)

    return on_progress


def summarize_point(point: Point) -> str:
    """Format a point of the learning curve for the terminal."""
    greedy = f"{100 * point.greedy:.0f} %"
    if point.phase in ("chance", "teacher"):
        return f"{point.phase}: {greedy} of held-out instances solved"
    sampled = f", {100 * point.sampled:.0f}% sampled" if point.sampled is not None else ""
    return (
        f"{point.phase} {point.step}, {point.episodes:,} episodes, {point.seconds:.0f} s: "
        f"{greedy} greedy{sampled}"
    )


def comparison(before: list[Result], after: list[Result]) -> Table:
    """Return success and step accuracy by arm and horizon, before and after fine-tuning."""
    columns = []
    for metric in ("success", "step_accuracy"):
        for results in (before, after):
            columns.append(summarize(results, ("arm", "context", "horizon"), metric))
    rows = []
    for key in sorted(columns[0], key=lambda key: key[::-1]):
        if all(key in column for column in columns):
            labels = [str(part) or "none" for part in key]
            rows.append([*labels, *(percent(column[key]) for column in columns)])
    header = ["arm", "context", "turns", "success before", "after", "step accuracy before", "after"]
    return f"{len(after)} held-out episodes before and after, % with 95% intervals", header, rows


def _parse_cells(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    arms, _, horizons = text.partition(":")
    if not split(horizons):
        raise ValueError(f"--eval must be ORACLES:HORIZONS, such as none,P:2,3,4, got {text!r}")
    return {"eval_arms": parse_arms(arms), "eval_horizons": parse_sizes(horizons)}
