"""Helper for tests of phrase books."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from agentgym.envs.loca.writing.phrase_book import PhraseBook


def check_readings(
    book: PhraseBook, kinds: Iterable[str], values: Mapping[str, Any], others: Iterable[str] = ()
) -> None:
    """Check that exactly one kind reads each phrase of `kinds`, and that none reads the `others`.

    `values` has a value per slot name.
    """
    rng, kinds = np.random.default_rng(0), list(kinds)
    for kind in (*kinds, *others):
        for phrase in book.kinds[kind]:
            own = {name: values[name] for name in phrase.names}
            for _ in range(phrase.count + 2):
                text = phrase.write(rng, own)
                readings = [
                    (other, found)
                    for other in kinds
                    for each in book.kinds[other]
                    if (found := each.read(text)) is not None
                ]
                assert readings == [(kind, own)] * (kind in kinds), text
                assert kind not in kinds or book.read(text) == readings, text
