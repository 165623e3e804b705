from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym.oracles import OraclePolicy
from agentgym.play.env import ToolEnv
from agentgym.training.rollout import Collector, OtherRunError, TrajectoryLog, collect
from tests.training.rollout.faulty_world import FaultyWorld

POLICY = OraclePolicy("ListWorld")
ODD: tuple[Any, ...] = (5, 2.5, True, [], ["x"], b"x")


def play(**options: Any) -> list[int]:
    with Collector("ListWorld", 2) as collector:
        arguments = {"policy": POLICY, "seeds": [1], **options}
        return [each.seed for each in collector.collect(**arguments)]


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("policy", (None, "oracle", *ODD), "policy must be a function"),
        ("seeds", (None, 5, "12", b"12"), "seeds must be integers, such as range"),
        (
            "seeds",
            ([None], [-1], [2.0], ["1"], [True], [[]]),
            "seeds must be non-negative integers",
        ),
        (
            "labels",
            (*ODD, "arm", {"out": Path("x")}, {"p": float("nan")}),
            "labels must be a mapping",
        ),
        ("ordered", (None, 1, "yes"), "ordered must be True or False"),
        ("log", ("", *ODD), "log must be a file path"),
    ],
)
def test_wrong_arguments_are_named(name: str, values: tuple[Any, ...], text: str) -> None:
    for value in values:
        with pytest.raises(ValueError, match=text):
            play(**{name: value})


@pytest.mark.parametrize(
    ("env", "options", "text"),
    [
        *((env, {}, "env must be an id, a spec or a function") for env in (None, 5, [], b"x")),
        ("NoWorld", {}, "there is no world 'NoWorld'"),
        (lambda: ToolEnv(f"{FaultyWorld.__module__}:FaultyWorld"), {}, "env must have a spec"),
        ("ListWorld", {"engine": "thread"}, "lockstep, threads, asyncio, processes, ray, got"),
        ("ListWorld", {"num_envs": 0}, "num_envs"),
        ("ListWorld", {"timeout": 1.0}, "lockstep cannot abandon a hung slot"),
        ("ListWorld", {"engine": "threads", "timeout": 0.0}, "timeout"),
    ],
)
def test_wrong_options_of_a_collector_are_named(env: Any, options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Collector(env, **options)


def test_asyncio_needs_an_async_policy() -> None:
    with pytest.raises(ValueError, match="OraclePolicy is neither; use the threads engine"):
        list(collect(POLICY, "ListWorld", [0], engine="asyncio"))


def test_seeds_of_numpy_and_a_log_by_its_name_are_understood(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    assert play(seeds=np.arange(2), log=str(log)) == [0, 1]
    assert [type(each.seed) for each in TrajectoryLog(log)] == [int, int]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_log_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(ValueError, match="give a file, such as"):
            play(log=path)
        with pytest.raises(ValueError, match="give a file, such as"):
            list(TrajectoryLog(path))
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("other", [{"env": "ListWorld-easy"}, {"labels": {"policy": "noisy"}}])
def test_the_log_of_another_run_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    run: dict[str, Any] = {"policy": POLICY, "env": "ListWorld", "seeds": [0], "num_envs": 1}
    run |= {"log": tmp_path / "run.jsonl", "labels": {"policy": "oracle"}}
    again: Callable[..., Any] = lambda **new: list(collect(**{**run, **new}))  # noqa: E731
    again()
    TrajectoryLog(run["log"]).settings.write_text("{}")
    before = run["log"].read_bytes()
    assert again()
    with pytest.raises(
        OtherRunError, match=r"another run .*choose another file, or delete this file"
    ):
        again(**other)
    assert run["log"].read_bytes() == before
