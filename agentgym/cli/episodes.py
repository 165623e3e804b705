"""The commands `list` and `rollout`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from gymnasium.envs.registration import EnvSpec

from agentgym.assemble.registry import load_plugins, resolve, spec, teams, worlds
from agentgym.cli.common import (
    CONTEXT_HELP,
    BatchSize,
    Device,
    DTypeName,
    EndpointOptions,
    MaxNewTokens,
    Options,
    SeatNames,
    Temperature,
    Template,
    Window,
    WorldId,
    check_window,
    console,
    endpoint_options,
    exit_on_user_error,
    fail,
    model_options,
    parse_tokens,
    parse_world_options,
    progress_bar,
    resume_hint,
)
from agentgym.training.rollout import ENGINES, Collector, PolicyConfig, Trajectory, TrajectoryLog
from agentgym.training.rollout.policies import read_seats
from agentgym.training.rollout.storage import keep_settings, read_settings
from agentgym.training.rollout.trajectory import OUTCOMES, Outcome

Oracles = Annotated[
    str,
    "Oracles: any of the letters P (plan), S (state), H (history; needs S) and, for teams, "
    "C (communication); P_, S_ and C_ are placebos.",
]
_TAKEN = ("oracles", "labels", "context", "window", "render_mode")
Seed = Annotated[int, typer.Option(min=0, help="Seed of the first instance.")]


def list_worlds(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Only ids that contain all these words, case-insensitive, such as grid."
        ),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Include presets and teams, without shortening lines.")
    ] = False,
) -> None:
    """List the worlds; with search words or --all, also list presets and teams."""
    parts = [word.lower() for word in words or ()]
    load_plugins()
    everything = (*worlds(presets=True), *teams())
    searched = everything if parts or show_all else worlds()
    entries = [entry for entry in searched if all(part in entry.id.lower() for part in parts)]
    if not entries:
        fail(f"error: no id contains {' and '.join(parts)}; agentgym list --all shows all")
    for entry in entries:
        options = " ".join(f"{name}={value}" for name, value in entry.options.items())
        line = f"{entry.id:34} {options or entry.summary}"
        if len(line) > console.width and not show_all:
            line = f"{line[: console.width - 1]}…"
        typer.echo(line)
    if not parts and (hidden := len(everything) - len(entries)):
        typer.echo(f"and {hidden} presets and teams: agentgym list --all, or agentgym list WORD")


def rollout(
    env_id: WorldId,
    policy: SeatNames = ["oracle"],  # noqa: B006
    episodes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of episodes.")] = 1,
    seed: Seed = 0,
    oracles: Oracles = "",
    context: Annotated[str, f"Context strategies: {CONTEXT_HELP}."] = "none",
    window: Window = None,
    options: Options = [],  # noqa: B006
    device: Device = None,
    dtype: DTypeName = None,
    temperature: Temperature = None,
    max_new_tokens: MaxNewTokens = None,
    batch_size: BatchSize = None,
    template: Template = [],  # noqa: B006
    endpoint: EndpointOptions = [],  # noqa: B006
    num_envs: Annotated[int, "Maximum concurrent episodes."] = 1,
    engine: Annotated[str, f"Engine: {', '.join(ENGINES)}."] = "lockstep",
    timeout: Annotated[
        float | None, "Step timeout in seconds, for engines other than lockstep."
    ] = None,
    out: Annotated[
        Path | None, "Append trajectories to this JSONL file; its episodes are not replayed."
    ] = None,
    show: Annotated[bool, "Print the last chat of each episode."] = False,
) -> None:
    """Let a policy play a world. With --out, rerunning an interrupted command resumes it."""
    with exit_on_user_error():
        if len(policy) > 1 and not all(map(read_seats, policy)):
            raise ValueError(
                f"rollout takes one policy, or one per seat, such as player_0=oracle, got "
                f"{', '.join(policy)}; compare policies with `agentgym ablate`"
            )
        config = PolicyConfig(
            ",".join(policy),
            model=model_options(device, dtype, temperature, max_new_tokens, batch_size, template),
            transport=endpoint_options(endpoint),
        )
        player = config.make(resolve(env_id))
        env_spec = spec(
            env_id,
            oracles=oracles,
            labels=True,
            context=context,
            window=parse_tokens("window", window),
            **parse_world_options(options, taken=_TAKEN),
        )
        _check(env_spec, seed, out, window, context)
        collector = Collector(env_spec, num_envs, engine=engine, timeout=timeout)
        trajectories = collector.collect(
            player, range(seed, seed + episodes), out, {"policy": config.name}
        )
        if out is not None:
            keep_run(out, collector.spec, config, seed)
    with resume_hint(out), collector:
        _print_episodes(collector, trajectories, episodes, show=show)


def _print_episodes(
    collector: Collector, trajectories: Iterable[Trajectory], episodes: int, *, show: bool
) -> None:
    solved = broken = 0
    seats: dict[str, Counter[Outcome]] = {}
    with progress_bar() as progress:
        for trajectory in progress.track(trajectories, total=episodes, description="episodes"):
            solved += not trajectory.failure and trajectory.steps[-1].info["success"]
            broken += bool(trajectory.failure)
            for seat, outcome in trajectory.outcomes().items():
                seats.setdefault(seat, Counter(dict.fromkeys(OUTCOMES, 0)))[outcome] += 1
            progress.console.print(_summary(trajectory), highlight=False)
            if show:
                progress.console.print(trajectory.last.to_text(), highlight=False)
    for seat, counts in seats.items():
        typer.echo(
            f"{seat}: {', '.join(f'{outcome} {count}' for outcome, count in counts.items())}"
        )
    counted = f"solved {solved} of {episodes - broken}"
    if seats:
        counted = f"played {episodes - broken}"
    if broken:
        counted += f"; {broken} failed and are not counted"
    if collector.retried:
        counted += f"; {collector.retried} restarted"
    typer.echo(counted)
    if broken == episodes:
        raise typer.Exit(1)


def _check(
    env_spec: EnvSpec, seed: int, out: Path | None, window: str | None, context: str
) -> None:
    if window is not None or "window=" in context:
        check_window(env_spec, seed)
    if out is not None and out.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file, such as {out / 'run.jsonl'}")


def keep_run(out: Path, env_spec: str, policy: PolicyConfig, seed: int) -> None:
    """Write the settings of a rollout next to its log, or compare them with the existing settings.

    Raises ValueError if the log belongs to another run, RunLockedError if it is being written.
    """
    spec_data = json.loads(env_spec)
    expected = {
        "world": spec_data["id"],
        "policy": policy.name,
        "seed": seed,
        "model": json.loads(policy.model.to_json()),
        "options": spec_data["kwargs"],
        "wrappers": spec_data["additional_wrappers"],
    }
    log = TrajectoryLog(out)
    with log.writing():
        kept = read_settings(log.settings, expected)
        if kept is None:
            for _ in log.of_run(env_spec, {"policy": policy.name}, alone=True):
                pass
        keep_settings(log.settings, expected, kept, out)


def _summary(trajectory: Trajectory) -> str:
    if trajectory.failure:
        return f"seed {trajectory.seed}: {trajectory.failure}"
    ended = trajectory.steps[-1].info["detail"]["ended"]
    faults = sum(len(step.info["detail"].get("faults", ())) for step in trajectory.steps)
    outcomes = "".join(f", {seat} {each}" for seat, each in trajectory.outcomes().items())
    turns = trajectory.steps[-1].info["turn"]
    text = f"seed {trajectory.seed}: score {trajectory.reward}{outcomes}, {turns} turns"
    if ended == "over_window":
        text += "; over the model's context window"
    if faults:
        text += f"; {faults} tool faults, see info.detail.faults in the log"
    return text
