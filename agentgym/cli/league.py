"""The command `league`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli.common import (
    BatchSize,
    Device,
    DTypeName,
    EndpointOptions,
    MaxNewTokens,
    Options,
    PolicyNames,
    Temperature,
    Template,
    exit_on_user_error,
    model_options,
    parse_options,
    policy_configs,
    progress_bar,
    resume_hint,
    show_table,
    split_label,
)
from agentgym.training.evaluation.leagues import League, league_tables, play_league

World = Annotated[str, "A team whose agents compete."]


def league(
    world: World = "PursuitWorld-match",
    policy: PolicyNames = ["random", "noisy:p=0.2", "oracle"],  # noqa: B006
    episodes: Annotated[int, "Instances, on which all line-ups play."] = 20,
    options: Options = [],  # noqa: B006
    device: Device = None,
    dtype: DTypeName = None,
    temperature: Temperature = None,
    max_new_tokens: MaxNewTokens = None,
    batch_size: BatchSize = None,
    template: Template = [],  # noqa: B006
    endpoint: EndpointOptions = [],  # noqa: B006
    out: Annotated[Path, "Folder for trajectories and settings."] = Path("runs/league"),
) -> None:
    """Play all pairs of policies in all seats, and rate the policies. An
    interrupted league resumes. If policies or episodes are added, only the missing games are
    played.
    """
    with exit_on_user_error():
        model = model_options(device, dtype, temperature, max_new_tokens, batch_size, template)
        policies = policy_configs(map(split_label, policy), model, endpoint)
        settings = League(
            world=world, policies=policies, episodes=episodes, options=parse_options(options)
        )
    with progress_bar() as progress, resume_hint(out), exit_on_user_error():
        total = episodes * len(settings.line_ups())
        task = progress.add_task("games", total=total)
        games = play_league(settings, out, lambda count: progress.advance(task, count))
    for table in league_tables(settings, games):
        show_table(table)
    if missing := total - len(games):
        typer.echo(f"{missing} games failed; rerun the command to play them again", err=True)
        raise typer.Exit(1)
