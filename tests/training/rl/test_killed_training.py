from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.training.rl.trainer import CHECKPOINT
from agentgym.training.rollout.storage import LOCK


class Host:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def run(self, folder: Path, last: int = 0) -> tuple[int, int]:
        """Train in a folder up to event `last`; return the exit status and the number of events."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(folder, last, file=self.process.stdin, flush=True)
        status, count = self.process.stdout.readline().split()
        return int(status), int(count)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    line = [sys.executable, "-m", "tests.training.rl.killed_training"]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield Host(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="module")
def whole(host: Host, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    status, count = host.run(folder)
    assert (status, count > 100) == (0, True), count
    return folder, count


def tensors(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key in value for k, v in tensors(value[key], f"{path}/{key}").items()}
    if isinstance(value, (list, tuple)):
        return {
            k: v for n, item in enumerate(value) for k, v in tensors(item, f"{path}/{n}").items()
        }
    return {path: value.numpy().tobytes() if isinstance(value, torch.Tensor) else value}


def contents(folder: Path) -> dict[str, Any]:
    """Return a run's results, without durations and lock files.

    A run killed at the end of a phase leaves a lock file, which does not block other runs.
    """
    files: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name == CHECKPOINT:
            state = torch.load(path, weights_only=True)
            files[name] = tensors({**state, "seconds": 0})
        elif path.name == "curve.jsonl":
            points = [json.loads(line) for line in path.read_text().splitlines()]
            files[name] = [{**point, "seconds": 0} for point in points]
        elif path.is_file() and path.name != LOCK:
            files[name] = path.read_bytes()
    return files


def check(host: Host, whole: Path, folder: Path, moments: list[int]) -> int:
    kills = 0
    for moment in moments:
        status, _ = host.run(folder, moment)
        assert status in (0, signal.SIGKILL)
        kills += status != 0
    assert host.run(folder)[0] == 0
    expected, ended = contents(whole), contents(folder)
    assert sorted(ended) == sorted(expected)
    for name, content in expected.items():
        assert ended[name] == content, f"{name} differs after kills at {moments}"
    return kills


@pytest.mark.rotation
def test_a_run_that_is_killed_three_times_ends_as_one_that_was_not(
    host: Host, whole: tuple[Path, int], tmp_path: Path
) -> None:
    draw = random.Random(4)
    moments = [draw.randrange(1, whole[1] * (3 - k) // 4) for k in range(3)]
    assert check(host, whole[0], tmp_path / "killed", moments) >= 2


@pytest.mark.exhaustive
def test_a_run_killed_at_ten_random_moments_ends_as_one_that_was_not(
    host: Host, whole: tuple[Path, int], tmp_path: Path
) -> None:
    draw = random.Random()
    moments = [draw.randrange(1, whole[1]) for _ in range(10)]
    for number, moment in enumerate(moments):
        assert check(host, whole[0], tmp_path / str(number), [moment]) == 1
