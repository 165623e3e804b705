"""Arguments of `collect`, checked before anything is played."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from operator import index
from pathlib import Path
from typing import Any

from agentgym.arguments import check_bool
from agentgym.training.rollout.trajectory import TrajectoryLog


def check_play(policy: object, seeds: object, ordered: object) -> None:
    """Raise `ValueError` unless there are a policy and seeds to play."""
    if not callable(policy):
        raise ValueError(
            f"policy must be a function from chats to replies, such as OraclePolicy('ListWorld'), "
            f"got {policy!r}"
        )
    if not isinstance(seeds, Iterable) or isinstance(seeds, (str, bytes)):
        raise ValueError(f"seeds must be integers, such as range(100), got {seeds!r}")
    check_bool("ordered", ordered)


def read_seeds(seeds: Iterable[object]) -> Iterator[int]:
    """Yield seeds, those of NumPy as integers.

    Raises:
        ValueError: One is no integer, or negative; an episode of it could not be played again.
    """
    for seed in seeds:
        try:
            number = -1 if isinstance(seed, bool) else index(seed)  # type: ignore[arg-type]
        except TypeError:
            number = -1
        if number < 0:
            raise ValueError(f"seeds must be integers of 0 or more, got {seed!r} among them")
        yield number


def read_labels(labels: object) -> dict[str, Any]:
    """Return labels as they come back from a log; none for None.

    Raises:
        ValueError: They are no mapping, or hold what JSON cannot say.
    """
    if labels is None:
        return {}
    try:
        if not isinstance(labels, Mapping):
            raise TypeError(f"{type(labels).__name__} is no mapping")
        read: dict[str, Any] = json.loads(json.dumps(dict(labels), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"labels must be a mapping of names to JSON values, such as {{'arm': 'SP'}}, got "
            f"{labels!r} ({error})"
        ) from None
    return read


def open_log(log: object) -> TrajectoryLog | None:
    """Return a log, which may be given by its path; None for None.

    Raises:
        ValueError: It is neither.
    """
    if log is None or isinstance(log, TrajectoryLog):
        return log
    if isinstance(log, (str, Path)) and str(log):
        return TrajectoryLog(Path(log))
    raise ValueError(f"log must be the path of a file, such as runs/list.jsonl, got {log!r}")
