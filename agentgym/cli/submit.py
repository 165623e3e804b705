"""The commands `submit` and `review`: write results to one file, and check the file."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli.common import exit_on_user_error
from agentgym.training.evaluation.study_folder import SETTINGS, log_of
from agentgym.training.evaluation.submission import REPLAYS, SUBMISSION, Submission, objections
from agentgym.training.rollout.storage import write_text

RunFolder = Annotated[Path, typer.Argument(help="A folder written by `agentgym ablate`.")]


def submit(
    run: RunFolder,
    out: Annotated[Path | None, f"The file to write; {SUBMISSION} in the run by default."] = None,
) -> None:
    """Write the results of a complete run on the test split as a file that others can check."""
    out = out or run / SUBMISSION
    with exit_on_user_error():
        if out.resolve() in ((run / SETTINGS).resolve(), log_of(run).path.resolve()):
            raise ValueError(f"--out {out} would replace a file of the run; choose another file")
        submission = Submission.of(run)
        _show(list(objections(submission, run, replays=0)), run)
        write_text(out, submission.to_json())
    typer.echo(
        f"wrote {out}; publish it with the run folder, and check it: agentgym review {out} {run}"
    )


def review(
    submission: Annotated[Path, "A file written by `agentgym submit`."],
    run: RunFolder,
    replay: Annotated[int, typer.Option(min=0, help="Maximum episodes to replay.")] = REPLAYS,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Chooses the episodes to replay; random by default.")
    ] = None,
) -> None:
    """Check a submission against its episodes and replay a sample; exit with 1 if it is rejected."""
    # A known seed would let a forger change only the other episodes.
    seed = secrets.randbelow(2**32) if seed is None else seed
    with exit_on_user_error():
        if not submission.is_file():
            raise ValueError(f"{submission} does not exist; name a file from `agentgym submit`")
        _show(list(objections(Submission.load(submission), run, replay, seed)), run)
    typer.echo(f"{submission} agrees with {run} (checked with --replay {replay} --seed {seed})")


def _show(reasons: list[str], run: Path) -> None:
    for reason in reasons:
        typer.echo(reason)
    if reasons:
        typer.echo(f"{run} cannot be accepted")
        raise typer.Exit(1)
