"""Team of a guesser and a host that knows the answer; a referee checks the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from agentgym.multi.team import AgentTools, Roles, Team, TeamProtocol
from agentgym.text.messages import Content, ToolCall
from agentgym.text.tools import ToolError, Toolset, tool, tools_of
from agentgym.world.world import World

HOST, GUESSER = "host_0", "guesser_0"
MOST_FAULTS = 3  # one wrong answer may be an oversight
ANSWERS = f"{HOST} answers:"


@runtime_checkable
class Hosted(Protocol):
    """World whose questions another agent, the host, can answer."""

    def host_rules(self) -> str:
        """Return the rules for the host."""

    def questions(self) -> object:
        """Return the object that owns the guesser's question tools."""

    def question(self, call: ToolCall) -> str:
        """Return the question that a call asks the host, if any."""

    @classmethod
    def host_reply(cls, question: str) -> str:
        """Return a scripted host's answer to the question, or raise ValueError."""

    def objection(self, answer: str, result: str) -> str:
        """Describe the error in a host's answer; return an empty string for a correct answer."""


class Hosting(TeamProtocol):
    """Protocol of a hosted game: the host answers the guesser's guesses and questions.

    The host must replace an answer that the referee rejects; the third rejection ends the episode.
    The host sees a question instead of the task, and earns the same as the guesser, or nothing
    after a rejection.
    """

    kind = "host"

    def __init__(self, world: type[World[Any]], config: Any, **options: Any) -> None:
        if not isinstance(world(config, 0), Hosted):
            raise ValueError(
                f"{world.__name__} cannot be hosted: it must implement agentgym.multi.host.Hosted"
            )
        self._questions = tuple(tools_of(self._hosted(world(config, 0)).questions()))
        super().__init__(world, config, **options)

    @staticmethod
    def _hosted(world: World[Any]) -> Hosted:
        return cast(Hosted, world)

    def assign_tools(
        self, world: type[World[Any]], tools: Mapping[str, bool], roles: Roles | None
    ) -> AgentTools:
        if roles is not None:
            raise ValueError(
                f"the roles of a hosted game are fixed: {GUESSER} and {HOST}; omit roles"
            )
        return {GUESSER: (*tools, *self._questions), HOST: ()}

    def toolsets(self, agent: str, world: World[Any]) -> Sequence[object]:
        return (*world.toolsets(), self._hosted(world).questions())

    def toolset_for(self, agent: str, team: Team) -> Toolset:
        return Answering(self, team) if agent == HOST else Toolset()

    def notes(self, agent: str) -> str:
        if agent == HOST:
            return (
                f"# Host\nYou are {HOST}, and {GUESSER} asks. Answer with the tool answer; it "
                "takes no turn of the budget."
            )
        return (
            f"# Host\nYou are {GUESSER}. The host, {HOST}, knows what is hidden. It answers your "
            "guesses, and what you ask it "
            f"with {', '.join(self._questions)}; a referee sees to it that it answers right. Each "
            "of your replies takes a turn."
        )

    def opening(self, agent: str, team: Team) -> tuple[str, str | Content]:
        if agent == HOST:
            return self._hosted(team.worlds[agent]).host_rules(), team.tasks.get(
                HOST, "There is no question yet."
            )
        return super().opening(agent, team)

    def restated_task(self, agent: str, team: Team) -> str | None:
        return None if agent == HOST else super().restated_task(agent, team)

    def begin(self, team: Team) -> None:
        team.idle = {HOST}

    def run(
        self, agent: str, team: Team, call: ToolCall, go: Callable[[], str | Content]
    ) -> str | Content:
        question = self._hosted(team.worlds[agent]).question(call) if agent == GUESSER else ""
        if not question:
            return go()
        if team.question:
            raise ToolError(f"{HOST} has not answered yet; this call was not run")
        result = go()
        team.question = team.tasks[HOST] = question
        team.answer = result if isinstance(result, str) else result.text
        team.restarting.add(HOST)
        team.idle.add(GUESSER)
        return f"{HOST} is asked."

    def finished(self, agent: str, team: Team, reason: str) -> None:
        if team.question:
            team.pending_end = team.pending_end or reason
        else:
            team.end(reason)

    def take_answer(self, team: Team, text: str) -> str:
        """Let the referee check the host's answer, then forward a correct answer."""
        if not team.question:
            raise ToolError("there is no open question to answer")
        objection = self._hosted(team.worlds[HOST]).objection(text, team.answer)
        if objection:
            team.faults[HOST] += 1
            if team.faults[HOST] >= MOST_FAULTS:
                team.end("referee")
            return f"The referee: {objection}. Fault {team.faults[HOST]} of {MOST_FAULTS}."
        team.mail[GUESSER].append(f"{ANSWERS}\n{team.answer}")
        team.question = team.answer = ""
        team.idle.add(HOST)
        if team.pending_end:
            team.end(team.pending_end)
        return "Your answer is right and was passed on."

    def shares(self, team: Team, score: float) -> dict[str, float]:
        shares = super().shares(team, score)
        if team.faults[HOST]:
            shares[HOST] = 0.0
        return shares


class Answering(Toolset):
    """Toolset of the host."""

    def __init__(self, protocol: Hosting, team: Team) -> None:
        self._protocol, self._team = protocol, team

    @tool
    def answer(self, text: str) -> str:
        """Answer the guess or the question that was put to you. It takes no turn of the budget.

        Args:
            text: The answer: yes or no, or the lines with your verdicts.
        """
        return self._protocol.take_answer(self._team, text)
