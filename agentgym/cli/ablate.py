"""The commands `ablate`, `score` and `compare`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from agentgym.assemble.registry import make
from agentgym.cli.common import (
    CONTEXT_HELP,
    OPTION_HELP,
    BatchSize,
    Device,
    DTypeName,
    EndpointOptions,
    MaxNewTokens,
    PolicyNames,
    Temperature,
    Template,
    Window,
    check_window,
    console,
    exit_on_user_error,
    join_seats,
    model_options,
    parse_arms,
    parse_sizes,
    parse_tokens,
    parse_world_options,
    policy_configs,
    progress_bar,
    resume_hint,
    show_table,
    split,
    split_label,
)
from agentgym.cli.spending import MaxCost, Prices, limit_cost, parse_prices
from agentgym.oracles import ARMS
from agentgym.text.validation import check_choice, check_int
from agentgym.training.evaluation import (
    Ablation,
    Result,
    ablation_tables,
    load_folders,
    load_results,
    papers,
    prepare_ablation,
    presets,
    run_ablation,
    write_report,
)
from agentgym.training.extras import needs_extra
from agentgym.training.rollout import BudgetError, RunLock
from agentgym.training.rollout.policies import read_seats
from agentgym.training.rollout.seat_policies import agents_of

_FIRST_PRESET = next(iter(presets()))
_ARMS = ",".join(arm or "none" for arm in ARMS)
_PROCESSORS = os.cpu_count() or 1
_PRESET = f"Defaults of the next five options: {', '.join(presets())}."
_TAKEN = (
    *("oracles", "hint_scope", "oracle_options", "shots", "labels"),
    *("context", "window", "render_mode"),
)
_SIZES = (
    f"Task sizes, comma-separated: {'; '.join(paper.sizes for paper in papers() if paper.sizes)}."
)

# A scripted policy that makes a few errors of each kind, so that every oracle can help it.
_POLICY = "control:planning=0.02:tracking=0.01:distraction=0.002"

Axis = Annotated[str | None, "Meaning of the sizes: horizon, or a world option such as removals."]
ContextList = Annotated[str, f"Context strategies to compare, comma-separated: {CONTEXT_HELP}."]
Workers = Annotated[int, typer.Option(min=1, max=1_024, help="Number of processes.")]


def ablate(
    preset: Annotated[str, _PRESET] = _FIRST_PRESET,
    world: Annotated[str | None, "Worlds, comma-separated."] = None,
    oracles: Annotated[
        str | None,
        f"Oracle arms, comma-separated. The paper's: {_ARMS}. Others: "
        "P_ (placebo), P0 (wrong hints), P0.5 (right with this probability), and likewise S.",
    ] = None,
    horizons: Annotated[str | None, _SIZES] = None,
    axis: Axis = None,
    episodes: Annotated[int | None, "Episodes per cell, on instances shared by all cells."] = None,
    samples: Annotated[int, "Episodes per instance, with different policy samples."] = 1,
    policy: PolicyNames = [_POLICY],  # noqa: B006
    device: Device = None,
    dtype: DTypeName = None,
    temperature: Temperature = None,
    max_new_tokens: MaxNewTokens = None,
    batch_size: BatchSize = None,
    template: Template = [],  # noqa: B006
    endpoint: EndpointOptions = [],  # noqa: B006
    hint_scope: Annotated[str, "persistent or ephemeral."] = "persistent",
    shots: Annotated[int, "In-context examples."] = 0,
    context: ContextList = "none",
    window: Window = None,
    options: Annotated[
        list[str], typer.Option("--set", help=f"{OPTION_HELP}, or World.name=value for one world.")
    ] = [],  # noqa: B006
    out: Annotated[Path, "Folder for trajectories, results and figures."] = Path("runs/ablation"),
    workers: Workers = _PROCESSORS,
    max_cost: MaxCost = None,
    price: Prices = [],  # noqa: B006
) -> None:
    """Run an ablation of oracles and context strategies. An interrupted run resumes. If seeds,
    sizes, arms, contexts, samples or policies are added, only the missing episodes are played.
    """
    with exit_on_user_error():
        model = model_options(device, dtype, temperature, max_new_tokens, batch_size, template)
        settings = _from_preset(preset, world, oracles, horizons, episodes, window, options, axis)
        seats = _seats(settings) if any(map(read_seats, policy)) else ()
        names = join_seats(policy, seats)
        prices = parse_prices(price, len(names))
        policies = limit_cost(policy_configs(names, model, endpoint), prices, max_cost, out)
        settings |= {"hint_scope": hint_scope, "shots": shots, "samples": samples}
        settings |= {"contexts": split(context)}
        ablations = [Ablation(**settings, policy=each) for each in policies]
        _check_windows(ablations[0], window)
        for ablation in ablations:
            prepare_ablation(ablation, out)
            if ablation.policy.is_model:  # report a missing model before playing
                ablation.policy.make(ablation.worlds[0])
    _play(ablations, out, workers)


def _play(ablations: list[Ablation], out: Path, workers: int) -> None:
    losses: list[str] = []
    stopped = False
    with progress_bar() as progress, resume_hint(out):
        task = progress.add_task("episodes", total=sum(len(each.cells()) for each in ablations))
        for ablation in ablations:
            try:
                results = run_ablation(
                    ablation,
                    out,
                    workers,
                    lambda episodes: progress.advance(task, episodes),
                    lambda cell, cause: losses.append(f"lost: {cell}: {cause}"),
                )
            except BudgetError:
                stopped = True
                results = load_results(out)
        if results:
            _report(results, out)
    if stopped:
        typer.echo("the budget is exhausted; rerun with a larger one to play the rest", err=True)
    if losses:
        count = f"{len(losses)} cells failed and are missing from all figures"
        typer.echo("\n".join([*losses, f"{count}; rerun the command to play them again"]), err=True)
    if losses or stopped:
        raise typer.Exit(1)


def _seats(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the agents of the first world; `Ablation` checks the others."""
    world, options = settings.get("worlds", Ablation.worlds)[0], settings["options"]
    env = make(world, **{**options.get("", {}), **options.get(world, {})})
    env.close()
    return agents_of(env)


def _check_windows(ablation: Ablation, window: str | None) -> None:
    for name, strategies in product(ablation.worlds, ablation.contexts):
        if window is not None or "window=" in strategies:
            smallest = min(ablation.horizons)
            check_window(ablation.spec(name, ablation.arms[0], strategies, smallest), 0)


def _from_preset(
    preset: str,
    world: str | None,
    oracles: str | None,
    sizes: str | None,
    episodes: int | None,
    window: str | None,
    options: list[str],
    axis: str | None,
) -> dict[str, Any]:
    check_choice("preset", preset, list(presets()))
    readers: dict[str, tuple[str | None, Callable[[str], Any]]] = {
        "worlds": (world, split),
        "arms": (oracles, parse_arms),
        "horizons": (sizes, parse_sizes),
        "axis": (axis, str),
        "window": (window, partial(parse_tokens, "window")),
    }
    settings = dict(presets()[preset])
    for name, (text, read) in readers.items():
        if text is not None:
            settings[name] = read(text)
    if episodes is not None:
        check_int("episodes", episodes, 1, 1_000_000)
        settings["seeds"] = episodes
    by_world = {name: dict(values) for name, values in settings.get("options", {}).items()}
    for path, value in parse_world_options(options, taken=_TAKEN).items():
        name, _, option = path.rpartition(".")
        by_world.setdefault(name, {})[option] = value
    return {**settings, "options": by_world}


def score(
    folder: Annotated[Path, "A folder written by `agentgym ablate`."],
) -> None:
    """Recompute the results, tables and figures of an ablation from its trajectories."""
    with exit_on_user_error():
        with console.status("scoring trajectories"):
            results = load_results(folder)
        if not results:
            raise ValueError(
                f"{folder} contains no trajectories; run: agentgym ablate --out {folder}"
            )
        _report(results, folder)


def compare(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER...",
            help="Folders written by `agentgym ablate`, or Inspect's logs of the task agentgym/world; "
            "NAME=FOLDER renames their policies.",
        ),
    ],
    out: Annotated[Path, "Folder for results, tables and figures."] = Path("runs/compare"),
) -> None:
    """Compare the policies of several studies; differences are paired on common instances."""
    with exit_on_user_error():
        named = {Path(path): name for name, path in map(split_label, folders)}
        if len(named) != len(folders):
            raise ValueError("name each folder only once")
        if out in named:
            raise ValueError(f"--out {out} is one of the compared folders; choose another")
        with console.status("scoring trajectories"), TemporaryDirectory() as converted:
            results = load_folders(dict(_run_folders(named, Path(converted))))
        _report(results, out)


def _run_folders(named: Mapping[Path, str], converted: Path) -> Iterator[tuple[Path, str]]:
    for path, name in named.items():
        if not path.is_file():
            yield path, name
            continue
        with needs_extra("reading Inspect logs", "inspect"):
            from agentgym.training.integrations.inspect_tasks import to_run_folder  # noqa: PLC0415 - an extra
        to_run_folder(path, converted / path.stem)
        yield converted / path.stem, name


def _report(results: list[Result], out: Path) -> None:
    with console.status("tables and figures"), RunLock(out):
        paths = write_report(results, out)
    for table in ablation_tables(results):
        show_table(table)
    typer.echo("wrote " + ", ".join(map(str, paths)))
