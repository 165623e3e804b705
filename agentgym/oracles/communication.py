"""Communication oracle for teams."""

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
    """Oracle that shows a team agent the other agents' calls and results, verbatim.

    A log entry stays in the first message that showed it. A new chat shows all entries of the
    episode so far.

    Args:
        env: The wrapped env of an agent whose team shares one world.
        placebo: Whether to show uninformative text instead of the log.

    Example:
        >>> env = agentgym.make("ListWorld-team", oracles="C")
    """

    tag = "team"
    placebo_tag = "aside"
    note = TEAM_NOTE
    for_teams = True

    def __init__(self, env: gymnasium.Env[Chat, str], placebo: bool = False) -> None:
        # The base class would record a hint scope, which this oracle lacks.
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
        self._messages = self._start = self._end = 0

    def text(self) -> str:
        actions, count = self._agent_env.team.actions, len(self.source.messages)
        if count != self._messages:
            self._messages, self._start = count, self._end
        self._end = len(actions)
        others = [each for each in actions[self._start :] if each.agent != self._agent_env.agent]
        return "\n".join(map(describe_action, others))


def describe_action(action: TeamAction) -> str:
    """Return an entry of the log: a line with the call, then its result."""
    arguments = json.dumps(dict(action.call.arguments), ensure_ascii=False)
    return (
        f"{action.agent} called {action.call.name} with {arguments} and was shown:\n{action.result}"
    )


register_oracle("C", "communication", CommunicationOracle)
