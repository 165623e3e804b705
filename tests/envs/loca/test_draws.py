"""Distributions of random choices and values."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from agentgym.envs.loca.draws import DrawnValues, pick, pick_by_share
from agentgym.envs.loca.writing.phrase_book import COMMON_SLOTS, PhraseBook

ITEMS = ["a", "b", "c", "d", "e"]


def test_pick_draws_what_choice_draws() -> None:
    ours, theirs = np.random.default_rng(3), np.random.default_rng(3)
    assert [pick(ours, ITEMS) for _ in range(200)] == [theirs.choice(ITEMS) for _ in range(200)]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.2, 0.3, 0.1, 0.4), (0.2, 0.3, 0.1, 0.4)),
        ((0.0, 1.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)),
        ((0.7, 0.1, 0.2, 1.0), (0.7, 0.1, 0.2, 0.0)),
        ((0.5, 0.1), (0.5, 0.5)),
    ],
)
def test_pick_by_share_draws_with_the_shares(
    shares: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    rng = np.random.default_rng(0)
    by_item = dict(zip(ITEMS, shares, strict=False))
    counts = Counter(pick_by_share(rng, by_item) for _ in range(4_000))
    for item, share in zip(by_item, expected, strict=True):
        assert abs(counts[item] / 4_000 - share) < 0.03  # nearly four standard errors


def test_values_are_drawn_only_for_sentences_that_have_their_slot() -> None:
    rng, drawn = np.random.default_rng(0), Counter[str]()

    def number() -> int:
        drawn["number"] += 1
        return int(rng.integers(10))

    values = DrawnValues({"number": number}, name="Ada")
    phrases = {"plain": ["Nothing [else|more]."], "one": ["{number} of {name}."]}
    book = PhraseBook(phrases, COMMON_SLOTS)
    for _ in range(20):
        book.write("plain", rng, values)
    assert not drawn
    texts = {book.write("one", rng, values) for _ in range(50)}
    assert drawn["number"] == 50  # drawn again for each sentence
    assert texts == {f"{k} of Ada." for k in range(10)}
    with pytest.raises(KeyError):
        values["other"]
