"""Optimal calls before each step of an episode, found by replaying the episode."""

from __future__ import annotations

from itertools import islice
from typing import Any

import gymnasium

from agentgym.assemble.recorded_specs import make_recorded
from agentgym.play.env import tool_env
from agentgym.training.rollout import Trajectory
from agentgym.training.viewer.episode_view import build_view, call_data

# A world may have thousands of optimal calls per step.
_SHOWN = 20


def build_view_with_optimal_calls(line: bytes) -> dict[str, Any]:
    """Return an episode's view with the optimal calls, or a note if there are none."""
    try:
        return build_view(line, optimal_calls(line))
    except (ValueError, TypeError, ImportError, AttributeError, gymnasium.error.Error) as error:
        return {**build_view(line), "note": f"no optimal calls: {error}"}


def optimal_calls(line: bytes) -> list[dict[str, Any] | None]:
    """Replay an episode and return, for each step, the number of optimal calls before the step and
    the first few of these calls. The result is None for each step of a world without optimal calls.

    Raises:
        ValueError: The line is not a trajectory, or the replay differs from the record.
        TypeError: The trajectory belongs to a team.
    """
    trajectory = Trajectory.from_json(line.decode("utf-8"))
    env = make_recorded(trajectory.spec)
    try:
        world_env = tool_env(env)
        chat, _ = env.reset(seed=trajectory.seed)
        best: list[dict[str, Any] | None] = []
        for number, step in enumerate(trajectory.steps, 1):
            if chat != step.chat:
                raise ValueError(
                    f"the replay of seed {trajectory.seed} differs from the record at turn "
                    f"{number}; the episode was recorded with another version or world"
                )
            calls = world_env.world.optimal_calls()
            found = None
            if calls is not None:
                found = {"count": len(calls), "calls": call_data(islice(calls, _SHOWN))}
            best.append(found)
            chat, *_ = env.step(step.reply.text)
    finally:
        env.close()
    return best
