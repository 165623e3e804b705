"""One policy per seat of a team."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
from typing_extensions import override

from agentgym.play.policy import PolicyError, Reply
from agentgym.text.validation import list_names
from agentgym.training.rollout.token_usage import EndpointUsage
from agentgym.training.rollout.user_policy import PolicyLike, PolicyRequest, UserPolicy


class SeatPolicies(UserPolicy):
    """Policies of a team's seats; each policy receives all waiting chats of its seats in one call.

    Args:
        policies: Each agent's policy, in any form that `UserPolicy` accepts. Agents mapped to the
            same object share its state.
        frozen: Agents that are not trained; the token ids of their replies are dropped.

    Raises:
        ValueError: No policy is given, or a frozen agent has no policy.
    """

    def __init__(self, policies: Mapping[str, PolicyLike], frozen: Collection[str] = ()) -> None:
        if not policies:
            raise ValueError("no seat has a policy; give one for each agent of the team")
        adapted = {id(each): adapt(each) for each in policies.values()}
        self.seats = {agent: adapted[id(each)] for agent, each in policies.items()}
        self.frozen = frozenset(frozen)
        for agent in self.frozen:
            if agent not in self.seats:
                raise ValueError(
                    f"the frozen seat {agent!r} has no policy; "
                    f"{list_names(agent, tuple(self.seats), 'seats')}"
                )
        self.policy, self.last_fault = policies, None
        self.name = ", ".join(f"{agent}={each.name}" for agent, each in self.seats.items())
        self._parts = tuple(adapted.values())
        self._is_async = any(each._is_async for each in self._parts)
        self._reset = next((each._reset for each in self._parts if each.has_state), None)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @override
    def check(self, agents: Sequence[str]) -> None:
        check_seats(tuple(self.seats), agents)

    @property
    @override
    def awaitable(self) -> bool:
        return any(each.awaitable for each in self._parts)

    @property
    @override
    def parallel_episodes(self) -> int:
        return min(each.parallel_episodes for each in self._parts)

    @property
    @override
    def serial(self) -> bool:
        return any(each.serial for each in self._parts)

    @property
    def usage(self) -> EndpointUsage | None:
        """Total usage of all endpoint policies, or None if there are none."""
        used = [each.usage for each in self._parts if hasattr(each, "usage")]
        return sum(used[1:], used[0]) if used else None

    def reseed(self, seed: int) -> None:
        """Reseed the policies that make random choices."""
        for number, each in enumerate(self._parts):
            if hasattr(each, "reseed"):
                each.reseed(seed + number)

    @override
    async def areply(self, request: PolicyRequest) -> Reply:
        if (error := await self._begin(request)) is not None:
            raise error
        reply = await self._part(request).areply(request._replace(first=False))
        kept: Reply = self._kept(request, reply)
        return kept

    @override
    async def _begin(self, request: PolicyRequest) -> PolicyError | None:
        # Reset all policies, because an episode may begin with another agent's chat.
        errors = [await each._begin(request) for each in self._parts]
        return next(filter(None, errors), None)

    @override
    async def _ask_some(self, requests: Sequence[PolicyRequest]) -> list[Reply | PolicyError]:
        places: dict[UserPolicy, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(self._part(request), []).append(place)
        work = []
        for part, own in places.items():
            work.append(part._ask([requests[place]._replace(first=False) for place in own]))
        if self._is_async:
            answers = await asyncio.gather(*work)
        else:
            answers = [await each for each in work]
        outcomes: dict[int, Reply | PolicyError] = {}
        for own, replies in zip(places.values(), answers, strict=True):
            outcomes.update(zip(own, replies, strict=True))
        return [self._kept(request, outcomes[k]) for k, request in enumerate(requests)]

    def _part(self, request: PolicyRequest) -> UserPolicy:
        agent = request.chat.agent
        if agent not in self.seats:
            raise ValueError(
                f"a chat belongs to the agent {agent!r}, which has no policy; "
                f"{list_names(agent, tuple(self.seats), 'seats')}"
            )
        return self.seats[agent]

    def _kept(self, request: PolicyRequest, reply: Any) -> Any:
        if isinstance(reply, Reply) and request.chat.agent in self.frozen:
            return replace(reply, prompt_ids=(), ids=(), logprobs=())
        return reply


def adapt(policy: Any) -> UserPolicy:
    """Return a batched policy; a mapping gives each seat a policy."""
    if isinstance(policy, Mapping):
        return SeatPolicies(policy)
    return policy if isinstance(policy, UserPolicy) else UserPolicy(policy)


def against(
    policy: PolicyLike, opponents: Mapping[str, PolicyLike], agents: Sequence[str]
) -> UserPolicy:
    """Return a policy with frozen opponents; raise `ValueError` for an unknown seat, or if every
    seat is frozen.
    """
    if not opponents:
        return adapt(policy)
    own = [agent for agent in agents if agent not in opponents]
    if agents and not own:
        raise ValueError(
            f"opponents play all seats ({', '.join(agents)}), so no seat is trained; remove one"
        )
    check_seats((*opponents, *own), agents)
    return SeatPolicies({**dict.fromkeys(own, policy), **opponents}, frozen=tuple(opponents))


def agents_of(env: gymnasium.Env[Any, Any]) -> tuple[str, ...]:
    """Return the names of a team's agents; empty for a single-agent env."""
    return tuple(getattr(env.unwrapped, "possible_agents", ()))


def check_seats(given: Sequence[str], agents: Sequence[str]) -> None:
    """Raise `ValueError` unless the given seats are a team's agents."""
    if not agents:
        raise ValueError(
            f"policies are given for the seats {', '.join(given)}, but the world has only "
            "one agent; give one policy, or play a team such as PuzzleWorld-duel"
        )
    if unknown := [agent for agent in given if agent not in agents]:
        raise ValueError(
            f"there is no seat {unknown[0]!r} in this team; "
            f"{list_names(unknown[0], tuple(agents), 'seats')}"
        )
    if missing := [agent for agent in agents if agent not in given]:
        raise ValueError(
            f"the seat {missing[0]!r} has no policy; give one for each of {', '.join(agents)}"
        )
