"""Workers exit quietly and close their envs when the parent closes the connection."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import pytest

from agentgym import make
from agentgym.training.evaluation import cell_pool
from agentgym.training.rollout import Processes


def work(folder: str) -> str:
    Path(folder, "begun").touch()
    while not Path(folder, "go on").exists():
        time.sleep(0.01)
    return folder


class SlowReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Env whose resets continue on request; a file records that it was closed."""

    def __init__(self, folder: str) -> None:
        super().__init__(make("ListWorld"))
        self.folder = folder

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        work(self.folder)
        return super().reset(**options)

    def close(self) -> None:
        Path(self.folder, "closed").touch()
        super().close()


def part(connection: Any, process: Any, folder: Path) -> int:
    """Close the parent's end of a busy worker's connection; return the worker's exit code."""
    while not (folder / "begun").exists():
        time.sleep(0.01)
    connection.close()
    (folder / "go on").touch()
    process.join()
    return int(process.exitcode)


def test_a_worker_of_cells(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    worker = cell_pool._start(work)
    worker.send([str(tmp_path), str(tmp_path)])
    assert part(worker.connection, worker.process, tmp_path) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_worker_of_envs(tmp_path: Path, capfd: pytest.CaptureFixture[str], method: str) -> None:
    make_env = cloudpickle.dumps(lambda: SlowReset(str(tmp_path)))
    end: Any = Processes(method, workers=1).start(make_env, 0)
    end._connection.send((None, [(0, "reset", (0, "")), (0, "reset", (1, ""))]))
    assert part(end._connection, end._process, tmp_path) == 0
    assert (tmp_path / "closed").exists()
    assert capfd.readouterr().err == ""
