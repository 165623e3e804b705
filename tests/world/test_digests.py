from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from agentgym.world.digests import digest
from tests.helpers import run_python


@dataclass(frozen=True, slots=True)
class Pair:
    left: Any
    right: Any


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


DIFFERENT = [
    None,
    True,
    1,
    "1",
    1.5,
    [],
    {},
    set(),
    [1],
    [[1]],
    [1, 2],
    [2, 1],
    ["1, 2"],
    {1: 2},
    {2: 1},
    {"1": 2},
    {1, 2},
    b"1",
    date(2025, 1, 2),
    Fraction(1, 2),
    Pair(1, 2),
    Pair(2, 1),
    Plain(1),
    Plain("1"),
    Plain(Plain(1)),
]


def test_different_values_have_different_digests() -> None:
    assert len({digest(value) for value in DIFFERENT}) == len(DIFFERENT)


def test_the_order_of_what_has_none_does_not_count() -> None:
    assert digest({"a": 1, "b": {3, 1}}) == digest({"b": {1, 3}, "a": 1})
    assert digest((1, [2])) == digest([1, (2,)])
    assert digest(np.array([[1, 2]])) == digest([[1, 2]])
    assert digest(np.int64(3)) == digest(3)


@pytest.mark.rotation
def test_a_digest_is_the_same_in_a_process_that_hashes_otherwise() -> None:
    code = (
        "from agentgym.world.digests import digest; print(digest({'x', 'y', 'zz', ('a', 1), 2.5}))"
    )
    shown = {
        run_python("-c", code, env={**os.environ, "PYTHONHASHSEED": seed}, check=True).stdout
        for seed in ("1", "2", "3")
    }
    assert shown == {digest({"x", "y", "zz", ("a", 1), 2.5}) + "\n"}


def test_what_has_no_digest_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"without attributes has no digest; fill World"):
        digest([object()])
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match=r"contains itself has no digest; fill World\.instance_key"):
        digest(loop)
    shared = [1]
    assert digest([shared, shared]) == digest([[1], [1]])
