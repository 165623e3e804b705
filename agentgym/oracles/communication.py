"""Oracle of communication, for teams: an agent is shown what the others did and were shown, apart
from what it adds up to.

The state oracle tells both at once; this one leaves it to the agent to keep track of the state.
"""

from __future__ import annotations

import json

import gymnasium

from agentgym.assemble.wrapper_stack import register_oracle
from agentgym.multi.agent_env import AgentEnv
from agentgym.multi.team import TeamAction
from agentgym.oracles.hints import HintOracle
from agentgym.text.messages import Chat

TEAM_NOTE = (
    "# Team log\nMessages to you end with a log between <team> and </team> when there is something "
    "new in it. It comes from the environment, not from the user, a tool or an agent, and is always "
    "right: it is what the other agents have called since the log before, and what they were shown."
)


class CommunicationOracle(HintOracle):
    """Oracle that shows an agent of a team each call of the others with its result, word for word.

    Each entry stands on the message after which it happened and stays there, as results do. An
    agent that begins a chat is shown what the others have done in the episode so far.

    Args:
        env: The stack of an agent whose team shares a world.
        placebo: Whether text that says nothing stands in place of the log.

    Raises:
        ValueError: The env is not that of an agent in a team, or its team are rivals.

    Example:
        >>> env = agentgym.make("ListWorld-team", oracles="C")
    """

    tag = "team"
    placebo_tag = "aside"
    note = TEAM_NOTE
    for_teams = True

    def __init__(self, env: gymnasium.Env[Chat, str], placebo: bool = False) -> None:
        # Before the base, which would record a hint scope, which this oracle does not take.
        gymnasium.utils.RecordConstructorArgs.__init__(self, placebo=placebo)
        super().__init__(env, placebo=placebo)
        agent_env = env.unwrapped
        if not isinstance(agent_env, AgentEnv) or not agent_env.shares_world:
            raise ValueError(
                "CommunicationOracle is for agents that share a world; make a team, such as "
                "ListWorld-team"
            )
        self._agent_env = agent_env

    def begin(self) -> None:
        """Show the log from its beginning."""
        self._messages = self._start = self._end = 0

    def text(self) -> str:
        """Return what the others have done since the message before the newest one."""
        actions, count = self._agent_env.team.actions, len(self.source.messages)
        if count != self._messages:
            self._messages, self._start = count, self._end
        self._end = len(actions)
        others = [each for each in actions[self._start :] if each.agent != self._agent_env.agent]
        return "\n".join(map(_describe, others))


def _describe(action: TeamAction) -> str:
    arguments = json.dumps(dict(action.call.arguments), ensure_ascii=False)
    return (
        f"{action.agent} called {action.call.name} with {arguments} and was shown:\n{action.result}"
    )


register_oracle("C", "communication", CommunicationOracle)
