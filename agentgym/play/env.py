"""Gymnasium environment that plays any world."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agentgym.play.guard import FAULT, Guard, carry_out, is_stop, of_host, rebuild
from agentgym.play.rendering import render_chat
from agentgym.play.spaces import ActionSpace, ChatSpace
from agentgym.play.tool_host import ToolHost, episode_state
from agentgym.text import reply_work
from agentgym.text.messages import SYSTEM_ID, TASK_ID, Chat, Content, Image, Message, Messages
from agentgym.text.parsing import DIALECTS, NO_CALL, Dialect, explain, parse
from agentgym.text.requirements import check_requirements
from agentgym.text.tool_results import cut_error, cut_result, run_tool
from agentgym.text.tools import (
    BoundTool,
    HostLimitError,
    RollbackError,
    ToolError,
    Toolset,
    check_jsonable,
    echo,
    listed,
)
from agentgym.text.validation import check_bool, check_choice, check_int, check_reset
from agentgym.world.config import make_config
from agentgym.world.splits import config_for_split, draw_instance
from agentgym.world.step_info import NestedCall, StepInfo
from agentgym.world.world import SplitName, World, load_world

# Maximum calls per reply; further calls return an error, so that a step takes limited time.
MAX_CALLS = 128

# Errors stay in the context, so keep them short.
MAX_ERROR_CHARS = 2_000

# About 250,000 tokens, more than the longest result that the oracle reads in an office.
DEFAULT_RESULT_CHARS = 1_000_000

# Shorter results do not count towards a reply's work budget, because counting would be slow.
_SHORT_RESULT = 10_000

# These objects are shared, because building a `StepInfo` takes as long as a call.
_QUIET = {0: StepInfo(), 1: StepInfo(calls=1)}
# Prefix of the error for a reply that does not attempt a call.
_PROSE = f"error: {NO_CALL}"


class ToolEnv(ToolHost):
    """Env that plays a world: it parses a reply, runs its calls and shows the results.

    Every text is a valid action. The reward is the world's score, given once, at the end. The
    episode terminates when the world has ended. The episode is truncated if the world has not ended
    after the last turn of the budget.

    After an unexpected exception of a tool or the scorer, the call returns an error, the world is
    restored, and `StepInfo.faults` contains the exception.

    Args:
        world: The world's class or path (`"package.module:Class"`).
        dialect: The format of calls: `auto`, `json` or `python` (see `agentgym.text.parsing`).
        parallel_calls: Whether one reply may contain several calls, if the world allows it.
        max_failed_rounds: The number of consecutive replies without a successful call that ends
            the episode; `world` uses `World.max_failed_rounds`, and None disables the limit.
        max_result_chars: The maximum number of characters of a tool result, except for calls from
            code; a longer result is cut, with a notice. Errors are cut at 2,000 characters, too.
        on_fault: Whether to `report` or `raise` unexpected exceptions of a tool or the scorer.
        render_mode: `ansi` renders the chat and the board as text, `rgb_array` the board as a
            picture.
        split: `train`, `test`, or None for all instances.
        **config: Fields of the world's `Config`.

    Attributes:
        most_calls: The maximum number of calls per reply; None for no limit.
        instance_key: The key of the instance; empty without a split.
        sees_all: Whether the agent's chat contains the results of all agents' calls.

    Raises:
        ValueError: An option is invalid, or a split has too few instances.
        MissingRequirement: The host does not meet the world's requirements.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 1}  # noqa: RUF012 - as Gymnasium declares it
    sees_all: ClassVar[bool] = True

    def __init__(
        self,
        world: type[World[Any]] | str,
        *,
        dialect: Dialect = "auto",
        parallel_calls: bool = True,
        max_failed_rounds: int | Literal["world"] | None = "world",
        max_result_chars: int = DEFAULT_RESULT_CHARS,
        on_fault: Literal["report", "raise"] = "report",
        render_mode: str | None = None,
        split: SplitName | None = None,
        **config: Any,
    ) -> None:
        check_choice("dialect", dialect, DIALECTS)
        check_bool("parallel_calls", parallel_calls)
        if max_failed_rounds not in (None, "world"):
            check_int("max_failed_rounds", max_failed_rounds, 1, 1_000_000)
        check_int("max_result_chars", max_result_chars, 1, 10**9)
        check_choice("on_fault", on_fault, ("report", "raise"))
        if render_mode is not None:
            check_choice("render_mode", render_mode, self.metadata["render_modes"])
        world_class = load_world(world)
        plain = make_config(world_class, config)
        check_requirements(world_class.__name__, world_class.requirements(plain))
        super().__init__(
            world_class,
            config_for_split(world_class, plain, split),
            dialect,
            parallel_calls and world_class.parallel_calls,
        )
        self.split, self.instance_key = split, ""
        if max_failed_rounds == "world":
            max_failed_rounds = world_class.max_failed_rounds
        self.max_failed_rounds = max_failed_rounds
        self.max_result_chars = max_result_chars
        self.render_mode = render_mode
        self.guard = Guard(on_fault)
        self._failed_rounds = 0
        self._nested: list[NestedCall] = []
        self.observation_space = ChatSpace()
        if not self._schemas:
            raise ValueError(
                f"{world_class.__name__} has no tools; mark at least one method with @tool"
            )
        self.action_space = ActionSpace(self._schemas, dialect)

    # Hooks that the `AgentEnv` of a team overrides.

    def _begin(self) -> World[Any]:
        drawn = draw_instance(self.world_class, self.config, self.np_random, self.split)
        self.instance_key = drawn.key
        return drawn.world

    def _rebuilt(self, world: World[Any], calls: int) -> World[Any]:
        new = self.world_class(self.config, world.instance_seed)
        new.generate()
        return rebuild(world, new, self._world_tools(new), calls)

    def _replace_world(self, world: World[Any]) -> None:
        self._world = world
        self._bind(world)

    def _opening(self, world: World[Any]) -> tuple[str, str | Content]:
        return world.rules(), world.task()

    def restated_task(self) -> str | None:
        """Return the result of `World.restate`, or None if the hook fails."""
        with self.guard.watch("the restated task", "the task could not be restated"):
            return self.world.restate()
        return None

    def _moment(self, world: World[Any]) -> str:
        return f"{world.instance}:{world.turn}"

    def _read(self, world: World[Any], action: str) -> tuple[Message, int]:
        world.turn += 1
        return self._parse(world, action, world.turn), world.turn

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Chat, dict[str, Any]]:
        """Start an episode; the configuration and the seed determine the instance."""
        check_reset(options, vars(self.config))
        super().reset(seed=seed)
        self.close()
        world = self._begin()
        self._world, self._over, self._failed_rounds, self._nested = world, False, 0, []
        self.guard.begin()
        for toolset in self._mounted:
            if isinstance(toolset, Toolset):
                toolset.begin()
        self._bind(world)
        rules, task = self._opening(world)
        content = task if isinstance(task, Content) else Content(task)
        opening = (
            Message("system", f"{rules}\n\n{self._documentation}", id=SYSTEM_ID),
            Message(
                "user",
                content.text,
                images=content.images,
                id=TASK_ID,
                moment=self._moment(world),
            ),
        )
        self.chat = Chat(Messages(opening), self._schemas)
        return self.chat, self._info(world, 0, 0)

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        """Run one reply; raise ResetNeeded if no episode is running."""
        world = self._running_world("call reset() before the next step()")
        if not isinstance(action, str):
            raise TypeError(
                f"an action must be the policy's reply (str), got {type(action).__name__}"
            )
        reply, turn = self._read(world, action)
        if len(reply.calls) > 1:
            with reply_work.shared_room():
                answers, errors = self._answer(world, reply, action, turn)
        else:
            answers, errors = self._answer(world, reply, action, turn)
        if self.guard.faults:
            world = self.world  # a fault may have re-created the world
        self.chat = chat = self.chat.extend([reply, *answers])
        if errors < len(answers):
            self._failed_rounds = 0
        elif not self.guard.faults and (
            world.prose_fails or not answers[0].text.startswith(_PROSE)
        ):  # a fault is not the policy's failure
            self._failed_rounds += 1
        if ended := self._ended(world):
            return self._end(ended, len(reply.calls), errors)
        return chat, 0.0, False, False, self._info(world, len(reply.calls), errors)

    def _running_world(self, remedy: str) -> World[Any]:
        if self._world is None or self._over:
            raise gymnasium.error.ResetNeeded(f"there is no running episode: {remedy}")
        return self._world

    def _parse(self, world: World[Any], action: str, turn: int) -> Message:
        reply = parse(action, self.dialect, self._schemas, turn)
        if len(reply.calls) == 1:
            return reply
        if not reply.calls:
            with self.guard.watch("final_answer"):
                if call := world.final_answer(reply.text):
                    reply = replace(reply, calls=(replace(call, id=f"call_{turn}_0"),))
        if self.most_calls is not None and len(reply.calls) > self.most_calls:
            return replace(reply, calls=())
        return reply

    def _answer(
        self, world: World[Any], reply: Message, action: str, turn: int
    ) -> tuple[list[Message], int]:
        moment = self._moment(world)
        if not reply.calls:
            problem = explain(action, self.dialect, self._schemas)
            if not problem:  # the calls are readable, but there are too many
                several = "" if self.most_calls in (None, 1) else f", or up to {self.most_calls}"
                problem = f"this world takes one call in each reply{several}; none was run"
            return [Message("user", f"error: {problem}", id=f"{turn}:1", moment=moment)], 1
        answers: list[Message] = []
        errors = 0
        for k, call in enumerate(reply.calls, 1):
            try:
                if k > MAX_CALLS:
                    raise ToolError(
                        f"one reply may contain at most {MAX_CALLS} calls; this call was not run"
                    )
                if k > 1:
                    reply_work.check_room()
                result = self._guarded(self._direct, call.name, call.arguments)
                text, images = self._limited(result)
            except ToolError as error:
                text, images = f"error: {self._limited_error(error)}", ()
                errors += 1
            if len(text) > _SHORT_RESULT:
                reply_work.spend(len(text) / DEFAULT_RESULT_CHARS)
            answers.append(
                Message("tool", text, "", (), call.id, images, f"{turn}:{k}", "", moment)
            )
        return answers, errors

    def call(self, name: str, arguments: Mapping[str, Any], *, nested: bool = False) -> Content:
        """Run one call outside the chat, for code, TRL or an MCP server.

        With `nested`, `StepInfo.nested` lists the call. Raises `ToolError` if the tool rejected the
        call.
        """
        self._running_world("call reset() before call()")
        check_jsonable(arguments)
        if nested:
            return self._call_from_code(name, arguments)
        try:
            return Content(*self._limited(self._guarded(self._tools, name, arguments)))
        except ToolError as error:
            error.args = (self._limited_error(error),)
            raise

    def _limited(self, result: str | Content) -> tuple[str, tuple[Image, ...]]:
        if isinstance(result, str):
            return cut_result(result, self.max_result_chars), ()
        return cut_result(result.text, self.max_result_chars), result.images

    def _limited_error(self, error: ToolError) -> str:
        return cut_error(str(error), min(self.max_result_chars, MAX_ERROR_CHARS))

    def _call_from_code(self, name: str, arguments: Mapping[str, Any]) -> Content:
        try:
            reply_work.check_room()
            result = self._guarded(self._tools, name, arguments)
        except ToolError as error:
            error.args = (cut_error(str(error), MAX_ERROR_CHARS),)
            self._nested.append(NestedCall(name, dict(arguments), f"error: {error}"))
            raise
        content = result if isinstance(result, Content) else Content(result)
        if len(content.text) > _SHORT_RESULT:
            reply_work.spend(len(content.text) / DEFAULT_RESULT_CHARS)
        self._nested.append(NestedCall(name, dict(arguments), content.text))
        return content

    def truncate(self, reason: str) -> tuple[Chat, float, bool, bool, dict[str, Any]]:
        """End the episode with the current score; `reason` becomes `StepInfo.ended`."""
        self._running_world("call reset() before truncate()")
        return self._end(reason)

    def _guarded(
        self, tools: Mapping[str, BoundTool], name: str, arguments: Mapping[str, Any]
    ) -> str | Content:
        world = self._world
        assert world is not None  # callers have checked it
        calls = len(world.call_log)
        if self.guard.broken:
            raise ToolError("the episode has ended; this call was not run")
        try:
            return self._run(world, tools, name, arguments)
        except HostLimitError as error:
            self.guard.record(name, error, f"{name} was stopped by the host: {error}")
            raise
        except ToolError:
            raise
        except BaseException as error:
            if is_stop(error):
                raise
            self._undo(world, tools[name], error, calls)
            host = f"{name}: the host gave out ({type(error).__name__})" if of_host(error) else ""
            self.guard.record(name, error, host)
            raise ToolError(FAULT) from None

    def _undo(self, world: World[Any], bound: BoundTool, error: BaseException, calls: int) -> None:
        name = bound.schema.name
        with self.guard.watch(name, "the state before a call could not be restored"):
            if isinstance(error, RollbackError):
                raise error
            if not bound.restores and any(
                bound.owner is each and episode_state(each) for each in self._mounted
            ):
                raise RollbackError(f"{name} does not support transactions")
            if len(world.call_log) != calls or (name in self._own and not bound.restores):
                self._replace_world(self._rebuilt(world, calls))
            return
        self.guard.broken = True

    def _run(
        self,
        world: World[Any],
        tools: Mapping[str, BoundTool],
        name: str,
        arguments: Mapping[str, Any],
    ) -> str | Content:
        bound = tools.get(name)
        if bound is None:
            raise ToolError(f"there is no tool {echo(name)}; tools: {listed(tools)}")
        if world.done:
            raise ToolError("the episode has ended; this call was not run")
        if name in self._own:
            return carry_out(world, bound, name, arguments)
        return run_tool(bound, arguments)

    def _ended(self, world: World[Any]) -> str:
        if self.guard.broken:
            return "fault"
        if world.done:
            return "world"
        if self.max_failed_rounds is not None and self._failed_rounds >= self.max_failed_rounds:
            return "failed_rounds"
        return "max_turns" if world.max_turns is not None and world.turn >= world.max_turns else ""

    def _end(
        self, ended: str, calls: int = 0, errors: int = 0
    ) -> tuple[Chat, float, bool, bool, dict[str, Any]]:
        self._over = True
        score, report = self.guard.score(self.world)
        info = {
            "turn": self.world.turn,
            "valid": errors == 0,
            "success": score is not None and score >= 1.0,
            "detail": replace(
                self._detail(calls, errors, ended),
                score=score,
                report=report,
                split=self.split or "",
                instance=self.instance_key,
            ),
        }
        terminated = ended in ("world", "failed_rounds")
        return self.chat, score or 0.0, terminated, not terminated, info

    def _info(self, world: World[Any], calls: int, errors: int) -> dict[str, Any]:
        guard = self.guard
        eventful = errors or self._failed_rounds or self._nested or guard.faults or guard.invalid
        detail = (None if eventful else _QUIET.get(calls)) or self._detail(calls, errors)
        return {"turn": world.turn, "valid": errors == 0, "success": False, "detail": detail}

    def _detail(self, calls: int, errors: int, ended: str = "") -> StepInfo:
        nested, self._nested = tuple(self._nested), []
        return StepInfo(
            calls,
            errors,
            self._failed_rounds,
            ended,
            nested=nested,
            faults=self.guard.take_faults(),
            invalid=self.guard.invalid,
        )

    def render(self) -> str | NDArray[np.uint8] | None:
        return render_chat(self.render_mode, self.chat, self.world.board())


def clone(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return an independent copy of an env with its wrappers."""
    return copy.deepcopy(env)


def tool_env(env: gymnasium.Env[Any, Any]) -> ToolEnv:
    """Return the `ToolEnv` inside wrappers; in a team, the seat's `ToolEnv`."""
    inner = getattr(env.unwrapped, "agent_env", env.unwrapped)
    if not isinstance(inner, ToolEnv):
        raise TypeError(
            f"expected an agentgym env with one agent, got {type(inner).__name__}; give a seat "
            "and opponents, or use collect, verifiers, TextArena or PettingZoo, which play teams"
        )
    return inner
