"""Compare the package's reader of order notes with an independent reader and with examples."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym.envs.loca.writing.order_notes import (
    amend,
    declines_mails,
    draw_changes,
    draw_mail_wish,
    draw_order_note,
    notes_book,
    read_amended,
)
from tests.envs.loca.note_reader import amended, declined

PRODUCTS = ("Desk 061", "Bed 014", "Stool 1005", "Gift Card", "Assembly")
KINDS = {*"set drop more fewer double same swap exchange only undo back".split()}


def draw_order(rng: np.random.Generator) -> dict[str, int]:
    chosen = rng.permutation(len(PRODUCTS))[: int(rng.integers(1, 5))]
    return {PRODUCTS[int(k)]: int(rng.integers(1, 4)) for k in chosen}


@pytest.mark.parametrize("seed", range(3))
def test_two_readers_agree_with_what_was_drawn(seed: int) -> None:
    rng, seen = np.random.default_rng(seed), Counter[str]()
    for _ in range(900):
        order, withdrawn = draw_order(rng), bool(rng.random() < 0.2)
        note, pieces = draw_order_note(rng, order, withdrawn=withdrawn)
        assert read_amended(order, note) == pieces == amended(order, note), (order, note)
        assert pieces.keys() == order.keys()
        assert all(count >= 0 for count in pieces.values())
        assert not withdrawn or not any(pieces.values())
        kinds = {kind for kind, _ in notes_book("furniture").read(note)}
        seen.update(kinds)
        seen["all dropped"] += not withdrawn and not any(pieces.values())
        seen["as listed in spite of changes"] += pieces == order and bool(kinds & KINDS)
        seen["some dropped"] += any(pieces.values()) and not all(pieces.values())
        seen["taken back after changes"] += withdrawn and bool(kinds & KINDS)
        seen["taken up again and changed"] += "restored" in kinds and pieces != order
    odd = ["all dropped", "as listed in spite of changes", "some dropped"]
    odd += ["taken back after changes", "taken up again and changed"]
    assert all(seen[name] >= 5 for name in (*notes_book("furniture").kinds, *odd)), seen


DESK, BED, CARD = "Desk 061", "Bed 014", "Gift Card"
ORDER = {DESK: 3, BED: 1, CARD: 2}
CASES = Path(__file__).with_name("order_notes.tsv").read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("line", CASES)
def test_what_a_note_changes(line: str) -> None:
    _, note, counts = line.split("\t")
    pieces = dict(zip(ORDER, json.loads(counts), strict=True))
    assert read_amended(ORDER, note) == pieces
    assert amended(ORDER, note) == pieces


def test_changes_that_say_the_same_in_another_order_come_last() -> None:
    """If other changes followed, "as many as of the other" would be ambiguous."""
    rng = np.random.default_rng(3)
    for _ in range(2_000):
        facts = draw_changes(rng, draw_order(rng))
        kinds = [kind for kind, _ in facts]
        rest = kinds[kinds.index("same") + 1 :] if "same" in kinds else []
        assert rest[:1] in ([], ["back"]), facts


def test_what_is_said_of_a_product_that_stays_is_true() -> None:
    rng = np.random.default_rng(4)
    for _ in range(1_000):
        order = draw_order(rng)
        note, pieces = draw_order_note(rng, order, withdrawn=False)
        for kind, said in notes_book("furniture").read(note):
            if kind in ("kept", "pondered"):
                assert pieces[said["product"]] == order[said["product"]], note
            if kind == "kept" and "count" in said:
                assert said["count"] == order[said["product"]]


def test_amendments_leave_the_order_as_it_is() -> None:
    order, facts = dict(ORDER), [("drop", {"product": DESK}), ("back", {})]
    assert amend(order, facts) == amend(order, []) == order == ORDER


@pytest.mark.parametrize("seed", range(3))
def test_the_last_word_on_mails_holds(seed: int) -> None:
    rng, seen = np.random.default_rng(seed), Counter[Any]()
    for _ in range(700):
        wants_none = bool(rng.random() < 0.4)
        note = draw_mail_wish(rng, declined=wants_none)
        assert declines_mails(note) == declined(note) == wants_none, note
        seen.update((kind, wants_none) for kind, _ in notes_book("books").read(note))
        # Most notes sound like a refusal, whether or not the customer declines emails.
        sounds = bool(re.search(r"\b(?:no|not|never|nobody)\b", note, re.I))
        seen["sounds", wants_none] += sounds
        seen["all", wants_none] += 1
    assert all(seen["elsewhere", wants_none] for wants_none in (True, False))
    assert seen["declined", False] > 20
    assert seen["invited", True] > 20
    for wants_none in (True, False):
        assert seen["sounds", wants_none] / seen["all", wants_none] > 0.6
