"""Conversion of chats to token ids with a model's chat template."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from agentgym.play.policy import PolicyError, Reply
from agentgym.text.messages import Chat, Message
from agentgym.text.token_ids import TokenIds
from agentgym.text.tools import Tool
from agentgym.training.rollout.engines.deltas import as_token_ids
from agentgym.training.rollout.models.plain_chat import as_text, join_messages

# Number of cached prompts, which must be at least the number of concurrent episodes.
_REMEMBERED = 4_096
# Llama 3 templates insert today's date unless this variable is set.
_FIXED = {"date_string": "26 Jul 2024"}
# Probe strings that no template trims or escapes.
_USER, _REPLY, _RESULT, _SYSTEM = "Question 1", "Answer 2", "Result 3", "Rules 4"


class ImageError(PolicyError):
    """Error for a chat with images, which the renderer does not support."""

    fatal = True


class ChatTemplate:
    """Adapter that converts messages to the roles that a tokenizer's chat template accepts.

    If a template lacks the role `tool`, tool results become user messages. If a template lacks
    `system`, the system message joins the first user message. Adjacent messages with the
    same role are joined if the template requires alternating roles.

    Attributes:
        takes_system: Whether the template accepts the role `system` or intentionally omits it.

    Raises:
        ValueError: The tokenizer has no usable chat template.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        options: Mapping[str, Any] | None = None,
        *,
        native_tools: bool = False,
    ) -> None:
        if not tokenizer.chat_template:
            raise ValueError(
                f"the tokenizer {tokenizer.name_or_path or type(tokenizer).__name__!r} has no chat "
                "template; use an instruct model, or set tokenizer.chat_template"
            )
        self.tokenizer, self.options = tokenizer, {**_FIXED, **(options or {})}
        if native_tools and "tools" not in str(tokenizer.chat_template):
            raise ValueError(
                "native_tools requires a chat template that shows tools; set native_tools=False, "
                "because the system message already describes the tools"
            )
        self.native_tools = native_tools
        user, reply = Message("user", _USER), Message("assistant", _REPLY)
        if not self._accepts([user]):
            raise ValueError(
                f"the chat template of {tokenizer.name_or_path!r} omits user messages; "
                "set tokenizer.chat_template to a template that shows them"
            )
        self.takes_tool = self._accepts([user, reply, Message("tool", _RESULT)])
        self.takes_neighbours = self._accepts([user, Message("user", _RESULT)])
        # If a template mentions the role `system` but omits the message, the omission is intended.
        with_system = [Message("system", _SYSTEM), user]
        names_system = "'system'" in str(tokenizer.chat_template).replace('"', "'")
        self.takes_system = self._accepts(with_system) or (
            names_system and self._try(with_system) is not None
        )

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, prompt: bool = True
    ) -> str:
        """Render messages; `prompt` appends the start of the assistant's turn."""
        if not (self.takes_tool and self.takes_neighbours):
            messages = as_text(messages).messages
        if not self.takes_system:
            messages = _system_as_user(messages)
        return self._apply(messages, tools, prompt=prompt)

    def _accepts(self, messages: Sequence[Message]) -> bool:
        text = self._try(messages)
        return text is not None and all(message.text in text for message in messages)

    def _try(self, messages: Sequence[Message]) -> str | None:
        with suppress(TemplateError, LookupError, TypeError, ValueError):
            return self._apply(messages)
        return None

    def _apply(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, prompt: bool = True
    ) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                [{"role": m.role, "content": m.raw or m.text} for m in messages],
                tools=[tool.to_openai() for tool in tools] if tools and self.native_tools else None,
                tokenize=False,
                add_generation_prompt=prompt,
                **self.options,
            )
        )


def _system_as_user(messages: Sequence[Message]) -> list[Message]:
    out: list[Message] = []
    for message in messages:
        if message.role == "user" and out and out[-1].role == "user":
            out.append(join_messages(out.pop(), message))
        else:
            out.append(replace(message, role="user") if message.role == "system" else message)
    return out


class Renderer:
    """Converts chats to token ids, reusing the ids of earlier prompts and replies.

    Assistant messages are rendered verbatim. If a template edits history, for example by stripping
    earlier thinking, the prompt is tokenised in full and starts a new training row. `stops` are
    additional stop ids, such as the ids in the model's `generation_config`.

    Raises:
        ValueError: The template is unusable, or no token ends a reply.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        stops: Iterable[int] = (),
        options: Mapping[str, Any] | None = None,
        *,
        native_tools: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.template = ChatTemplate(tokenizer, options, native_tools=native_tools)
        named = {*stops, *list_ids(tokenizer.eos_token_id)}
        self._end = self._turn_end(named)
        self.stops = frozenset({*named, self._end})
        self.pad = pad_id(tokenizer)
        self._cache: OrderedDict[bytes, TokenIds] = OrderedDict()

    def ids(self, chat: Chat) -> TokenIds:
        """Return the prompt ids for the next reply, or raise `ImageError`."""
        refuse_images(chat)
        text = self._text(chat, len(chat.messages))
        last = max(
            (k for k, message in enumerate(chat.messages) if message.role == "assistant"),
            default=None,
        )
        if last is not None:
            start = self._text(chat, last) + chat.messages[last].raw
            ids = self._cache.get(_digest(start))
            if ids is not None and text.startswith(start):
                return ids.add(self._encode(self._after(text[len(start) :], ids)))
        return TokenIds(self._encode(text))

    def encode_reply(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a reply that was not sampled, with the stop id."""
        return (*self._encode(text), self._end)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a sampled reply, without the stop token."""
        shown = ids[:-1] if ids and ids[-1] in self.stops else ids
        # By default, some tokenizers remove spaces before punctuation.
        return str(
            self.tokenizer.decode(
                list(shown), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def remember(self, chat: Chat, reply: Reply) -> None:
        """Store the ids of a prompt and its reply for later prompts."""
        key = _digest(self._text(chat, len(chat.messages)) + reply.text)
        self._cache[key] = as_token_ids(reply.prompt_ids).add(reply.ids)
        self._cache.move_to_end(key)
        if len(self._cache) > _REMEMBERED:
            self._cache.popitem(last=False)

    def _after(self, text: str, ids: Sequence[int]) -> str:
        if ids[-1] not in self.stops:
            return text
        return text.removeprefix(str(self.tokenizer.convert_ids_to_tokens(int(ids[-1]))))

    def _text(self, chat: Chat, count: int) -> str:
        # A template may render a message differently once other messages follow it.
        return self.template.render(chat.messages[:count], chat.tools)

    def _encode(self, text: str) -> tuple[int, ...]:
        # Templates already include the beginning-of-sequence token.
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _turn_end(self, named: set[int]) -> int:
        text = self.template.render(
            [Message("user", _USER), Message("assistant", _REPLY)], prompt=False
        )
        marks = set(named)
        for i, mark in self.tokenizer.added_tokens_decoder.items():
            if mark.special:
                marks.add(i)
        after_reply = self._encode(text.rpartition(_REPLY)[2])
        end = next((i for i in after_reply if i in marks), min(named, default=None))
        if end is None:
            raise ValueError(
                f"the tokenizer {self.tokenizer.name_or_path!r} must have an eos_token, or a chat "
                "template with a special token after each reply; set tokenizer.eos_token"
            )
        return end


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return a padding id."""
    # Any id of the model works, because no token attends to padding. An added padding token may be
    # outside the model's embeddings.
    return min((*list_ids(tokenizer.pad_token_id), *list_ids(tokenizer.eos_token_id)), default=0)


def list_ids(ids: Any) -> list[int]:
    """Return a setting (an id, a list of ids or None) as a list."""
    if ids is None:
        return []
    return [int(i) for i in ids] if isinstance(ids, (list, tuple)) else [int(ids)]


def refuse_images(chat: Chat) -> None:
    """Raise `ImageError` if a chat contains images."""
    images = sum(len(message.images) for message in chat.messages)
    if images:
        raise ImageError(
            f"a local model accepts only text, but the chat contains {images} images; use an "
            "endpoint policy, or render='scene' for the world"
        )
