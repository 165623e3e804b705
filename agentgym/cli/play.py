"""The command `play`: a person plays a world in the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from agentgym.assemble.registry import make
from agentgym.cli.common import Options, WorldId, exit_on_user_error, parse_world_options
from agentgym.cli.episodes import Oracles, Seed
from agentgym.play.env import ToolEnv
from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.parsing import parse
from agentgym.text.tools import Tool
from agentgym.text.validation import suggest
from agentgym.training.rollout import Episode, TrajectoryLog
from agentgym.training.rollout.episode import spec_of
from agentgym.world.world import World

HELP = """Type a call, such as {example}, or just the name of a tool without arguments.
  tools   list the tools            state   summarise what you know
  best    show the optimal calls    chat    show the whole chat
  quit    leave (or Ctrl-D)"""
# The system message is shortened here, because the tool schemas would fill the screen.
_TOOL_SECTION = "\n\n# Tools\n"
_TAKEN = ("oracles", "labels", "render_mode")
_FENCE = "```python"
_CALL = re.compile(r"[A-Za-z_]\w*\s*\(.*\)", re.DOTALL)
_LABELS = {"policy": "human"}
# Maximum number of optimal calls to list; a world may have thousands.
_SHOWN = 10


class TerminalGame:
    """A terminal session in which a person plays `episode`."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        # Count the messages shown so far in each chat. Every agent of a team has its own chat, which
        # is identified by its system message.
        self._shown: dict[str, int] = {}
        self._commands: dict[str, Callable[[], str]] = {
            "help": self._help,
            "tools": self._tools,
            "state": self._state,
            "best": self._best,
            "chat": self._chat,
        }

    def news(self) -> str:
        """Return the new messages and any board."""
        messages = self.episode.chat.messages
        key = messages[0].text
        # Omit the player's own reply; if the history was pruned, show the last message.
        new = messages[self._shown.get(key, -1) + 1 :] or messages[-1:]
        self._shown[key] = len(messages)
        return _paragraphs(Chat(tuple(map(self._brief, new))).to_text(), self._board())

    def enter(self, line: str) -> str:
        """Run a command or play a tool call, and return the text to show."""
        if line in self._commands:
            return self._commands[line]()
        reply = self._reply(line)
        if reply is None:
            close = suggest(line.partition("(")[0], [*self._tool_names(), *self._commands, "quit"])
            remedy = close or "tools lists the calls, help the commands"
            return f"{line!r} is neither a call nor a command; {remedy}"
        messages = self.episode.chat.messages
        self._shown[messages[0].text] = len(messages)
        self.episode.play(Reply(reply))
        return self.news()

    def _help(self) -> str:
        tools = self.episode.chat.tools
        with_arguments = [tool for tool in tools if tool.parameters.get("properties")]
        return HELP.format(example=_usage((with_arguments or tools)[0]))

    def _brief(self, message: Message) -> Message:
        rules, section, _ = message.text.partition(_TOOL_SECTION)
        if message.role != "system" or not section:
            return message
        return Message("system", f"{rules}\n\n{self._help()}")

    def _tool_names(self) -> list[str]:
        return [tool.name for tool in self.episode.chat.tools]

    def result(self) -> str:
        """Describe how the episode ended."""
        trajectory = self.episode.trajectory()
        info = trajectory.steps[-1].info
        solved = "solved" if info["success"] else "not solved"
        faults = (info["detail"]["report"] or {}).get("faults", ())
        head = f"{solved} in {info['turn']} turns, score {trajectory.reward}"
        return "\n".join([head, *(f"- {fault}" for fault in faults)])

    @property
    def _world(self) -> World[Any] | None:
        """The world; None for a team, whose agents have separate views."""
        env = self.episode.env.unwrapped
        return env.world if isinstance(env, ToolEnv) else None

    def _reply(self, line: str) -> str | None:
        if parse(line).calls:
            return line
        if line in self._tool_names():
            line = f"{line}()"
        # Wrap a call in a code block, as the env expects; the env reports errors in the call.
        if _CALL.fullmatch(line):
            return f"{_FENCE}\n{line}\n```"
        return line if self._world is not None and self._world.final_answer(line) else None

    def _chat(self) -> str:
        return self.episode.chat.to_text()

    def _board(self) -> str:
        return self._world.board() if self._world is not None and not self.episode.over else ""

    def _tools(self) -> str:
        return "\n".join(f"{_usage(tool)}: {tool.description}" for tool in self.episode.chat.tools)

    def _state(self) -> str:
        if self._world is None:
            return "not available in a team: each agent knows only its own chat"
        return self._world.state()

    def _best(self) -> str:
        calls = None if self._world is None else self._world.optimal_calls()
        if calls is None:
            return "optimal calls are not defined here"
        if not len(calls):
            return "the task can no longer be solved"
        lines = []
        for call in islice(calls, _SHOWN):
            arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
            lines.append(f"{call.name}({arguments})")
        if len(calls) > _SHOWN:
            lines.append(f"and {len(calls) - _SHOWN} more")
        return "\n".join(lines)


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _usage(tool: Tool) -> str:
    names = tool.parameters.get("properties", {})
    return f"{tool.name}({', '.join(f'{name}=…' for name in names)})"


def play(
    env_id: WorldId,
    seed: Seed = 0,
    oracles: Oracles = "",
    options: Options = [],  # noqa: B006 - typer's form of a repeated option
    out: Annotated[Path | None, "Append the episode to this log (JSONL) at the end."] = None,
) -> None:
    """Play a world yourself in the terminal. Type a call such as pop(id=3), or help; Ctrl-D quits."""
    with exit_on_user_error():
        env = make(
            env_id, oracles=oracles, labels=True, **parse_world_options(options, taken=_TAKEN)
        )
        game = TerminalGame(Episode(env, seed, _LABELS))
        if out is not None:
            for _ in TrajectoryLog(out).of_run(spec_of(env), _LABELS):
                pass
    if sys.stdin.isatty():
        with suppress(ImportError):  # missing on Windows
            import readline  # noqa: F401, PLC0415 - it lets `input` edit lines, and changes the terminal
    typer.echo(game.news())
    while not game.episode.over:
        try:
            line = input("\n> ").strip()
        except (EOFError, KeyboardInterrupt):
            line = "quit"
        if line == "quit":
            typer.echo("\nabandoned")
            break
        if line:
            typer.echo("\n" + game.enter(line))
    else:
        typer.echo("\n" + game.result())
    # An abandoned episode is recorded as a failure and is not scored.
    trajectory = game.episode.trajectory("" if game.episode.over else "abandoned")
    if out is not None and trajectory.steps:
        with exit_on_user_error():
            TrajectoryLog(out).append(trajectory.to_json())
        typer.echo(f"wrote the episode to {out}; agentgym view {out} shows it")
