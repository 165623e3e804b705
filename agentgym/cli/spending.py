"""Options that limit a study's cost, and the estimate before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli.common import progress_bar
from agentgym.training.evaluation import Ablation, Price, estimate, load_results
from agentgym.training.evaluation.budget import Estimate
from agentgym.training.evaluation.study_folder import result_cell
from agentgym.training.rollout import PolicyConfig
from agentgym.world.digests import digest

MaxCost = Annotated[
    float | None,
    typer.Option(min=0, help="Maximum cost per endpoint policy, computed with --price."),
]
Prices = Annotated[
    list[str],
    typer.Option(
        "--price",
        metavar="PROMPT,REPLY",
        help="Price per million prompt and reply tokens, such as 0.15,0.6; once for all "
        "policies or once for each.",
    ),
]
EstimateOnly = Annotated[
    bool, typer.Option("--estimate", help="Only estimate the cost of the run.")
]


def parse_prices(texts: list[str], policies: int) -> list[Price]:
    """Parse the price of each policy."""
    if len(texts) not in (0, 1, policies):
        raise ValueError(
            f"--price was given {len(texts)} times for {policies} policies; give it once "
            "for all or once for each"
        )
    read = [parse_price(text) for text in texts] or [Price()]
    return read * policies if len(read) == 1 else read


def parse_price(text: str) -> Price:
    """Parse a price per million prompt and reply tokens."""
    try:
        prompt, reply = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"--price takes PROMPT,REPLY, such as 0.15,0.6, got {text!r}") from None
    return Price(prompt, reply)


def limit_cost(
    policies: Sequence[PolicyConfig], prices: Sequence[Price], most: float | None, out: Path
) -> list[PolicyConfig]:
    """Make endpoint policies stop before a request exceeds the maximum cost.

    Earlier runs in the study's folder `out` count.

    Raises:
        ValueError: The cost is limited without a price, or no policy is behind an endpoint.
    """
    if most is None:
        return list(policies)
    if not any(policy.is_endpoint for policy in policies):
        raise ValueError(
            f"--max-cost {most:g} requires a policy behind an endpoint, such as "
            "agentgym.training.rollout.openai_policy:from_environment"
        )
    limited = []
    for policy, price in zip(policies, prices, strict=True):
        if policy.is_endpoint:
            if not price.prompt + price.reply:
                raise ValueError(f"--max-cost {most:g} requires token prices; set --price")
            ledger = out / f"spent-{digest(policy.column)[:8]}"
            money = {
                "max_cost": most,
                "prompt_price": price.prompt,
                "reply_price": price.reply,
                "ledger": str(ledger.absolute()),
            }
            policy = replace(policy, transport={**money, **policy.transport})  # noqa: PLW2901
        limited.append(policy)
    return limited


def show_estimates(
    ablations: Sequence[Ablation], prices: Sequence[Price], out: Path, *, show_all: bool
) -> None:
    """Print the expected cost of endpoint policies, or of all."""
    pairs = zip(ablations, prices, strict=True)
    shown = [pair for pair in pairs if show_all or pair[0].policy.is_endpoint]
    played = load_results(out) if shown and out.is_dir() else []
    done = set(map(result_cell, played))
    for ablation, price in shown:
        column = ablation.policy.column
        missing = [cell for cell in ablation.cells() if cell not in done]
        with progress_bar() as progress:
            task = progress.add_task(f"estimate for {column}", total=len(missing))
            expected = estimate(ablation, missing, played, partial(progress.advance, task))
        typer.echo(describe(column, expected, price))


def describe(policy: str, expected: Estimate, price: Price) -> str:
    """Format an estimate as one line."""
    prompt, reply = expected.total
    cost = price.of(expected.total)
    unknown = f"; {expected.unknown} unknown" if expected.unknown else ""
    return (
        f"estimate for {policy}: {expected.cells:,} cells, {prompt:,.0f} prompt tokens, "
        f"{reply:,.0f} reply tokens{f', cost {cost:,.2f}' if cost else ''} ({expected.measured} "
        f"estimated from played cells, the others from optimal play{unknown})"
    )
