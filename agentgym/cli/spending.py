"""Options that limit a study's cost, and the estimate before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from agentgym.cli.common import parse_tokens, progress_bar
from agentgym.training.evaluation import (
    Ablation,
    Budget,
    Price,
    SpendingLimits,
    estimate,
    load_results,
)
from agentgym.training.evaluation.budget import REPLY_TOKENS, Estimate
from agentgym.training.evaluation.study_folder import result_cell
from agentgym.training.rollout import PolicyConfig
from agentgym.world.digests import digest

MaxCells = Annotated[
    int | None,
    typer.Option(help="Maximum episodes per policy in the folder, including earlier runs."),
]
MaxTokens = Annotated[
    str | None,
    typer.Option(metavar="TOKENS", help="Maximum tokens per policy, such as 5M."),
]
MaxCost = Annotated[
    float | None, typer.Option(help="Maximum cost per policy, computed with --price.")
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
ReplyTokens = Annotated[
    str, typer.Option(metavar="TOKENS", help="Assumed reply length in tokens, for the estimate.")
]
EstimateOnly = Annotated[
    bool, typer.Option("--estimate", help="Only estimate the cost of the run.")
]


def parse_limits(
    cells: int | None, tokens: str | None, cost: float | None, prices: list[str], policies: int
) -> list[SpendingLimits]:
    """Parse the limits of each policy."""
    if len(prices) not in (0, 1, policies):
        raise ValueError(
            f"--price was given {len(prices)} times for {policies} policies; give it once "
            "for all or once for each"
        )
    read = [parse_price(text) for text in prices] or [Price()]
    read *= policies if len(read) == 1 else 1
    most = parse_tokens("max_tokens", tokens)
    return [SpendingLimits(cells, most, cost, price) for price in read]


def parse_price(text: str) -> Price:
    """Parse a price per million prompt and reply tokens."""
    try:
        prompt, reply = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"--price takes PROMPT,REPLY, such as 0.15,0.6, got {text!r}") from None
    return Price(prompt, reply)


def limit_endpoint(policy: PolicyConfig, limit: SpendingLimits, out: Path) -> PolicyConfig:
    """Make an endpoint policy stop before a request exceeds its cost limit.

    Earlier runs in the study's folder `out` count.
    """
    if limit.cost is None or not policy.is_endpoint:
        return policy
    ledger = out / f"spent-{digest(policy.column)[:8]}"
    money = {
        "max_cost": limit.cost,
        "prompt_price": limit.price.prompt,
        "reply_price": limit.price.reply,
        "ledger": str(ledger.absolute()),
    }
    return replace(policy, transport={**money, **policy.transport})


def plan_budgets(
    ablations: Sequence[Ablation],
    limits: Sequence[SpendingLimits],
    out: Path,
    reply_tokens: str,
    *,
    show: bool,
) -> list[Budget]:
    """Return each policy's budget and print estimates.

    Estimates cover endpoint policies and limited ones; `show` prints all.
    """
    shown = [
        show or limit.counts_tokens or ablation.policy.is_endpoint
        for ablation, limit in zip(ablations, limits, strict=True)
    ]
    played = load_results(out) if any(shown) and out.is_dir() else []
    done = set(map(result_cell, played))
    size = parse_tokens("reply_tokens", reply_tokens) or REPLY_TOKENS
    budgets = []
    for ablation, limit, is_shown in zip(ablations, limits, shown, strict=True):
        tokens = {}
        if is_shown:
            missing = [cell for cell in ablation.cells() if cell not in done]
            with progress_bar() as progress:
                task = progress.add_task(
                    f"estimate for {ablation.policy.column}", total=len(missing)
                )
                expected = estimate(
                    ablation, missing, played, size, partial(progress.advance, task)
                )
            tokens = expected.tokens
            typer.echo(describe(ablation.policy.column, expected, limit.price))
        budgets.append(Budget(limit, tokens))
    return budgets


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
