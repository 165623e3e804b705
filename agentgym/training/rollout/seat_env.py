"""One seat of a team as a single-agent env."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
from gymnasium.error import ResetNeeded

from agentgym.assemble.registry import ids_of
from agentgym.multi.gym import TeamEnv
from agentgym.play.kept_spec import KeepsSpec
from agentgym.play.policy import PolicyError
from agentgym.play.spaces import ChatSpace
from agentgym.text.messages import Chat
from agentgym.text.validation import check_choice
from agentgym.training.rollout.faults import describe
from agentgym.training.rollout.policies import PolicyConfig
from agentgym.training.rollout.seat_policies import SeatPolicies, check_seats
from agentgym.training.rollout.user_policy import PolicyRequest
from agentgym.world.world import load_world, world_path


class SeatEnv(KeepsSpec, gymnasium.Env[Chat, str]):
    """Env in which the agent plays one seat of a team, and frozen policies play the other seats.

    The seat is rewarded only at the end of the episode; `info["detail"].report["team"]` contains
    all seats' rewards. If a frozen policy fails, the episode is truncated without a score, and
    `StepInfo.invalid` names the policy's seat; a fatal error is raised. If other agents end the
    episode before the seat's first turn, the first step only reports the end of the episode.
    `opponents` maps the other agents to policy names as in `PolicyConfig`; `options` are the
    options of `agentgym.multi.game.Game`.

    Raises:
        ValueError: A seat does not exist, has no policy, or has an invalid policy.
    """

    metadata = TeamEnv.metadata

    def __init__(
        self,
        seat: str = "",
        opponents: Mapping[str, str] | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.render_mode = render_mode
        self._team_env = TeamEnv(render_mode, **options)
        self.game = self._team_env.game
        frozen = dict(opponents or {})
        check_choice("seat", seat, self.game.agents)
        if seat in frozen:
            raise ValueError(f"opponents must not contain {seat!r}, the seat of this env")
        check_seats((seat, *frozen), self.game.agents)
        env_id = _team_id(options)
        made = {name: PolicyConfig(name).make(env_id) for name in frozen.values()}
        self._others = SeatPolicies({agent: made[name] for agent, name in frozen.items()})
        self.seat, self.agent_env = seat, self.game.agent_envs[seat]
        self.dialect = self.agent_env.dialect
        self.observation_space = ChatSpace()
        self.action_space = self.agent_env.action_space
        self._is_running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Chat, dict[str, Any]]:
        super().reset(seed=seed)
        self._team_env.reset(seed=seed, options=options)
        self._request = PolicyRequest(Chat(), seed or 0, first=True)
        self._play_others()
        return self.game.chats[self.seat], dict(self.game.infos[self.seat])

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        self._check_running()
        info = self.game.infos[self.seat]
        if not self.game.over:
            info = self._team_env.step(action)[-1]
            self._play_others()
        return self._outcome(info)

    def truncate(self, reason: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        """End the episode for all agents with the current score."""
        self._check_running()
        if not self.game.over:
            self._team_env.truncate(reason)
        return self._outcome(self.game.infos[self.seat])

    def _check_running(self) -> None:
        if not self._is_running:
            raise ResetNeeded("there is no running episode: call reset() before the next step()")

    def _play_others(self) -> None:
        self._is_running = False  # any exception except a policy's error ends the episode
        while not self.game.over and self._team_env.agent != self.seat:
            chat = self.game.chats[self._team_env.agent]
            (reply,) = self._others.ask([self._request._replace(chat=chat)])
            self._request = self._request._replace(first=False)
            if isinstance(reply, PolicyError):
                self._report(reply)
            elif reply.ended:
                self._team_env.truncate(reply.ended)
            else:
                self._team_env.step(reply.text)
        self._is_running = True

    def _report(self, error: PolicyError) -> None:
        if error.fatal:
            raise error
        agent = self._team_env.agent
        guard = self.game.agent_envs[agent].guard
        failure = f"the policy of the frozen seat {agent!r} failed: {describe(error)}"
        guard.record("policy", error, failure)
        guard.broken = True
        self._team_env.truncate("fault")

    def _outcome(
        self, info: dict[str, Any]
    ) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        game, seat = self.game, self.seat
        newest = game.infos[seat]
        # A new chat's info does not describe the reply that ended the previous chat.
        if game.over or newest["task"] == info["task"]:
            info = newest
        if not game.over:
            return game.chats[seat], 0.0, False, False, dict(info)
        self._is_running = False
        ends = game.terminated, not game.terminated
        return game.chats[seat], game.rewards[seat], *ends, dict(info)

    def render(self) -> str | None:
        return self._team_env.render()

    def close(self) -> None:
        self._team_env.close()


def _team_id(options: Mapping[str, Any]) -> str:
    path = world_path(load_world(options["world"]))
    ids = [
        each for each in ids_of(path) if gymnasium.spec(each).kwargs.get("team") == options["team"]
    ]
    return ids[0]
