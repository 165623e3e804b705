"""Chat formats of model families, from the package `renderers`, which prime-rl also uses.

With these formats, a policy sees the same prompts on which `verifiers` and `prime-rl` train.

Example:
    >>> policy = token_policy(TransformersSampler(model), tokenizer)
    >>> trajectory = rollout(policy, agentgym.make("ListWorld"), seed=0)
"""

# mypy runs without this package.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, cast

from renderers import ToolCallParseStatus, create_renderer
from renderers.base import MODEL_RENDERER_MAP
from transformers import PreTrainedTokenizerBase

from agentgym.play.policy import Reply
from agentgym.text.messages import Chat
from agentgym.text.parsing import Dialect
from agentgym.text.token_ids import TokenIds
from agentgym.training.integrations.reply_history import ReplyHistory
from agentgym.training.rollout import Renderer, Sampler, TokenPolicy, pad_id
from agentgym.training.rollout.endpoints.chat_completions import to_reply
from agentgym.training.rollout.models.renderer import refuse_images

# Number of stored chats, which must cover all concurrent episodes.
_REMEMBERED = 4_096


class FamilyRenderer:
    """Converts chats to token ids as the training client of `verifiers` does.

    If the model family allows it, a prompt extends the ids of the previous prompt and reply. For
    other model families, and after context edits, the whole chat is rendered.

    Args:
        config: The family and its settings, such as `renderers.Qwen3RendererConfig`; None selects
            the family by the tokenizer's name.
        native_tools: Whether to pass tool schemas to the format.
        dialect: The call format in replies, which must match the env's format.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        config: Any = None,
        *,
        native_tools: bool = False,
        dialect: Dialect = "auto",
    ) -> None:
        self.tokenizer, self.native_tools, self.dialect = tokenizer, native_tools, dialect
        self.family: Any = create_renderer(tokenizer, config)
        self.stops = frozenset(self.family.get_stop_token_ids())
        self.pad = pad_id(tokenizer)
        self._history = ReplyHistory()
        self._parsed: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._turns: OrderedDict[bytes, Reply] = OrderedDict()

    def ids(self, chat: Chat) -> TokenIds:
        """Return the prompt for the next reply; images raise `ImageError`."""
        refuse_images(chat)
        messages, tools = self._request(chat), self._tools(chat)
        replies = [k for k, each in enumerate(messages) if each["role"] == "assistant"]
        if replies:
            text = [message.raw for message in chat.messages if message.role == "assistant"][-1]
            newest = replies[-1]
            previous = self._turns.get(_key(messages[:newest], tools, text))
            tail = messages[newest + 1 :]
            if previous is not None and _can_bridge(tail):
                ids = self._bridge(previous, tail, tools)
                if ids is not None:
                    return ids
        return TokenIds(self.family.render_ids(messages, tools=tools, add_generation_prompt=True))

    def read(self, chat: Chat, prompt: Sequence[int], ids: Sequence[int]) -> str:
        """Return sampled ids as a reply's text, parsed with the model family's format."""
        parsed = self.family.parse_response(
            list(ids), tools=self._tools(chat), prompt_ids=list(prompt)
        )
        calls = []
        for number, call in enumerate(parsed.tool_calls):
            if call.name and call.status != ToolCallParseStatus.UNKNOWN_TOOL:
                function = {"name": call.name, "arguments": _arguments(call.arguments)}
                call_id = call.id or f"call_{number}"
                calls.append({"id": call_id, "type": "function", "function": function})
        message = {
            "role": "assistant",
            "content": parsed.content or None,
            "reasoning_content": parsed.reasoning_content,
            "tool_calls": calls or None,
        }
        text = to_reply({"choices": [{"message": message}]}, self.dialect).text
        _store(self._parsed, text, message)
        return text

    def remember(self, chat: Chat, reply: Reply) -> None:
        """Store a prompt and its reply for later prompts."""
        key = _key(self._request(chat), self._tools(chat), reply.text)
        _store(self._turns, key, reply)

    def _request(self, chat: Chat) -> list[dict[str, Any]]:
        newest = next((m.raw for m in reversed(chat.messages) if m.role == "assistant"), None)
        if newest is not None and newest in self._parsed:
            self._history.remember(chat, newest, self._parsed[newest])
        # Some formats render None and "" differently, so use None where `verifiers` does.
        return [
            {**each, "content": None} if each.get("tool_calls") and not each["content"] else each
            for each in self._history.messages(chat)
        ]

    def _tools(self, chat: Chat) -> list[dict[str, Any]] | None:
        if not self.native_tools or not chat.tools:
            return None
        return [tool.to_openai() for tool in chat.tools]

    def _bridge(self, previous: Reply, tail: Any, tools: Any) -> TokenIds | None:
        bridged = self.family.bridge_to_next_turn(
            list(previous.prompt_ids), list(previous.ids), tail, tools=tools
        )
        if bridged is None:
            return None
        known = TokenIds(previous.prompt_ids).add(previous.ids)
        return known.add(bridged.token_ids[len(known) :])


class FamilyPolicy(TokenPolicy):
    """Policy that uses a model family's chat format with any token sampler."""

    def _text(self, chat: Chat, prompt: TokenIds, ids: Sequence[int]) -> str:
        renderer: Any = self.renderer
        return str(renderer.read(chat, prompt, ids))


def token_policy(
    sampler: Sampler,
    tokenizer: PreTrainedTokenizerBase,
    config: Any = None,
    *,
    native_tools: bool = False,
    dialect: Dialect = "auto",
    **options: Any,
) -> TokenPolicy:
    """Return a policy for a model's chat format; unknown models use their chat template.

    `options` are passed to `TokenPolicy`; for the other arguments, see `FamilyRenderer`.
    """
    if config is None and tokenizer.name_or_path not in MODEL_RENDERER_MAP:
        renderer = Renderer(tokenizer, native_tools=native_tools)
        return TokenPolicy(sampler, renderer, **options)
    family = FamilyRenderer(tokenizer, config, native_tools=native_tools, dialect=dialect)
    return FamilyPolicy(sampler, cast("Renderer", family), **options)


def _can_bridge(tail: Sequence[dict[str, Any]]) -> bool:
    roles = [each["role"] for each in tail]
    return bool(roles) and roles[-1] in ("tool", "user") and set(roles[:-1]) <= {"tool"}


def _arguments(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given or {})


def _key(messages: Any, tools: Any, text: str) -> bytes:
    data = json.dumps([messages, tools, text]).encode()
    return hashlib.blake2b(data, digest_size=16).digest()


def _store(entries: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > _REMEMBERED:
        entries.popitem(last=False)
