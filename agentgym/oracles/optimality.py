"""Solved examples (LUMINA, section 4.2) and labels of step optimality (section 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, SupportsFloat

import gymnasium
import numpy as np

from agentgym.assemble.registry import ids_of
from agentgym.assemble.wrapper_order import Stage, StagedWrapper
from agentgym.assemble.wrapper_stack import register_option
from agentgym.multi.agent_env import AgentEnv
from agentgym.multi.game import Game
from agentgym.oracles.choices import best_call
from agentgym.oracles.hints import split_hints
from agentgym.oracles.teams import TeamPolicy
from agentgym.play.env import ToolEnv, tool_env
from agentgym.text.messages import SYSTEM_ID, Chat, Message, ToolCall
from agentgym.text.parsing import parse, render
from agentgym.text.validation import check_int
from agentgym.world.world import World, check_defined, check_hooks, has_hook, world_path

EXAMPLE_SEED = 2**31  # larger than the seeds of normal runs

TASK_FOLLOWS = "The example ends here. What follows is another task."


class InContextExamples(
    StagedWrapper[Chat, str, Chat, str], gymnasium.ObservationWrapper[Chat, str, Chat]
):
    """Wrapper that adds solved examples between the system message and the task.

    Each example shows another instance, solved by optimal calls in a second env of the same spec.
    Each observation is followed by the world's reasoning and the call. In a team, `TeamPolicy`
    solves the instance, and each agent sees its own final chat.

    Args:
        env: The env, including its oracle wrappers.
        shots: The number of examples.

    Example:
        >>> env = InContextExamples(gymnasium.make("agentgym/ListWorld-v0"), shots=1)
    """

    stage = Stage.EXAMPLES
    hooks: ClassVar[tuple[str, ...]] = ("optimal_calls",)

    def __init__(self, env: gymnasium.Env[Chat, str], shots: int = 1) -> None:
        check_int("shots", shots, 0, 100)
        agent_env = env.unwrapped
        if env.spec is None and not isinstance(agent_env, AgentEnv):
            raise ValueError(
                "InContextExamples requires an env from gymnasium.make, because a second env with "
                "the same spec plays the examples"
            )
        super().__init__(env, shots=shots)
        check_hooks(self.world_env.world_class, self.hooks)
        check_defined(self.world_env.world_class, self.world_env.config, ("reasoning",))
        examples: list[Message] = []
        example_env = None if env.spec is None else gymnasium.make(env.spec)
        for shot in range(shots):
            if example_env is not None:
                examples += _roll(example_env, shot)
            elif isinstance(agent_env, AgentEnv):
                examples += _roll_team(agent_env, shot)
        self.examples = tuple(examples)
        self._source = Chat()
        self._shown = Chat()

    def observation(self, observation: Chat) -> Chat:
        # The newest message is stored separately, because the next observation drops its ephemeral
        # hint.
        known = len(self._source.messages)
        if not known or observation.shared_prefix(self._source) < known:
            known = 1 if observation.messages[0].id == SYSTEM_ID else 0
            self._shown = Chat((*observation.messages[:known], *self.examples), observation.tools)
        self._shown = self._shown.extend(observation.messages[known:-1])
        self._source = observation.without_last()
        return self._shown.with_last(observation.messages[-1])


register_option("examples", InContextExamples, InContextExamples.stage)


def _roll(env: gymnasium.Env[Any, Any], shot: int) -> list[Message]:
    inner = tool_env(env)
    chat, _ = env.reset(seed=EXAMPLE_SEED + shot)
    messages: list[Message] = []
    while not inner.over:
        messages += _newest(chat)
        start = len(inner.chat.messages)
        chat, *_ = env.step(_think_and_call(inner, chat, best_call(inner.world)))
        reply, *results = inner.chat.messages[start:]
        messages.append(reply)
        if inner.over or not _newest(chat) or _newest(chat)[0].role != "tool":
            messages += results
    if inner.world.score() < 1.0:
        raise ValueError(
            f"the optimal calls of {type(inner.world).__name__} do not solve seed "
            f"{EXAMPLE_SEED + shot}"
        )
    return _close_example(messages, shot)


def _roll_team(agent_env: AgentEnv, shot: int) -> list[Message]:
    game = _example_game(agent_env)
    policy = TeamPolicy(ids_of(world_path(game.world_class))[0], dialect=game.dialect)
    game.reset(np.random.default_rng(EXAMPLE_SEED + shot))
    agent, task, messages = agent_env.agent, 0, list[Message]()
    mine = game.agent_envs[agent]
    while not game.over:
        due, chat = game.due[0], game.chats[game.due[0]]
        text = policy([chat])[0].text
        if due != agent:
            game.play(due, text)
        else:
            if game.infos[agent]["task"] != task:  # a worker's new sub-task
                task, messages = game.infos[agent]["task"], []
            messages += _newest(chat)
            calls, start = parse(text, game.dialect).calls, len(mine.chat.messages)
            if calls and calls[0].name in game.protocol.agents[agent]:
                text = _think_and_call(mine, chat, calls[0])
            game.play(agent, text)
            messages.append(mine.chat.messages[start])
        game.advance()
    if game.score < 1.0:
        raise ValueError(f"TeamPolicy does not solve seed {EXAMPLE_SEED + shot} of this team")
    if not messages:  # this agent never replied
        return []
    return _close_example([*messages, *_newest(game.chats[agent])], shot)


def _example_game(agent_env: AgentEnv) -> Game:
    stacks: dict[str, list[Any]] = {}
    for agent, stack in agent_env.game_arguments["stacks"].items():
        stacks[agent] = []
        for layer in stack:
            if layer["entry_point"].rpartition(":")[2] == InContextExamples.__name__:
                break
            stacks[agent].append(layer)
    arguments = {**agent_env.game_arguments, "stacks": stacks}
    arguments.pop("message_noise", None)
    return Game(**arguments)


def _close_example(messages: list[Message], shot: int) -> list[Message]:
    # A separate message would follow another user message, which some chat templates reject.
    messages[-1] = replace(messages[-1], text=f"{messages[-1].text}\n\n{TASK_FOLLOWS}")
    return [_rename(message, f"examples:{shot}", k) for k, message in enumerate(messages)]


def _think_and_call(inner: ToolEnv, chat: Chat, call: ToolCall) -> str:
    # Reasoning that is empty or repeats the visible state is replaced by the next step.
    world = inner.world
    shows_state = "state" in split_hints(chat.messages[-1].text)[1]
    repeats = shows_state and not has_hook(inner.world_class, "reasoning")
    thought = "" if repeats else world.reasoning(call)
    if not thought and has_hook(inner.world_class, "subtask"):
        thought = world.subtask(with_state=True)
    return f"{thought}\n{render(call, inner.dialect)}".lstrip()


def _newest(chat: Chat) -> list[Message]:
    last = 0
    for k, message in enumerate(chat.messages):
        if message.role == "assistant":
            last = k
    return list(chat.messages[last + 1 :])


def _rename(message: Message, prefix: str, k: int) -> Message:
    calls = tuple(replace(call, id=f"{prefix}:{call.id}") for call in message.calls)
    call_id = f"{prefix}:{message.call_id}" if message.call_id else ""
    return replace(message, id=f"{prefix}:{k}", calls=calls, call_id=call_id)


class StepOptimality(StagedWrapper[Chat, str, Chat, str]):
    """Wrapper that adds `optimal`, `alive` and, if `World.label_calls` is defined, `labels` to
    `info`.

    `optimal`: every call of the reply succeeded and was an optimal call. `alive`: success was still
    possible before the reply. `optimal` and `alive` are None after a reset or a fault, or if
    optimality is undefined.

    `labels`: the world's label for each call, or `invalid` for a failed call. If
    `World.labels_decide` is true, a reply is optimal if its labels are `optimal` or `neutral`, and
    at least one is `optimal`.

    Example:
        >>> env = StepOptimality(gymnasium.make("agentgym/ListWorld-v0"))
    """

    def __init__(self, env: gymnasium.Env[Chat, str]) -> None:
        super().__init__(env)

    def reset(self, **options: Any) -> tuple[Chat, dict[str, Any]]:
        chat, info = self.env.reset(**options)
        labels = {} if self.world_env.world.label_calls() is None else {"labels": ()}
        return chat, {**info, "optimal": None, "alive": None, **labels}

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        world, guard = self.world_env.world, self.world_env.guard
        best: Sequence[ToolCall] | None = None
        label_calls: Callable[[Sequence[ToolCall]], Sequence[str]] | None = None
        with guard.watch("labels"):
            best, label_calls = world.optimal_calls(), world.label_calls()
        start = len(self.world_env.chat.messages)
        chat, reward, terminated, truncated, info = self.env.step(action)
        labels: dict[str, Any] = {"optimal": None, "alive": None}
        if label_calls is not None:
            labels["labels"] = ()
        # A tool fault is not the policy's error and may have changed the world.
        if best is not None and not info["detail"].faults:
            with guard.watch("labels"):
                labels = self._label(world, best, label_calls, start, all_ran=info["valid"])
        return chat, reward, terminated, truncated, {**guard.add_faults(info), **labels}

    def _label(
        self,
        world: World[Any],
        best: Sequence[ToolCall],
        label_calls: Callable[[Sequence[ToolCall]], Sequence[str]] | None,
        start: int,
        all_ran: bool,
    ) -> dict[str, Any]:
        reply, *answers = self.world_env.chat.messages[start:]
        optimal = all_ran and bool(reply.calls) and all(call in best for call in reply.calls)
        if label_calls is None:
            return {"optimal": optimal, "alive": bool(best)}
        labels: list[str] = []
        ran: list[ToolCall] = []
        for call, answer in zip(reply.calls, answers, strict=False):
            if answer.text.startswith("error:"):
                labels.append("invalid")
            else:
                labels.append("")
                ran.append(call)
        world_labels = iter(label_calls(ran))
        labels = [label or next(world_labels) for label in labels]
        if world.labels_decide:
            optimal = "optimal" in labels and set(labels) <= {"optimal", "neutral"}
        return {"optimal": optimal, "alive": bool(best), "labels": tuple(labels)}


# This wrapper is inside the oracles, because labels refer to the world's own messages.
register_option("labels", StepOptimality, Stage.HINTS)
