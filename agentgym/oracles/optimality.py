"""Solved examples in the context, and labels of step optimality.

Examples are played through the same wrappers as the live episode, so that they look alike (LUMINA,
section 4.2). Labels give the step accuracy (section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, SupportsFloat

import gymnasium

from agentgym.assemble.wrapper_order import Stage, StagedWrapper
from agentgym.assemble.wrapper_stack import register_option
from agentgym.oracles.choices import best_call
from agentgym.oracles.hints import split_hints
from agentgym.play.env import ToolEnv, tool_env
from agentgym.text.messages import SYSTEM_ID, Chat, Message, ToolCall
from agentgym.text.parsing import render
from agentgym.text.validation import check_int
from agentgym.world.world import World, check_defined, check_hooks, has_hook

# Far above any seed that runs count up to.
EXAMPLE_SEED = 2**31


TASK_FOLLOWS = "The example ends here. What follows is another task."


class InContextExamples(
    StagedWrapper[Chat, str, Chat, str], gymnasium.ObservationWrapper[Chat, str, Chat]
):
    """Wrapper that adds solved examples between the system message and the task.

    Each example is a separate instance, solved by optimal calls in a second env of the same spec.
    It contains every observation as it looked when it was the newest, followed by the reply with
    the world's reasoning before the call. Its last line separates it from the following messages.

    Args:
        env: The env, with its oracles.
        shots: The number of examples.

    Example:
        >>> env = InContextExamples(gymnasium.make("agentgym/ListWorld-v0"), shots=1)
    """

    stage = Stage.EXAMPLES
    hooks: ClassVar[tuple[str, ...]] = ("optimal_calls",)

    def __init__(self, env: gymnasium.Env[Chat, str], shots: int = 1) -> None:
        check_int("shots", shots, 0, 100)
        if env.spec is None:
            raise ValueError(
                "InContextExamples needs an env made by gymnasium.make: it makes a second one from "
                "its spec"
            )
        super().__init__(env, shots=shots)
        check_hooks(self.world_env.world_class, self.hooks)
        check_defined(self.world_env.world_class, self.world_env.config, ("reasoning",))
        example_env = gymnasium.make(env.spec)
        self.examples = tuple(
            message for shot in range(shots) for message in _roll(example_env, shot)
        )
        self._source = Chat()
        self._shown = Chat()

    def observation(self, observation: Chat) -> Chat:
        """Insert the examples after a chat's system message."""
        # The newest message is kept apart, because the next observation drops its ephemeral hint.
        known = len(self._source.messages)
        if not known or observation.shared_prefix(self._source) < known:
            known = 1 if observation.messages[0].id == SYSTEM_ID else 0
            self._shown = Chat((*observation.messages[:known], *self.examples), observation.tools)
        self._shown = self._shown.extend(observation.messages[known:-1])
        self._source = observation.without_last()
        return self._shown.with_last(observation.messages[-1])


register_option("examples", InContextExamples, InContextExamples.stage)


def _roll(env: gymnasium.Env[Any, Any], shot: int) -> list[Message]:
    """Solve an instance; return the new messages of each observation and the replies, the last one
    with a separating line.
    """
    inner = tool_env(env)
    chat, _ = env.reset(seed=EXAMPLE_SEED + shot)
    messages: list[Message] = []
    while not inner.over:
        messages += _newest(chat)
        start = len(inner.chat.messages)
        chat, *_ = env.step(_think_and_call(inner, chat))
        reply, *results = inner.chat.messages[start:]
        messages.append(reply)
        if inner.over or not _newest(chat) or _newest(chat)[0].role != "tool":
            messages += results
    if inner.world.score() < 1.0:
        raise ValueError(
            f"the optimal calls of {type(inner.world).__name__} do not solve the seed "
            f"{EXAMPLE_SEED + shot}"
        )
    # A separate message would follow another user message, which some chat templates reject.
    messages[-1] = replace(messages[-1], text=f"{messages[-1].text}\n\n{TASK_FOLLOWS}")
    return [_rename(message, f"examples:{shot}", k) for k, message in enumerate(messages)]


def _think_and_call(inner: ToolEnv, chat: Chat) -> str:
    """Write the world's reasoning and an optimal call, as a model should.

    If the reasoning is empty or equals the visible state, the next step replaces it.
    """
    world, call = inner.world, best_call(inner.world)
    repeated = "state" in split_hints(chat.messages[-1].text)[1] and not has_hook(
        inner.world_class, "reasoning"
    )
    thought = "" if repeated else world.reasoning(call)
    if not thought and has_hook(inner.world_class, "subtask"):
        thought = world.subtask(with_state=True)
    return f"{thought}\n{render(call, inner.dialect)}".lstrip()


def _newest(chat: Chat) -> list[Message]:
    """Return the messages after the last reply, or all but the system message if there is none."""
    last = max(
        (k for k, message in enumerate(chat.messages) if message.role == "assistant"), default=0
    )
    return list(chat.messages[last + 1 :])


def _rename(message: Message, prefix: str, k: int) -> Message:
    calls = tuple(replace(call, id=f"{prefix}:{call.id}") for call in message.calls)
    call_id = f"{prefix}:{message.call_id}" if message.call_id else ""
    return replace(message, id=f"{prefix}:{k}", calls=calls, call_id=call_id)


class StepOptimality(StagedWrapper[Chat, str, Chat, str]):
    """Wrapper that adds `optimal` and `alive` to `info`, and `labels` in worlds that label each
    call (`World.label_calls`).

    `optimal` tells whether every call of the reply succeeded and was among the optimal ones; a
    reply without a readable call is not optimal. `alive` tells whether success was still possible
    before the reply. Both are None after a reset, or if the world does not define optimality.

    `labels` contains the world's label for each call, and `invalid` for a failed call. A reply is
    then optimal if all its calls are `optimal` or `neutral` and at least one is `optimal`, unless
    labels do not decide optimality in this world (`World.labels_decide`). No observation contains
    any of this.

    Example:
        >>> env = StepOptimality(gymnasium.make("agentgym/ListWorld-v0"))
    """

    def __init__(self, env: gymnasium.Env[Chat, str]) -> None:
        super().__init__(env)

    def reset(self, **options: Any) -> tuple[Chat, dict[str, Any]]:
        """Reset; there is no step to label yet."""
        chat, info = self.env.reset(**options)
        labels = {} if self.world_env.world.label_calls() is None else {"labels": ()}
        return chat, {**info, "optimal": None, "alive": None, **labels}

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        """Label the step against the optimal set before it."""
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
        # A tool fault is not the policy's error and may have changed the world, so the step gets no
        # label.
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
        """Return the labels of the reply at a position in the chat, given the optimal calls before
        it.
        """
        reply, *answers = self.world_env.chat.messages[start:]
        all_best = all_ran and bool(reply.calls) and all(call in best for call in reply.calls)
        if label_calls is None:
            return {"optimal": all_best, "alive": bool(best)}
        outcomes = [
            (call, not answer.text.startswith("error:"))
            for call, answer in zip(reply.calls, answers, strict=False)
        ]
        world_labels = iter(label_calls([call for call, ran in outcomes if ran]))
        labels = tuple(next(world_labels) if ran else "invalid" for _, ran in outcomes)
        all_good = "optimal" in labels and set(labels) <= {"optimal", "neutral"}
        optimal = all_good if world.labels_decide else all_best
        return {"optimal": optimal, "alive": bool(best), "labels": labels}


# Inside the oracles, so that labels refer to the world's own messages.
register_option("labels", StepOptimality, Stage.HINTS)
