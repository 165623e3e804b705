"""Options that limit a study's cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from agentgym.training.evaluation import Price
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
        raise ValueError(f"--price must be PROMPT,REPLY, such as 0.15,0.6, got {text!r}") from None
    return Price(prompt, reply)


def limit_cost(
    policies: Sequence[PolicyConfig], prices: Sequence[Price], most: float | None, out: Path
) -> list[PolicyConfig]:
    """Make endpoint policies stop before a request would exceed the maximum cost.

    The cost of earlier runs in `out` counts towards the maximum.

    Raises ValueError if a price is missing, or if no policy uses an endpoint.
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
