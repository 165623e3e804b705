"""What the adapters to other trainers share: envs whose chat only grows, chats as plain messages, replies out of sampled tokens."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import EnvSpec

from agentgym import registry, stacks
from agentgym.messages import Chat, Message
from agentgym.parsing import render
from agentgym.policy import Reply

if TYPE_CHECKING:
    from agentgym.training.rollout.models import Renderer

_EDITS = ("clear_results", "clear_thinking", "compaction")


def growing_spec(trainer: str, otherwise: str, env_id: str, options: Mapping[str, Any]) -> EnvSpec:
    """The spec of an env whose chat only grows, for a trainer that keeps the history itself.

    Args:
        trainer: The name of the trainer, for the error.
        otherwise: What to do with a stack that edits the context, for the error.
        env_id: The id of a world.
        options: What `agentgym.make` takes.

    Raises:
        ValueError: The id or an option is not right, or an option edits the context.
    """
    asked = stacks.check_context(options.get("context", ""))
    edits = [name for name in asked if name in _EDITS]
    edits += ["oracle H"] if "H" in stacks.check_arm(options.get("oracles", "")) else []
    edits += ["window"] if options.get("window") is not None else []
    edits += ["hint_scope=ephemeral"] if options.get("hint_scope") == "ephemeral" else []
    if edits:
        raise ValueError(f"{trainer} keeps the history, so {edits[0]} cannot edit it; leave it out, or {otherwise}")
    return registry.spec(env_id, **options)


def seed_of(row: Mapping[str, Any]) -> int:
    """The seed of a row of a data set.

    Raises:
        ValueError: It has none.
    """
    try:
        return operator.index(row.get("seed"))  # type: ignore[arg-type]  # None is refused as any other value
    except TypeError:
        message = f"a row needs an integer 'seed', got {row.get('seed')!r}; make the data set with `prompts`"
        raise ValueError(message) from None


def added(before: Chat, after: Chat) -> Sequence[Message]:
    """What the env said to a reply: the messages after it.

    Raises:
        ValueError: The chat after the reply does not go on from the one before it.
    """
    known = len(before.messages)
    if after.shared_prefix(before) < known or len(after.messages) <= known or after.messages[known].role != "assistant":
        raise ValueError(
            "a wrapper of this env edits what was shown before, but the trainer keeps the history; "
            "leave the wrapper out, or train on the chat of the env"
        )
    return after.messages[known + 1 :]


def as_text(messages: Iterable[Message]) -> Chat:
    """Replies as written, results as user messages, neighbours of one role as one message."""
    out: list[Message] = []
    for message in messages:
        said = message.raw or "\n".join(filter(None, (message.text, *map(render, message.calls))))
        new = Message("user" if message.role == "tool" else message.role, said, images=message.images)
        out.append(joined(out.pop(), new) if out and out[-1].role == new.role else new)
    return Chat(tuple(out))


def joined(first: Message, second: Message) -> Message:
    """Two messages of one role as one."""
    return replace(first, text=f"{first.text}\n\n{second.text}", images=first.images + second.images)


def plain_messages(messages: Iterable[Message]) -> list[dict[str, str]]:
    """Messages as `role` and `content` alone, for trainers that know neither calls nor results. Pictures are left out."""
    return [{"role": message.role, "content": message.text} for message in as_text(messages).messages]


def sampled_reply(renderer: Renderer, chat: Chat, prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[float]) -> Reply:
    """The reply to a chat that these ids are, which the prompts after it will begin with.

    Args:
        renderer: What made the prompt.
        chat: What was shown.
        prompt: Its ids.
        ids: What was sampled, with the end mark if there is one.
        logprobs: The log-probability of each id, in nats; empty if they are not known.
    """
    tokenizer = renderer.tokenizer
    said = ids[:-1] if ids and ids[-1] == tokenizer.eos_token_id else ids
    reply = Reply(str(tokenizer.decode(list(said), skip_special_tokens=False)), tuple(prompt), tuple(ids), tuple(logprobs))
    renderer.remember(chat, reply)
    return reply
