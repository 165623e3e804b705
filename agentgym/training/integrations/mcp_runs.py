"""Ablation runs of agents that play over MCP; a world's turn limit applies to calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium

from agentgym.assemble.registry import resolve
from agentgym.play.policy import Reply
from agentgym.text.messages import Content, ToolCall
from agentgym.text.parsing import Dialect, render
from agentgym.text.tools import Tool, ToolError, check_jsonable
from agentgym.training.evaluation import (
    Ablation,
    Cell,
    load_results,
    prepare_ablation,
    presets,
)
from agentgym.training.evaluation.ablation import HORIZON, finish
from agentgym.training.evaluation.study import played_by_of
from agentgym.training.evaluation.study_folder import result_cell
from agentgym.training.integrations.common import mcp_env, mcp_instructions
from agentgym.training.rollout import Episode, PolicyConfig, RunLock, Trajectory
from agentgym.training.rollout.policies import EXTERNAL

# The dialect of recorded calls, which can express any name and argument.
DIALECT: Dialect = "json"


class RecordedEpisode:
    """A cell of an ablation that is played over MCP; `write` is called once, with the trajectory.

    An episode that is closed early keeps its current score; an episode without calls is not
    written.
    """

    def __init__(self, ablation: Ablation, cell: Cell, write: Callable[[Trajectory], None]) -> None:
        env = gymnasium.make(ablation.spec(*cell[:4]), disable_env_checker=True)
        self._episode = Episode(env, cell.seed, ablation.labels(cell, played_by_of(ablation)))
        self._write, self._calls = write, 0
        inner, chat = mcp_env(env), self._episode.chat
        self.name = str(cell)
        self.tools: Sequence[Tool] = inner.tools
        self.instructions = mcp_instructions(inner, chat)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Content:
        """Run a call as a step of the episode."""
        if self._episode.over:
            raise ToolError("the episode has ended; this call was not run")
        check_jsonable(arguments)
        self._calls += 1
        reply = render(ToolCall(name, dict(arguments)), DIALECT)
        outcome = self._episode.play(Reply(reply))
        answer = mcp_env(self._episode.env).chat.messages[-1]
        if outcome.terminated or outcome.truncated:
            self._end()
        if outcome.info["detail"]["errors"]:
            raise ToolError(answer.text.removeprefix("error: "))
        return Content(answer.text, answer.images)

    def close(self) -> None:
        """End the episode if it has started, and close the env."""
        if self._calls and not self._episode.over:
            self._episode.leave()
            self._end()
        self._episode.env.close()

    def _end(self) -> None:
        trajectory = finish(self._episode.trajectory())
        self._write(trajectory)
        said = trajectory.failure or f"score {trajectory.reward:g}"
        print(f"{self.name}: ended after {self._calls} calls, {said}", file=sys.stderr)


def external_ablation(
    world: str, sizes: Sequence[int], seeds: int, agent: str, options: Mapping[str, Any]
) -> Ablation:
    """Return the run settings for an external agent."""
    env_id = resolve(world)
    mine = (s for s in presets().values() if env_id in map(resolve, s.get("worlds", ())))
    return Ablation(
        worlds=(world,),
        arms=("",),
        horizons=tuple(sizes),
        seeds=seeds,
        policy=PolicyConfig(f"{EXTERNAL}:{agent}" if agent else EXTERNAL),
        options={"": {**options, "dialect": DIALECT}},
        axis=next(mine, {}).get("axis", HORIZON),
    )


@contextmanager
def open_run(ablation: Ablation, out: Path, most: int) -> Iterator[list[RecordedEpisode]]:
    """Open at most `most` missing episodes, in cell order; each episode is written when it ends.

    The context manager locks the folder; the server must close the episodes.

    Raises:
        DamagedFileError: A file in the folder is unreadable.
        RunLockedError: Another process is writing to the folder.
        ValueError: The folder contains a different run, or this run is already complete.
    """
    log = prepare_ablation(ablation, out)
    with RunLock(out), log.writing():
        played = set(map(result_cell, load_results(out)))
        missing = [cell for cell in ablation.cells() if cell not in played]
        if not missing:
            raise ValueError(
                f"{out} contains all {len(ablation.cells())} episodes of this run; see: agentgym score {out}"
            )
        yield [
            RecordedEpisode(ablation, cell, lambda trajectory: log.append(trajectory.to_json()))
            for cell in missing[:most]
        ]
