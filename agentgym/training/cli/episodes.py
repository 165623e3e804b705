"""The commands `list` and `rollout`: worlds and their episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentgym.oracles.control import Deficits
from agentgym.registry import load_plugins, resolve, spec, teams, worlds
from agentgym.training.cli.common import (
    CONTEXT_HELP,
    BatchSize,
    Device,
    Distraction,
    DTypeName,
    MaxNewTokens,
    Noise,
    Options,
    Planning,
    PolicyName,
    Temperature,
    Template,
    Tracking,
    Window,
    exit_on_user_error,
    model_options,
    parse_options,
    parse_window,
    progress_bar,
    resume_hint,
)
from agentgym.training.rollout import ENGINES, Collector, PolicyConfig, Trajectory, TrajectoryLog

Oracles = Annotated[
    str, typer.Option(help="Which oracles help: letters of P (plan), S (state), H (history).")
]
Seed = Annotated[int, typer.Option(help="Seed of the first instance.")]


def list_worlds(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="Only ids in which all of these stand, in any case, such as grid."),
    ] = None,
) -> None:
    """List the worlds with their presets, and the teams."""
    parts = [word.lower() for word in words or ()]
    load_plugins()
    entries = [
        entry
        for entry in (*worlds(presets=True), *teams())
        if all(part in entry.id.lower() for part in parts)
    ]
    for entry in entries:
        options = " ".join(f"{name}={value}" for name, value in entry.options.items())
        typer.echo(f"{entry.id:34} {options or entry.summary}")
    if not entries:
        typer.echo(f"error: no id holds {' and '.join(parts)}; agentgym list shows all", err=True)
        raise typer.Exit(2)


def rollout(
    env_id: str,
    policy: PolicyName = "oracle",
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes.")] = 1,
    seed: Seed = 0,
    oracles: Oracles = "",
    context: Annotated[str, typer.Option(help=f"Context strategies: {CONTEXT_HELP}.")] = "none",
    window: Window = None,
    options: Options = [],  # noqa: B006
    noise: Noise = 0.1,
    planning: Planning = 0.0,
    tracking: Tracking = 0.0,
    distraction: Distraction = 0.0,
    device: Device = None,
    dtype: DTypeName = None,
    temperature: Temperature = 0.0,
    max_new_tokens: MaxNewTokens = None,
    batch_size: BatchSize = None,
    template: Template = [],  # noqa: B006
    num_envs: Annotated[int, typer.Option(help="The most episodes that are played at once.")] = 1,
    engine: Annotated[
        str, typer.Option(help=f"What plays them: {', '.join(ENGINES)}.")
    ] = "lockstep",
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which a step is given up, with its episode.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the trajectories to this JSONL file; what it holds is not played again."
        ),
    ] = None,
    show: Annotated[bool, typer.Option(help="Print the last chat of each episode.")] = False,
) -> None:
    """Let a policy play a world. With --out, the same command goes on where it was stopped."""
    with exit_on_user_error():
        config = PolicyConfig(
            policy,
            noise=noise,
            deficits=Deficits(planning, tracking, distraction),
            model=model_options(device, dtype, temperature, max_new_tokens, batch_size, template),
        )
        player = config.make(resolve(env_id))
        env_spec = spec(
            env_id,
            oracles=oracles,
            labels=True,
            context=context,
            window=parse_window(window),
            **parse_options(options),
        )
        collector = Collector(env_spec, num_envs, engine=engine, timeout=timeout)
        trajectories = collector.collect(
            player, range(seed, seed + episodes), out, {"policy": policy}
        )
        if out is not None:
            with TrajectoryLog(out).writing():
                pass  # says now if it cannot be written
    solved = broken = 0
    with resume_hint(), collector, progress_bar() as progress:
        for trajectory in progress.track(trajectories, total=episodes, description="episodes"):
            solved += not trajectory.failure and trajectory.steps[-1].info["success"]
            broken += bool(trajectory.failure)
            progress.console.print(_summary(trajectory), highlight=False)
            if show:
                progress.console.print(trajectory.last.to_text(), markup=False, highlight=False)
    typer.echo(
        f"solved {solved} of {episodes - broken}"
        + (f"; {broken} broke and are not counted" if broken else "")
        + (f"; {collector.retried} were begun again" if collector.retried else "")
    )
    if broken == episodes:
        raise typer.Exit(1)


def _summary(trajectory: Trajectory) -> str:
    if trajectory.failure:
        return f"seed {trajectory.seed}: {trajectory.failure}"
    faults = sum(len(step.info["detail"].get("faults", ())) for step in trajectory.steps)
    return (
        f"seed {trajectory.seed}: score {trajectory.reward}, "
        f"{trajectory.steps[-1].info['turn']} turns"
        + (f"; {faults} faults of tools, see info.detail.faults in the log" if faults else "")
    )
