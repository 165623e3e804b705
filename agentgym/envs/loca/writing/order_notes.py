"""Customer notes in shop orders."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from numpy.random import Generator

from agentgym.envs.loca.draws import DrawnValues, load_texts, pick, shuffled, whole
from agentgym.envs.loca.records import Fields
from agentgym.envs.loca.writing.phrase_book import (
    COMMON_SLOTS,
    NUMBERS,
    PhraseBook,
    PhraseSlot,
    read_number,
)

# Type of shop, which selects the sentences in a note.
Shop: TypeAlias = Literal["furniture", "services", "books"]
# A statement: the kind of phrase, and a mapping from slots to values.
Fact: TypeAlias = tuple[str, Fields]

# Products of the furniture shop that are not furniture.
SERVICES = {"Gift Card", "Assembly"}
# Lower bound and exclusive upper bound of the number of remarks on delivery.
_REMARKS = (3, 6)
# Maximum number of irrelevant sentences in a note to the bookshop.
_MOST_ASIDES = 3
# Probabilities that a note contains irrelevant sentences, and that a note changes the order.
_ASIDE_RATE, _AMENDED_RATE = 0.95, 0.8


def _write_count(value: int, rng: Generator) -> str:
    if value <= len(NUMBERS) and rng.integers(4):
        return NUMBERS[value - 1]
    return str(value)


SLOTS: Mapping[str, PhraseSlot] = {
    **COMMON_SLOTS,
    "product": PhraseSlot("|".join([r"[A-Z][a-z]+ \d+", *sorted(SERVICES)])),
    "count": PhraseSlot(rf"{'|'.join(NUMBERS)}|\d+", _write_count, read_number),
}


@functools.cache
def notes_book(shop: Shop) -> PhraseBook:
    """Return the phrase book for notes in a shop's orders."""
    texts = load_texts("order_notes")
    if shop == "books":
        return PhraseBook(texts["books"], SLOTS)
    phrases = texts["furniture"]
    if shop == "furniture":
        more = texts["pieces"]
        phrases = {kind: [*some, *more.get(kind, [])] for kind, some in phrases.items()}
    return PhraseBook(phrases, SLOTS)


def _say(rng: Generator, shop: Shop, fact: Fact) -> str:
    kind, values = fact
    is_service = not SERVICES.isdisjoint(values.values())
    return notes_book("services" if is_service else shop).write(kind, rng, values)


def write_note(rng: Generator, shop: Shop, facts: Iterable[Fact], asides: Iterable[Fact]) -> str:
    """Write a note that contains the statements `facts` in order."""
    texts: list[str] = []
    for fact in facts:
        text = _say(rng, shop, fact)
        while text in texts:  # use different words for a repeated fact
            text = _say(rng, shop, fact)
        texts.append(text)
    if rng.random() < _ASIDE_RATE:
        idle = [_say(rng, shop, fact) for fact in asides]
        count = whole(rng, *_REMARKS)
        values = DrawnValues({"number": lambda: whole(rng, 13, 29)})
        idle += notes_book(shop).write_some("remark", rng, count, lambda: values)
        for text in dict.fromkeys(idle):
            texts.insert(whole(rng, len(texts) + 1), text)
    return " ".join(texts)


_DECLINING: Sequence[Sequence[str]] = (
    ("declined",),
    ("invited", "revoked"),
    ("declined", "resumed", "revoked"),
)
_ALLOWING: Sequence[Sequence[str]] = (
    (),
    ("invited",),
    ("declined", "resumed"),
    ("declined", "resumed"),
)
# Maps kinds of sentences about emails to whether the customer declines emails.
_WISHES = {"declined": True, "revoked": True, "invited": False, "resumed": False}


def draw_mail_wish(rng: Generator, *, declined: bool) -> str:
    """Draw a note in which the customer finally declines or allows emails."""
    story = pick(rng, _DECLINING if declined else _ALLOWING)
    asides: list[Fact] = [("elsewhere", {})] * whole(rng, 1, _MOST_ASIDES + 1)
    return write_note(rng, "books", [(kind, {}) for kind in story], asides)


def declines_mails(note: str) -> bool:
    """Return whether the last sentence about emails in a note declines emails."""
    declined = False
    for kind, _ in notes_book("books").read(note):
        declined = _WISHES.get(kind, declined)
    return declined


# Maps product names to the number of ordered items.
Order: TypeAlias = Mapping[str, int]
_CHANGES = set("set drop more fewer double same swap exchange only undo back".split())
# Kinds of changes to a single product.
_OF_ONE = {"set", "drop", "more", "fewer", "double"}
_MOST_CHANGES = 5
# Bounds, as above, of the number of sentences that mention changes but do not request any.
_ASIDES = (3, 6)
# Maximum number of items in requests to set or double a quantity.
_MOST_PIECES = 6
# Probabilities that a note withdraws all changes, withdraws one change, restores a withdrawn order,
# or confirms the order.
_BACK, _UNDO, _RESTORED, _STANDS = 0.2, 0.25, 0.2, 1 / 3


def amend(order: Order, facts: Iterable[Fact]) -> dict[str, int]:
    """Apply the changes in a note to an order; a withdrawn order has zero items."""
    now, withdrawn = dict(order), False
    for kind, said in facts:
        if kind in _CHANGES:
            now |= _change(kind, said, now, order)
        elif kind in ("withdrawn", "restored"):
            withdrawn = kind == "withdrawn"
    return dict.fromkeys(now, 0) if withdrawn else now


def _change(kind: str, said: Fields, now: Order, order: Order) -> Order:
    if kind == "back":
        return order
    product, count = said["product"], said.get("count", 0)
    if kind == "only":
        return {**dict.fromkeys(now, 0), product: now[product]}
    if other := said.get("other_product"):
        if kind == "same":
            return {product: now[other]}
        if kind == "swap":
            return {product: now[other], other: now[product]}
        return {product: now[product] - count, other: now[other] + count}
    new = {
        "set": count,
        "drop": 0,
        "more": now[product] + count,
        "fewer": now[product] - count,
        "double": 2 * now[product],
        "undo": order[product],
    }
    return {product: new[kind]}


def read_amended(order: Order, note: str) -> dict[str, int]:
    """Apply the changes in the text of an order note to an order."""
    return amend(order, notes_book("furniture").read(note))


def draw_order_note(rng: Generator, order: Order, *, withdrawn: bool) -> tuple[str, dict[str, int]]:
    """Draw an order note, and return the note and the changed order."""
    facts = draw_changes(rng, order) if rng.random() < _AMENDED_RATE else []
    if withdrawn:
        facts.append(("withdrawn", {}))
    elif rng.random() < _RESTORED:
        facts = [("withdrawn", {}), ("restored", {}), *facts]
    asides = _draw_asides(rng, order, facts)
    shop: Shop = "services" if order.keys() <= SERVICES else "furniture"
    return write_note(rng, shop, facts, asides), amend(order, facts)


def draw_changes(rng: Generator, order: Order) -> list[Fact]:
    """Draw the changes that a customer requests, some of which are withdrawn later."""
    facts: list[Fact] = []
    for _ in range(whole(rng, 1, _MOST_CHANGES + 1)):
        facts += _draw_change(rng, amend(order, facts))
        if facts[-1][0] == "same":
            break  # a later change would make "as many as of the other" ambiguous
    if taken_back := _draw_return(rng, order, facts):
        facts += taken_back
        if rng.integers(2):
            facts += _draw_change(rng, amend(order, facts))
    return facts


def _draw_change(rng: Generator, now: Order) -> list[Fact]:
    held = [product for product, count in now.items() if count]
    if not held:
        return []
    first, *rest = shuffled(rng, held)
    count, one = now[first], {"product": first}
    fewer = whole(rng, 1, count + 1)
    more = whole(rng, 1, 4)
    new = whole(rng, 1, _MOST_PIECES)
    options: list[Fact] = [
        ("set", {**one, "count": new + (new >= count)}),
        ("drop", one),
        ("more", {**one, "count": more}),
        ("fewer", {**one, "count": fewer}),
    ]
    if count <= _MOST_PIECES:
        options.append(("double", one))
    if rest:
        both = {**one, "other_product": rest[0]}
        options += [("only", one), *([("exchange", {**both, "count": fewer})] * 3)]
        if now[rest[0]] != count:
            options += [("same", both), ("swap", both)] * 2
    return [pick(rng, options)]


def _draw_return(rng: Generator, order: Order, facts: Sequence[Fact]) -> list[Fact]:
    # A customer withdraws one change only if no other change depends on it.
    roll = rng.random()
    if roll < _BACK:
        return [("back", {})]
    if roll < _BACK + _UNDO and all(kind in _OF_ONE for kind, _ in facts):
        now = amend(order, facts)
        changed = [product for product, count in order.items() if now[product] != count]
        if changed:
            return [("undo", {"product": pick(rng, changed)})]
    return []


def _draw_asides(rng: Generator, order: Order, facts: Sequence[Fact]) -> list[Fact]:
    kinds = {kind for kind, _ in facts}
    products = list(order)
    places = rng.integers(len(order), size=3).tolist()
    *counts, pondered = rng.integers(1, 4, size=4).tolist()
    asides: list[Fact] = []
    for kind, place, count in zip(("former", "later", "others"), places, counts, strict=True):
        asides.append((kind, {"product": products[place], "count": count}))
    if "withdrawn" not in kinds and rng.random() < _STANDS:
        asides.append(("stands", {}))
    named = set(itertools.chain.from_iterable(said.values() for _, said in facts))
    rest = [product for product in order if product not in named]
    if rest and not kinds & {"withdrawn", "only"}:
        product = pick(rng, rest)
        asides += [
            ("kept", {"product": product, "count": order[product]}),
            ("pondered", {"product": product, "count": pondered}),
        ]
    return shuffled(rng, asides, whole(rng, *_ASIDES))
