"""Compaction: a summary in place of the older messages (LOCA-bench, section 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, SupportsFloat

import gymnasium

from agentgym.arguments import check_int, read_tokens
from agentgym.messages import Chat, Message
from agentgym.parsing import parse
from agentgym.stages import Stage
from agentgym.step_info import StepInfo
from agentgym.tools import echo
from agentgym.wrappers.budget import ContextBudget, Trigger, read_trigger
from agentgym.wrappers.context import ContextWrapper, import_function
from agentgym.wrappers.trim import cut_middle

SUMMARY_REQUEST = (
    "The context is nearly full. Instead of calling a tool, reply with a summary of everything "
    "above that you still need: what the "
    "task asks for, what you have found and done, what is left to do, and every fact, number and "
    "name you will use. Most of the "
    "messages above will be removed, and your summary stays; calls in it are not run."
)
SUMMARY_FOLLOWS = (
    "Earlier messages have been removed; the summary above stands for them. Go on with the task."
)

Summarizer = Callable[[Chat], str]
"""Function that writes a summary of the messages of a chat."""


class Compaction(ContextWrapper):
    """Wrapper that drops all but the newest turns and puts a summary after them.

    By default the policy writes it, in a step of its own: the view asks for a summary, and the next
    reply is taken as such. It is not played, costs no turn, has reward 0, and is recorded like any
    step, so it can be trained. It stands where it was written, so what comes after it is new. A
    summary that is empty, or longer than what it replaces, is put aside for one made by rules; one
    that is too long is cut.

    Args:
        env: The env.
        budget: The window.
        trigger: When to compact.
        keep_last_turns: How many of the newest turns stay as they are, at least 1.
        summarizer: `policy`, `rules` (the calls with the beginnings of their results), a function
            from the chat that is replaced to text, or where to import one from
            (`package.module:function`).
        max_summary: The most tokens of a summary; by default a quarter of the usable window.

    Example:
        >>> env = Compaction(agentgym.make("ListWorld"), ContextBudget(window=8_000))
    """

    stage = Stage.COMPACTION

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        budget: ContextBudget | Mapping[str, Any] | None = None,
        trigger: Trigger | Mapping[str, Any] | str = "0.85",
        keep_last_turns: int = 1,
        summarizer: str | Summarizer = "policy",
        max_summary: int | str | None = None,
    ) -> None:
        check_int("keep_last_turns", keep_last_turns, 1, 1_000_000)
        if max_summary is not None:
            max_summary = read_tokens("max_summary", max_summary, 1, 10**9)
        self.trigger = read_trigger("trigger", trigger)
        self.keep_last_turns, self.max_summary = keep_last_turns, max_summary
        self.summarizer = _read_summarizer(summarizer)
        super().__init__(
            env,
            budget,
            trigger=self.trigger,
            keep_last_turns=keep_last_turns,
            summarizer=summarizer,
            max_summary=max_summary,
        )

    def begin(self) -> None:
        """Forget the last episode."""
        super().begin()
        self._asking = False
        self._number = 0

    def edit(self) -> None:
        """Ask for a summary, or make one."""
        if (
            self._asking
            or self.world_env.over
            or not self.should_run(self.trigger.level(self.view.load))
        ):
            return
        if not self._span():
            self.cool_down()
            return
        self._number += 1
        if self.summarizer is None:
            self._asking = True
            self.view.ask(Message("user", SUMMARY_REQUEST, id=f"compaction:{self._number}:request"))
        else:
            try:
                text = self.summarizer(Chat(tuple(self._span()), self.view.chat.tools))
            except Exception:  # noqa: BLE001 - a model behind it may fail in any way, and the episode is worth more than its summary
                text = ""
            self._compact(text)

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        """Play a reply, or take it as the summary that was asked for."""
        if not self._asking or not isinstance(action, str):
            return super().step(action)
        self._asking = False
        self.view.begin_step("summary")
        self.view.ask(None)
        text = parse(action, self.world_env.dialect).text
        self._compact(text)
        info = {
            **dict.fromkeys(self._first_info),
            "turn": self.world_env.world.turn,
            "valid": bool(text),
            "success": False,
            "detail": StepInfo(),
        }
        return self.view.chat, 0.0, False, False, self._report(info, action)

    def _span(self) -> list[Message]:
        """Return the messages that a summary is to stand for."""
        old = self.view.turns()[: -self.keep_last_turns]
        if all(turn.reply.id in self.view.summaries for turn in old):
            return []
        return [message for turn in old for message in (turn.reply, *turn.answers)]

    def _compact(self, text: str) -> None:
        """Put a summary in place of the span, if that makes the view shorter."""
        span = self._span()
        if not span:  # it was trimmed while the summary was being written
            return
        limit = self.max_summary or max(1, self.view.limit // 4)
        for summary in (text, summarize_by_rules(Chat(tuple(span)))):
            name = f"compaction:{self._number}"
            short = cut_middle(summary.strip(), limit, self.view.counter)
            pair = (
                Message("assistant", short, id=f"{name}:0", raw=short),
                Message("user", SUMMARY_FOLLOWS, id=f"{name}:1"),
            )
            dropped = dict.fromkeys(message.id for message in span)
            if short and self.view.apply("Compaction", dropped, insert=pair):
                self.view.summaries.add(f"{name}:0")
                break
        if self.trigger.level(self.view.load) >= 1:
            self.cool_down()


def summarize_by_rules(chat: Chat) -> str:
    """List the newest 100 calls with the beginnings of their results, after the last summary."""
    summaries = [
        message.text
        for message in chat.messages
        if message.id.startswith("compaction:") and message.role == "assistant"
    ]
    results = {message.call_id: message.text for message in chat.messages if message.role == "tool"}
    lines = [
        f"{call.name}({echo(dict(call.arguments))}) -> {echo(results.get(call.id, ''))}"
        for message in chat.messages
        for call in message.calls
    ]
    return "\n".join(
        [
            *summaries[-1:],
            "Calls so far, oldest first, with how their results begin:",
            *lines[-100:],
        ]
    )


def _read_summarizer(summarizer: str | Summarizer) -> Summarizer | None:
    """Return the function that writes summaries; None if the policy does."""
    if callable(summarizer):
        return summarizer
    if summarizer in ("policy", "rules"):
        return None if summarizer == "policy" else summarize_by_rules
    return import_function(
        "summarizer", summarizer, "policy, rules, a function, or package.module:function"
    )
