"""Compaction (LOCA-bench, section 4.1) and trimming remove older messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, SupportsFloat

import gymnasium

from agentgym.assemble.wrapper_order import Stage
from agentgym.assemble.wrapper_stack import register_option
from agentgym.text.messages import Chat, Message
from agentgym.text.parsing import parse
from agentgym.text.tokens import TokenCounter
from agentgym.text.tools import echo
from agentgym.text.validation import check_int, read_tokens
from agentgym.world.step_info import StepInfo
from agentgym.wrappers.budget import ContextBudget, Trigger, read_trigger
from agentgym.wrappers.context import ContextWrapper, import_function

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


class Compaction(ContextWrapper):
    """Wrapper that replaces older turns with a summary.

    By default, the view requests the summary, and the policy writes it in a separate step. A
    summary step uses no turn, has reward 0, and is recorded and trained on like any other step. A
    summary that is empty or longer than the replaced text is replaced with a rule-based summary.

    Args:
        budget: The window.
        trigger: When to compact; a turn trigger counts visible replies, including summaries.
        keep_last_turns: The number of newest turns to keep, at least 1; a summary is not a turn.
        summarizer: `policy`, `rules` (the calls with the beginnings of their results), a function
            that returns a summary of the replaced chat, or its path (`package.module:function`).
        max_summary: The maximum number of tokens of a summary; by default, a quarter of the usable
            window.

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
        super().begin()
        self._asking = False
        self._number = 0
        self._is_fruitless = False  # whether the last summary failed to shorten the view

    def edit(self) -> None:
        level = self.trigger.level(self.view.load)
        if self._asking or self.world_env.over or not self.is_due(level):
            return
        span = self._span()
        if not span or (self._is_fruitless and not self._shortens(span)):
            return
        if not self.may_edit(level):
            return
        self._number += 1
        if self.summarizer is None:
            self._asking = True
            self.view.ask(Message("user", SUMMARY_REQUEST, id=f"compaction:{self._number}:request"))
        else:
            try:
                text = self.summarizer(Chat(tuple(span), self.view.chat.tools))
            except Exception:  # noqa: BLE001 - a failing model must not end the episode
                text = ""
            self._compact(text)

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        if not self._asking or not isinstance(action, str):
            return super().step(action)
        self._asking = False
        self.view.begin_step("summary")
        self.view.ask(None)
        text = parse(action, self.world_env.dialect).text
        self._compact(text)
        self.count_edits(0)
        info = {
            **dict.fromkeys(self._first_info),
            "turn": self.world_env.world.turn,
            "valid": bool(text),
            "success": False,
            "detail": StepInfo(),
        }
        return self.view.chat, 0.0, False, False, self._report(info, action)

    def _span(self) -> list[Message]:
        turns = self.view.turns()
        played = [turn.reply.id for turn in turns if turn.reply.id not in self.view.summaries]
        kept = set(played[-self.keep_last_turns :])
        if len(kept) == len(played):
            return []
        span: list[Message] = []
        for turn in turns:
            if turn.reply.id not in kept:
                span += [turn.reply, *turn.answers]
        return span

    def _pair(self, summary: str) -> tuple[Message, Message]:
        limit = self.max_summary or max(1, self.view.limit // 4)
        text = cut_middle(summary.strip(), limit, self.view.counter)
        name = f"compaction:{self._number}"
        return (
            Message("assistant", text, id=f"{name}:0", raw=text),
            Message("user", SUMMARY_FOLLOWS, id=f"{name}:1"),
        )

    def _shortens(self, span: list[Message]) -> bool:
        pair = self._pair(summarize_by_rules(Chat(tuple(span))))
        return self.view.count(pair) < self.view.count(span)

    def _compact(self, text: str) -> None:
        self._is_fruitless = True
        span = self._span()
        if not span:  # Trim dropped the messages while the policy wrote the summary
            return
        dropped = dict.fromkeys(message.id for message in span)
        for summary in (text, summarize_by_rules(Chat(tuple(span)))):
            pair = self._pair(summary)
            if pair[0].text and self.view.apply("Compaction", dropped, insert=pair):
                self.view.summaries.add(pair[0].id)
                self._is_fruitless = False
                break


def summarize_by_rules(chat: Chat) -> str:
    """List the newest 100 calls with the beginnings of their results."""
    results = {message.call_id: message.text for message in chat.messages if message.role == "tool"}
    summary: list[str] = []
    lines: list[str] = []
    for message in chat.messages:
        if message.role == "assistant" and message.id.startswith("compaction:"):
            summary = [message.text]
        for call in message.calls:
            result = echo(results.get(call.id, ""))
            lines.append(f"{call.name}({echo(dict(call.arguments))}) -> {result}")
    title = "Calls so far, oldest first, with how their results begin:"
    return "\n".join([*summary, title, *lines[-100:]])


def _read_summarizer(summarizer: str | Summarizer) -> Summarizer | None:
    if callable(summarizer):
        return summarizer
    if summarizer == "policy":
        return None
    if summarizer == "rules":
        return summarize_by_rules
    choices = "policy, rules, a function, or package.module:function"
    return import_function("summarizer", summarizer, choices)


class Trim(ContextWrapper):
    """Wrapper that drops the oldest turns when the view exceeds the window, then cuts the middle of
    the newest tool results.

    The wrapper models a bounded window without any strategy (LOCA-bench, section 3.1). If the
    system message, the task and the newest turn do not fit, the step truncates the episode
    (`context_overflow`). If the first observation does not fit, the first step truncates the
    episode without running the reply.

    Args:
        budget: The window.
        target: Turns are dropped until this level is reached; with a low target, the prompt is
            rewritten less often.

    Example:
        >>> env = Trim(agentgym.make("ListWorld"), ContextBudget(window=4_000))
    """

    stage = Stage.TRIM

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        budget: ContextBudget | Mapping[str, Any] | None = None,
        target: Trigger | Mapping[str, Any] | str = "0.75",
    ) -> None:
        self.target = read_trigger("target", target)
        super().__init__(env, budget, target=self.target)

    def edit(self) -> None:
        view = self.view
        level = view.tokens / (view.limit + 1)
        if self.is_due(level) and self.may_edit(level):
            self._drop()
            self._cut()
        view.overflow = view.tokens > view.limit

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        if self.view.overflow and isinstance(action, str) and not self.world_env.over:
            self.view.begin_step()
            return self._truncate(self._report(self._first_info, action))
        chat, reward, terminated, truncated, info = super().step(action)
        if self.view.overflow and not self.world_env.over:
            return self._truncate(info)
        return chat, reward, terminated, truncated, info

    def _truncate(
        self, info: dict[str, Any]
    ) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        _, reward, terminated, truncated, last = self.world_env.truncate("context_overflow")
        ended = replace(info["detail"], ended=last["detail"].ended, score=last["detail"].score)
        info = {**info, "success": last["success"], "detail": ended}
        return self.view.chat, reward, terminated, truncated, info

    def _drop(self) -> None:
        view = self.view
        turns, _ = view.split_turns()
        tokens = view.tokens
        edits: dict[str, Message | None] = {}
        # Drop summaries last, because each summary replaces many turns.
        turns.sort(key=lambda turn: turn.reply.id in view.summaries)
        for turn in turns:
            if self.target.level(replace(view.load, tokens=tokens)) <= 1:
                break
            messages = (turn.reply, *turn.answers)
            tokens -= view.count(messages)
            edits.update(dict.fromkeys(message.id for message in messages))
        view.apply("Trim", edits)

    def _cut(self) -> None:
        view = self.view
        _, newest = view.split_turns()
        answers = [answer for turn in newest[:1] for answer in turn.answers]
        excess = view.tokens - view.limit
        edits: dict[str, Message | None] = {}
        for answer in sorted(answers, key=view.counter.count, reverse=True):
            if excess <= 0:
                break
            room = max(0, view.counter.length(answer.text) - excess)
            cut = replace(answer, text=cut_middle(answer.text, room, view.counter))
            saved = view.count([answer]) - view.count([cut])
            if saved > 0:
                edits[answer.id] = cut
                excess -= saved
        view.apply("Trim", edits)


register_option("trim", Trim, Trim.stage)


def cut_middle(text: str, tokens: int, counter: TokenCounter) -> str:
    """Replace the middle of a text that exceeds `tokens` with a note about the omitted length."""
    if counter.length(text) <= tokens:
        return text
    keep = int(len(text) * tokens / counter.length(text))
    while True:
        head, tail = (keep + 1) // 2, keep // 2
        note = f"\n[… {len(text) - keep} characters cut …]\n"
        cut = text[:head] + note + text[len(text) - tail :]
        length = counter.length(cut)
        if keep == 0 or length <= tokens:
            return cut
        # Token density varies within a text, so the cut text may still be far too long.
        keep = int(keep * min(0.9, tokens / length))
