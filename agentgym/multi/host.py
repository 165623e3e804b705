"""A host that knows what is hidden, and a guesser that asks it; a referee that knows the rules stands between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from agentgym.messages import Content, ToolCall
from agentgym.multi.team import Team, TeamProtocol
from agentgym.tools import ToolError, Toolset, tool, tools_of
from agentgym.world import World

HOST, GUESSER = "host_0", "guesser_0"
MOST_FAULTS = 3
"""The wrong answer of the host that ends the episode."""
ANSWERS = f"{HOST} answers:"


@runtime_checkable
class Hosted(Protocol):
    """A world whose results can be given by a host. It computes what is right; the host has to find the same by itself."""

    def host_rules(self) -> str:
        """What the host is told of its part."""

    def questions(self) -> object:
        """The owner of the tools that there are for questions to a host, besides those of the world."""

    def question(self, call: ToolCall) -> str:
        """What the host is shown of a call before it is carried out; empty for a call that needs no host.

        Raises:
            ToolError: The call cannot be carried out.
        """

    @classmethod
    def host_reply(cls, question: str) -> str:
        """What a scripted host answers, from the text of the question.

        Raises:
            ValueError: It is no question.
        """

    def objection(self, answer: str, result: str) -> str:
        """What is wrong with an answer of the host, given the right result; empty if nothing is."""


class Hosting(TeamProtocol):
    """The guesser has all tools of the world, and tools for questions; what it guesses and asks is answered by the host.

    An answer that the referee finds wrong is not passed on; the host has to answer anew. The third one ends the episode. The host
    earns what the guesser does, and nothing if it was ever found wrong.
    """

    kind = "host"

    def __init__(self, world: type[World[Any]], config: Any, **options: Any) -> None:
        if not isinstance(world(config, 0), Hosted):
            raise ValueError(f"{world.__name__} cannot be hosted: it lacks what agentgym.multi.host.Hosted lists")
        self._questions = tuple(tools_of(self._hosted(world(config, 0)).questions()))
        super().__init__(world, config, **options)

    @staticmethod
    def _hosted(world: Any) -> Hosted:
        hosted: Hosted = world
        return hosted

    def agent_env(
        self, world: type[World[Any]], tools: Mapping[str, bool], roles: Mapping[str, Sequence[str]] | None
    ) -> dict[str, tuple[str, ...]]:
        """The guesser, who begins, and the host."""
        if roles is not None:
            raise ValueError(f"the roles of a hosted game are fixed: {GUESSER} and {HOST}; give no roles")
        return {GUESSER: (*tools, *self._questions), HOST: ()}

    def toolsets(self, agent: str, world: World[Any]) -> Sequence[object]:
        """Those of the world, and the questions."""
        return (*world.toolsets(), self._hosted(world).questions())

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        """The host's tool."""
        return Answering(self, team) if agent == HOST else Toolset()

    def notes(self, agent: str) -> str:
        """What the two are to each other."""
        if agent == HOST:
            return f"# Host\nYou are {HOST}, and {GUESSER} asks. Answer with the tool answer; it takes no turn of the budget."
        return (
            f"# Host\nYou are {GUESSER}. The host, {HOST}, knows what is hidden. It answers your guesses, and what you ask it "
            f"with {', '.join(self._questions)}; a referee sees to it that it answers right. Each of your replies takes a turn."
        )

    def opening(self, agent: str, team: Team) -> tuple[str, str | Content]:
        """The host knows the rules of its part, and begins a chat with each question; it sees nothing of the task."""
        if agent == HOST:
            return self._hosted(team.worlds[agent]).host_rules(), team.tasks.get(HOST, "There is no question yet.")
        return super().opening(agent, team)

    def begin(self, team: Team) -> None:
        """The guesser acts first."""
        team.idle = {HOST}

    def run(self, agent: str, team: Team, call: ToolCall, go: Callable[[], str | Content]) -> str | Content:
        """Carry out what needs no host; of the rest, keep the result for the referee, and ask the host."""
        world = team.worlds[agent]
        question = self._hosted(world).question(call) if agent == GUESSER else ""
        if not question:
            return go()
        if team.asked:
            raise ToolError(f"{HOST} has not answered yet; this call was not run")
        result = go()
        team.asked, team.result = question, result if isinstance(result, str) else result.text
        team.tasks[HOST] = question
        team.fresh.add(HOST)
        team.idle.add(GUESSER)
        return f"{HOST} is asked."

    def finished(self, agent: str, team: Team, reason: str) -> None:
        """An answer that is still open comes before the end."""
        if team.asked:
            team.closing = team.closing or reason
        else:
            team.end(reason)

    def hear(self, team: Team, text: str) -> str:
        """Let the referee check an answer of the host, and pass on a right one.

        Raises:
            ToolError: Nothing was asked.
        """
        if not team.asked:
            raise ToolError("there is no open question to answer")
        objection = self._hosted(team.worlds[HOST]).objection(text, team.result)
        if objection:
            team.faults[HOST] += 1
            if team.faults[HOST] >= MOST_FAULTS:
                team.end("referee")
            return f"The referee: {objection}. Fault {team.faults[HOST]} of {MOST_FAULTS}."
        team.mail[GUESSER].append(f"{ANSWERS}\n{team.result}")
        team.asked = team.result = ""
        team.idle.add(HOST)
        if team.closing:
            team.end(team.closing)
        return "Your answer is right and was passed on."

    def shares(self, team: Team, score: float) -> dict[str, float]:
        """The host's is lost with its first fault."""
        return {**super().shares(team, score), **({HOST: 0.0} if team.faults[HOST] else {})}


class Answering(Toolset):
    """The tool of the host."""

    def __init__(self, protocol: Hosting, team: Team) -> None:
        self._formation, self._team = protocol, team

    @tool
    def answer(self, text: str) -> str:
        """Answer the guess or the question that was put to you. It takes no turn of the budget.

        Args:
            text: The answer: yes or no, or the lines with your verdicts.
        """
        return self._formation.hear(self._team, text)
