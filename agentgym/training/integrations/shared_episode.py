"""Episodes played by agents of `verifiers`: a single agent, or one agent per seat of a team."""

# mypy runs without this package.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from verifiers.v1.utils.aio import run_shielded

import agentgym.assemble.registry as registry
from agentgym.multi.gym import TeamEnv
from agentgym.oracles import OraclePolicy, TeamPolicy
from agentgym.play.env import tool_env
from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.training.integrations.common import truncate
from agentgym.training.rollout import Episode

# The seat of an agent without a team.
ALONE = ""


class SharedEpisode:
    """A running episode whose `seats` reply in order; a lone agent has the seat `ALONE`."""

    def __init__(self, world: str, options: Mapping[str, Any], seed: int) -> None:
        self.env = registry.make(world, **options)
        self.episode = Episode(self.env, seed)
        self._team = self.env.unwrapped if isinstance(self.env.unwrapped, TeamEnv) else None
        self.seats = self._team.game.agents if self._team else (ALONE,)
        self._joined: set[str] = set()
        self._cut: tuple[Any, ...] = ()
        self._fault = ""
        # The condition's lock also protects the env from concurrent calls.
        self._changed = asyncio.Condition()

    @classmethod
    async def begin(cls, world: str, options: Mapping[str, Any], seed: int) -> SharedEpisode:
        """Make the env and start the episode in another thread."""
        return await run_shielded(asyncio.to_thread(cls, world, options, seed))  # type: ignore[no-any-return]

    def join(self, seat: str) -> None:
        """Take a seat; raise if the seat does not exist or is already taken."""
        if seat not in self.seats:
            raise ValueError(
                f"this team has the seats {', '.join(self.seats)}; play it with load_environment, "
                "or with the package that `agentgym package --for verifiers` writes"
            )
        if seat in self._joined:
            raise RuntimeError(
                f"the seat {seat!r} cannot be retried in an episode that has begun; retry whole "
                "episodes with env.retries"
            )
        self._joined.add(seat)

    @property
    def dialect(self) -> Any:
        """The call format in replies."""
        return self._team.game.dialect if self._team else tool_env(self.env).dialect

    @property
    def over(self) -> bool:
        """Whether the episode has ended for all seats."""
        return self.episode.over or bool(self._cut) or bool(self._fault)

    @property
    def failure(self) -> str:
        """The reason why the episode does not measure the policies, or an empty string."""
        recorded = self.episode.trajectory().failure
        if self._team and not recorded and self._team.game.over:
            recorded = self._team.game.infos[self.seats[0]]["detail"].invalid
        elif not self._team and self._cut:
            recorded = self._cut[-1]["detail"].invalid
        return self._fault or recorded

    def chat(self, seat: str) -> Chat:
        """Return a seat's observation."""
        return self._team.game.chats[seat] if self._team else self.episode.chat

    async def is_due(self, seat: str) -> bool:
        """Wait for a seat's turn; return False if the episode ends first."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.over or self._next == seat)
            return not self.over

    @property
    def _next(self) -> str:
        return self._team.agent if self._team else ALONE

    async def play(self, reply: Reply) -> None:
        """Step the env with the reply of the seat whose turn it is."""
        async with self._changed:
            # Finish a started step even if the rollout is cancelled.
            await run_shielded(asyncio.to_thread(self.episode.play, reply))
            self._changed.notify_all()

    async def end(self, reason: str) -> None:
        """Truncate a running episode with its current score, for all seats."""
        async with self._changed:
            if self._team and not self.over:
                self._team.game.team.end(reason)
                self._team.game.advance()
                self._cut = (reason,)
            elif not self.over:
                self._cut = truncate(self.env, reason)
            self._changed.notify_all()

    async def leave(self, seat: str, failure: str) -> None:
        """Leave a seat. After a failure, the episode ends for all seats without a score."""
        async with self._changed:
            if failure and not self.over:
                self._fault = f"the seat {seat!r} failed ({failure})"
            self._changed.notify_all()

    def outcome(self, seat: str) -> dict[str, Any]:
        """Return an ended episode's result for a seat."""
        trajectory = self.episode.trajectory()
        turns = len(trajectory.steps)
        if self._team:
            game = self._team.game
            info, reward, terminated = game.infos[seat], game.rewards[seat], game.terminated
            success, ended = bool(info["success"]), info["detail"].ended
            turns = sum(step.info["agent"] == seat for step in trajectory.steps)
        elif self._cut:
            _, reward, terminated, _, info = self._cut
            success, ended = reward >= 1.0, info["detail"].ended
        else:
            reward, terminated = trajectory.reward, trajectory.terminated
            success, ended = reward >= 1.0, trajectory.steps[-1].info["detail"]["ended"]
        return {
            "reward": reward,
            "terminated": terminated,
            "truncated": not terminated,
            "ended": ended,
            "invalid": self.failure,
            "success": success,
            "turns": turns,
            "seed": self.episode.seed,
        }

    def close(self) -> None:
        """Close the env."""
        self.env.close()


async def play_nothing(world: str, options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the outcome of an episode that ends before the first reply."""
    shared = await SharedEpisode.begin(world, options, seed)
    try:
        await shared.end("untouched")
        outcomes = [shared.outcome(seat) for seat in shared.seats]
        return max(outcomes, key=lambda outcome: float(outcome["reward"]))
    finally:
        shared.close()


def is_solvable(world: str, options: Mapping[str, Any], seed: int) -> bool:
    """Report whether the oracle policy solves an instance."""
    wrappers = registry.spec.__kwdefaults__ or {}
    plain = {name: value for name, value in options.items() if name not in wrappers}
    env = registry.make(world, **plain)
    try:
        episode = Episode(env, seed)
        policy = TeamPolicy(world) if registry.is_team(world) else OraclePolicy(world)
        while not episode.over:
            episode.play(policy([episode.chat])[0])
        return episode.trajectory().reward == 1.0
    finally:
        env.close()
