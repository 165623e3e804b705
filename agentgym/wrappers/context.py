"""Base of all context strategies: one view, one budget, one order, one account; and the strategy that
is one function of the messages, for authors of simple ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, SupportsFloat, cast

import gymnasium

from agentgym.assemble.wrapper_order import Stage, StagedWrapper, layers
from agentgym.text.imports import import_named
from agentgym.text.messages import Chat, Message
from agentgym.text.validation import check_bool
from agentgym.wrappers.budget import ContextBudget, Trigger, read_budget, read_trigger
from agentgym.wrappers.memory import MemoryTool
from agentgym.wrappers.view import ContextView, Edit

WARNING = (
    "<context_warning>The context is nearly full. Older messages will soon be removed from it; "
    "what they say is then lost. "
    "Write what you still need into your memory now.</context_warning>"
)

MessageEdit = Callable[[Sequence[Message]], Sequence[Message]]
"""Function from the messages that may be edited to those that are to be shown in their place."""

_NEAR = 0.9
"""The share of the way to the trigger at which the warning comes: early enough for a turn in which
the policy writes its notes.
"""
_IDLE = 0.1
"""The share of the way to the trigger below which an episode is said to be far too short for it:
episodes of one world are rarely ten times as long as others.
"""
_IDLERS: set[tuple[str, int, str]] = set()
"""Strategies, with their windows and triggers, that were said to be idle: once is enough."""
_SLACK = 4  # tokens that a text may gain by being joined to another


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """Accounts of one step in `info["context"]`, in tokens.

    Attributes:
        counter: The name of the token counter.
        phase: The kind of the reply: `act`, or `summary` if the view had asked for one.
        tokens: Of the chat that is shown now.
        reused: Of its longest common prefix with the chat that was shown before: what a prefix
            cache saves.
        appended: Of new text.
        removed: Of what edits took away.
        inserted: Of what edits put in: placeholders, summaries and the requests for them.
        tool_output: Of the tool results in the new text.
        hidden: Of the results of calls made by code, which are not shown.
        reply: Of the reply.
        summary: Of the reply and the request before it, if the view had asked for a summary.
        overflow: Whether what is shown does not fit the usable window.
        edits: The changes of each strategy.
    """

    counter: str
    phase: Literal["act", "summary"]
    tokens: int
    reused: int
    appended: int
    removed: int
    inserted: int
    tool_output: int
    hidden: int
    reply: int
    summary: int
    overflow: bool
    edits: tuple[Edit, ...]


class ContextWrapper(StagedWrapper[Chat, str, Chat, str]):
    """Wrapper that edits the context. All strategies of a stack edit one view, so each sees what
    the policy would be shown.

    A strategy fills `edit`, and says by `lossy` whether the policy may lose what it needs. It
    stands at its `Stage`; wrappers that change the chat in other ways go inside or outside of all
    of them. For a strategy that is one function of the messages, see `EditMessages`.

    Args:
        env: The env.
        budget: The window. Strategies inside set it for all; the innermost sets 128,000 tokens if
            it is given none.
        **recorded: The arguments of the strategy, for the spec.

    Raises:
        ValueError: The order of the wrappers is wrong, or the budget is not that of the strategies
            inside.
    """

    stage: ClassVar[Stage]
    lossy: bool = True

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        budget: ContextBudget | Mapping[str, Any] | None = None,
        **recorded: Any,
    ) -> None:
        given = read_budget(budget)
        super().__init__(env, budget=given, **recorded)
        inside = next((layer for layer in layers(env) if isinstance(layer, ContextWrapper)), None)
        self.innermost = inside is None
        self.view: ContextView = (
            ContextView(given or ContextBudget()) if inside is None else inside.view
        )
        self.has_memory = any(isinstance(layer, MemoryTool) for layer in layers(env))
        if given is not None and given != self.view.budget:
            raise ValueError(
                f"{type(self).__name__} has {given}, but {type(inside).__name__} inside it has "
                f"{self.view.budget}; give the budget once"
            )
        self.view.outermost = self
        self.begin()

    def edit(self) -> None:
        """Edit the view; called after each observation."""
        raise NotImplementedError

    def begin(self) -> None:
        """Forget the last episode."""
        self._peak = 0.0  # of the levels that the trigger was asked about
        self._quiet_until = self._quiet_since = 0  # tokens shown
        self._action = ""

    def should_run(self, level: float) -> bool:
        """Return whether the strategy is to act now. If the policy has a memory, it is warned
        first, and has one turn to use it.

        Args:
            level: How close the view is to the strategy's trigger (`Trigger.level`); it acts from
                1.0 on.
        """
        load = self.view.load
        self._peak = max(self._peak, level)
        if load.tokens < self._quiet_until and not load.tokens > max(
            load.usable, self._quiet_since
        ):
            return False
        if (
            level >= _NEAR
            and self.lossy
            and self.has_memory
            and not self.view.warned
            and self._warn()
        ):
            return False
        if level >= 1 and self.lossy:
            self.view.warned = False
        return level >= 1

    def cool_down(self) -> None:
        """Wait until the view has grown by an eighth of the window: to act again at once gains
        little and costs the prefix.

        A view that does not fit is acted on as soon as it has grown at all.
        """
        self._quiet_since = self.view.tokens
        self._quiet_until = self._quiet_since + max(1, self.view.limit // 8)

    def _warn(self) -> bool:
        """Tell the policy that an edit is coming, if there is room for that."""
        room = self.view.limit - self.view.tokens
        if (
            self.world_env.over
            or not self.view.load.turns
            or self.view.counter.length(WARNING) + _SLACK > room
        ):
            return False
        self.view.annotate(self.view.newest().id, "warning", f"\n\n{WARNING}")
        self.view.warned = True
        return True

    def reset(self, **options: Any) -> tuple[Chat, dict[str, Any]]:
        """Start an episode with nothing edited."""
        self.begin()
        if self.innermost:
            self.view.begin()
        chat, self._first_info = self.env.reset(**options)
        return self._observe(chat), self._report(self._first_info, "")

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        """Play a reply, then edit what is shown."""
        chat, reward, terminated, truncated, info = self.env.step(action)
        shown = self._observe(chat)
        if terminated or truncated:
            self._warn_if_idle()
        return shown, reward, terminated, truncated, self._report(info, action)

    def _warn_if_idle(self) -> None:
        """Say once in a process that a strategy has a trigger far beyond an episode."""
        trigger, budget = getattr(self, "trigger", None), self.view.budget
        key = type(self).__name__, budget.window, str(trigger)
        if trigger is None or not 0.0 < self._peak < _IDLE or key in _IDLERS:
            return
        _IDLERS.add(key)
        warnings.warn(
            f"{type(self).__name__} cannot act on episodes like this one: it acts at {trigger} of a window "
            f"of {budget.window:,} tokens, and this one came to {100 * self._peak:.0f} % of that; "
            f"give a smaller window=, now about {max(1, self.view.tokens):,} tokens are shown, or an "
            "earlier trigger",
            stacklevel=3,
        )

    def refresh(self, chat: Chat, info: dict[str, Any]) -> tuple[Chat, dict[str, Any]]:
        """Take in what came after the last step, which is accounted to it."""
        return self._observe(chat, step=False), self._report(info, self._action)

    def _observe(self, chat: Chat, *, step: bool = True) -> Chat:
        if self.innermost:
            if step:
                self.view.begin_step()
            self.view.update(chat)
        elif chat is not self.view.chat:
            raise ValueError(
                f"a wrapper between {type(self).__name__} and the context strategies inside it "
                "changes the chat; "
                "put it inside or outside of all context strategies"
            )
        self.edit()
        return self.view.chat

    def _report(self, info: dict[str, Any], action: str) -> dict[str, Any]:
        """Add the accounts of the step to the info; only the outermost strategy does."""
        if self.view.outermost is not self:
            return info
        view, accounts, self._action = self.view, self.view.accounts, action
        reply = view.counter.length(action)
        record = ContextRecord(
            counter=view.counter.name,
            phase=accounts.phase,
            tokens=view.tokens,
            reused=view.reused(),
            appended=accounts.appended,
            removed=accounts.removed,
            inserted=accounts.inserted,
            tool_output=accounts.tool_output,
            hidden=sum(view.counter.length(call.result) for call in info["detail"].nested),
            reply=reply,
            summary=view.last_request_tokens + reply if accounts.phase == "summary" else 0,
            overflow=view.overflow or view.tokens > view.budget.usable,
            edits=accounts.edits,
        )
        return {**info, "context": record}


def import_function(option: str, path: str, choices: str) -> Callable[..., Any]:
    """Import the function that an option names as `package.module:function`, as specs in JSON do.

    Raises:
        ValueError: There is no such function; naming the `choices` that there are.
    """
    module, _, name = path.partition(":")
    try:
        return cast("Callable[..., Any]", getattr(import_named(module), name))
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{option} {path!r} cannot be imported ({error}); give {choices}"
        ) from error


class EditMessages(ContextWrapper):
    """Wrapper that shows what a function makes of the messages.

    The function gets all messages shown but the pinned ones (the system message, solved examples
    and the task), oldest first, and returns those to show. It may leave messages out, replace some
    by others with the same id (`dataclasses.replace`), and put new ones, whatever their ids, at the
    end. What it did stays done: the next time it gets its own result and what came after it.

    The view keeps the invariants, whatever the function returns: the newest reply and what answered
    it are not dropped, calls go with their results, and an edit that does not make the chat shorter
    is not made at all.

    Args:
        env: The env.
        edit: The function, or where to import it from (`package.module:function`), which a spec in
            JSON needs.
        budget: The window.
        trigger: When the function is called; by default at every turn.
        lossy: Whether the policy may lose what it needs by it; if it has a memory, it is then
            warned first.

    Raises:
        ValueError: `edit` cannot be imported, or when it is called, its messages are not in the
            order in which they were given.

    Example:
        >>> def keep_last_ten(messages):
        ...     return messages[-10:]
        >>> env = EditMessages(agentgym.make("ListWorld"), keep_last_ten)
    """

    stage = Stage.CLEAR_TOOL_RESULTS  # before a summary is asked for, which it may save

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        edit: MessageEdit | str,
        budget: ContextBudget | Mapping[str, Any] | None = None,
        trigger: Trigger | Mapping[str, Any] | str = "1turns",
        lossy: bool = False,
    ) -> None:
        check_bool("lossy", lossy)
        self.trigger = read_trigger("trigger", trigger)
        self.function: MessageEdit = (
            edit
            if callable(edit)
            else import_function("edit", edit, "a function, or package.module:function")
        )
        self.lossy = lossy
        super().__init__(env, budget, edit=edit, trigger=self.trigger, lossy=lossy)

    def begin(self) -> None:
        """Forget the last episode."""
        super().begin()
        self._inserted = 0

    def edit(self) -> None:
        """Call the function, and make the edits by which its result differs from what is shown."""
        if self.view.request is not None or not self.should_run(self.trigger.level(self.view.load)):
            return
        before = self.view.editable()
        positions = {message.id: k for k, message in enumerate(before)}
        after = list(self.function(tuple(before)))
        shown = [message for message in after if message.id in positions]
        order = [positions[message.id] for message in shown]
        if order != sorted(set(order)) or after[: len(shown)] != shown:
            raise ValueError(
                "edit must return messages in the order given, each once, and new ones at the end"
            )
        replacements = {message.id: message for message in shown}
        edits = {
            old.id: replacements.get(old.id) for old in before if replacements.get(old.id) != old
        }
        new = [
            replace(message, id=f"edit_messages:{number}")
            for number, message in enumerate(after[len(shown) :], self._inserted + 1)
        ]
        self._inserted += len(new)
        self.view.apply("EditMessages", edits, insert=new)
