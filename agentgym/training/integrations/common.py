"""Shared helpers of the trainer adapters."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from agentgym.assemble import registry
from agentgym.assemble import wrapper_stack as stacks
from agentgym.assemble.wrapper_order import Stage
from agentgym.multi.host import GUESSER
from agentgym.multi.kinds import MANAGER
from agentgym.play.env import ToolEnv, tool_env
from agentgym.play.policy import Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.token_ids import TokenIds
from agentgym.training.rollout.models.plain_chat import as_text

if TYPE_CHECKING:
    from agentgym.training.rollout import Renderer

# For each team: the only agent that has a single chat during an episode.
_ONE_CHAT = {"manager": MANAGER, "host": GUESSER}


def growing_spec(trainer: str, otherwise: str, env_id: str, options: Mapping[str, Any]) -> EnvSpec:
    """Return the spec of an append-only env, for a trainer that manages the history itself.

    Raises a `ValueError` with the advice `otherwise` if the env would edit or restart the history.
    """
    env_spec = registry.spec(env_id, **options)
    layers = [(layer.entry_point, layer.kwargs or {}) for layer in env_spec.additional_wrappers]
    for stack in env_spec.kwargs.get("stacks", {}).values():
        layers += [(layer["entry_point"], layer["kwargs"]) for layer in stack]
    if edits := [edit for layer in layers if (edit := _edit_of(*layer))]:
        raise ValueError(
            f"{trainer} keeps the history, so {edits[0]} cannot be used; remove it, or {otherwise}"
        )
    seat, team = env_spec.kwargs.get("seat", ""), env_spec.kwargs.get("team", "")
    if seat and seat != _ONE_CHAT.get(team, seat):
        raise ValueError(
            f"{trainer} keeps the history, and {seat} starts several chats in an episode; choose "
            f"the seat {_ONE_CHAT[team]}, or {otherwise}"
        )
    return env_spec


def _edit_of(path: str, arguments: Mapping[str, Any]) -> str:
    """Name the option with which a wrapper changes earlier messages; empty if it changes none."""
    wrapper = load_env_creator(path)
    stage = getattr(wrapper, "stage", Stage.TOOLS)
    if stage is Stage.HISTORY:
        return "oracle H"
    if Stage.EXAMPLES < stage < Stage.TRIM:
        return stacks.strategy_of(wrapper) or path.rpartition(":")[2]
    if arguments.get("hint_scope") == "ephemeral":
        return "hint_scope=ephemeral"
    if arguments.get("latest_only"):
        return "latest_only"
    window = (arguments.get("budget") or {}).get("window", stacks.WINDOW)
    return "" if window == stacks.WINDOW else "window"


def truncate(env: gymnasium.Env[Any, Any], reason: str) -> tuple[Any, ...]:
    """End an episode with its current score; return the same values as `env.step`."""
    inner: Any = env.unwrapped
    outcome: tuple[Any, ...] = inner.truncate(reason)
    return outcome


def refuse_images(
    bridge: str, env: gymnasium.Env[Any, Any], messages: Iterable[Message] = ()
) -> None:
    """Raise `ValueError` if an env shows images, which a text-only bridge cannot carry."""
    inner = tool_env(env)
    announced = "images" in inner.world_class.requirements(inner.config)
    if announced or any(message.images for message in messages):
        raise ValueError(
            f"{bridge} carries only text, and {inner.world_class.__name__} shows images; use "
            "TRL's environment_factory, verifiers, OpenEnv or Inspect, or render='scene'"
        )


def text_messages(
    bridge: str, env: gymnasium.Env[Any, Any], messages: Sequence[Message]
) -> list[dict[str, str]]:
    """Return messages with only `role` and `content`; raise `ValueError` for images."""
    refuse_images(bridge, env, messages)
    return [{"role": each.role, "content": each.text} for each in as_text(messages).messages]


def mcp_env(env: gymnasium.Env[Any, Any]) -> ToolEnv:
    """Return an env whose tools an MCP client can call; team seats are rejected."""
    inner = tool_env(env)
    if inner is not env.unwrapped:
        raise ValueError("a team requires turns, which MCP does not have; use OpenEnv or Inspect")
    return inner


def mcp_instructions(env: ToolEnv, chat: Chat) -> str:
    """Return an MCP server's instructions: the rules and the task."""
    task = chat.messages[1]
    if task.images:
        raise ValueError(
            f"MCP instructions carry only text, and the task of {env.world_class.__name__} shows "
            "an image; use verifiers, OpenEnv or Inspect"
        )
    return f"{env.world.rules()}\n\n{task.text}"


def seed_of(row: Mapping[str, Any]) -> int:
    """Return the seed of a dataset row."""
    try:
        return operator.index(row.get("seed"))  # type: ignore[arg-type]  # None is refused as any other value
    except TypeError:
        raise ValueError(
            f"a row needs an integer 'seed', got {row.get('seed')!r}; make the dataset with "
            "`prompts`"
        ) from None


def added(before: Chat, after: Chat) -> Sequence[Message]:
    """Return the messages added after a reply; raise `ValueError` if the chat was edited."""
    length = len(before.messages)
    if (
        after.shared_prefix(before) < length
        or len(after.messages) <= length
        or after.messages[length].role != "assistant"
    ):
        raise ValueError(
            "a wrapper of this env edits earlier messages, but the trainer keeps the history; "
            "remove the wrapper, or train on the chat of the env"
        )
    return after.messages[length + 1 :]


def sampled_reply(
    renderer: Renderer,
    chat: Chat,
    prompt: Sequence[int],
    ids: Sequence[int],
    logprobs: Sequence[float],
) -> Reply:
    """Return sampled ids as a reply, and store the prompt and the reply for later prompts.

    `ids` include the end token if present; `logprobs` are in nats, and empty if unknown.
    """
    prompt_ids = prompt if isinstance(prompt, TokenIds) else tuple(prompt)
    reply = Reply(renderer.decode(ids), prompt_ids, tuple(ids), tuple(logprobs))
    renderer.remember(chat, reply)
    return reply
