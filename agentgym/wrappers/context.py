"""The base class of all context strategies, and the strategy `EditMessages`."""

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

# Returns the replacements for the editable messages.
MessageEdit = Callable[[Sequence[Message]], Sequence[Message]]

# A policy is warned at this share of the trigger, usually one turn before the edit.
_NEAR = 0.9
# A strategy is reported as idle if an episode never reaches this share of its trigger.
_IDLE = 0.1
# Idle strategies, with window and trigger, that this process has already reported.
_IDLERS: set[tuple[str, int, str]] = set()
_SLACK = 4  # joining two texts may add a few tokens


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """Token counts of one step, in `info["context"]`.

    Attributes:
        phase: The kind of reply: `act`, or `summary` if the view requested a summary.
        tokens: The visible chat.
        reused: The longest common prefix of this chat and the previous chat, which a prefix cache
            can reuse.
        appended: New text.
        removed: Text removed by edits.
        inserted: Placeholders, summaries and summary requests.
        tool_output: Tool results that are part of the new text.
        hidden: Results that only code received, so the chat does not show them.
        summary: The request and the reply, if the view requested a summary.
        overflow: Whether the visible chat exceeds the usable window.
        edit_counts: The number of edits of each strategy in this episode, including awareness
            reports.
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
    edit_counts: Mapping[str, int]


class ContextWrapper(StagedWrapper[Chat, str, Chat, str]):
    """Base class of wrappers that edit the chat view shared by a stack's strategies.

    Subclasses implement `edit` and set `stage`; they set `lossy` if the policy may lose
    information. The innermost strategy sets the budget of all strategies; the default is 128,000
    tokens.
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
        self.has_memory = any(isinstance(layer, MemoryTool) for layer in layers(env))
        inside = next((layer for layer in layers(env) if isinstance(layer, ContextWrapper)), None)
        self.innermost = inside is None
        if inside is None:
            self.view = ContextView(given or ContextBudget())
        elif given in (None, inside.view.budget):
            self.view = inside.view
        else:
            raise ValueError(
                f"{type(self).__name__} has {given}, but {type(inside).__name__} inside it has "
                f"{inside.view.budget}; give the budget once"
            )
        self.view.outermost = self
        self.view.edit_counts[type(self).__name__] = 0
        self.begin()

    def edit(self) -> None:
        """Edit the view after an observation."""
        raise NotImplementedError

    def begin(self) -> None:
        """Reset the strategy for a new episode."""
        self._peak = 0.0
        self._action = ""

    def is_due(self, level: float) -> bool:
        """Report whether the trigger is reached, or nearly reached if the policy must be warned."""
        self._peak = max(self._peak, level)
        return level >= (_NEAR if self.lossy and self.has_memory else 1)

    def may_edit(self, level: float) -> bool:
        """Report whether to edit now; call this method only if there is something to edit.

        A policy with a memory first gets a warning and one turn to write notes.
        """
        if not self.lossy:
            return level >= 1
        if self.has_memory and not self.view.warned and self._warn():
            return False
        if level >= 1:
            self.view.warned = False
        return level >= 1

    def _warn(self) -> bool:
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
        self.begin()
        if self.innermost:
            self.view.begin()
        chat, self._first_info = self.env.reset(**options)
        return self._observe(chat), self._report(self._first_info, "")

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        chat, reward, terminated, truncated, info = self.env.step(action)
        shown = self._observe(chat)
        if terminated or truncated:
            self._warn_if_idle()
        return shown, reward, terminated, truncated, self._report(info, action)

    def _warn_if_idle(self) -> None:
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
        """Process messages that arrived after the last step, and update the token counts."""
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
                "put that wrapper inside or outside of all context strategies"
            )
        before = len(self.view.accounts.edits)
        self.edit()
        self.count_edits(before)
        return self.view.chat

    def count_edits(self, before: int) -> None:
        """Count this strategy's edits in the current step."""
        self.view.edit_counts[type(self).__name__] += len(self.view.accounts.edits) - before

    def _report(self, info: dict[str, Any], action: str) -> dict[str, Any]:
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
            edit_counts=dict(view.edit_counts),
        )
        return {**info, "context": record}


def import_function(option: str, path: str, choices: str) -> Callable[..., Any]:
    """Import a function; if the import fails, the error mentions `option` and `choices`."""
    module, _, name = path.partition(":")
    try:
        return cast("Callable[..., Any]", getattr(import_named(module), name))
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{option} {path!r} cannot be imported ({error}); give {choices}"
        ) from error


class EditMessages(ContextWrapper):
    """Wrapper that replaces the messages with the result of a function.

    The function receives the visible messages after the task, oldest first, and returns the
    messages to show. The function may omit messages, edit messages with `dataclasses.replace`, and
    append new messages. The next call receives these messages and all later messages.

    The newest reply and its results always stay, calls and results are dropped together, and edits
    that do not shorten the chat are ignored.

    Args:
        edit: The function, or its path (`package.module:function`), which JSON specs require.
        budget: The window.
        trigger: When to call the function; by default at every turn.
        lossy: Whether to warn a policy with a memory before each edit.

    Raises:
        ValueError: `edit` cannot be imported or reorders messages.

    Example:
        >>> def keep_last_ten(messages):
        ...     return messages[-10:]
        >>> env = EditMessages(agentgym.make("ListWorld"), keep_last_ten)
    """

    stage = Stage.CLEAR_TOOL_RESULTS  # runs before compaction, which then needs fewer summaries

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
        if callable(edit):
            self.function: MessageEdit = edit
        else:
            choices = "a function, or package.module:function"
            self.function = import_function("edit", edit, choices)
        self.lossy = lossy
        super().__init__(env, budget, edit=edit, trigger=self.trigger, lossy=lossy)

    def begin(self) -> None:
        super().begin()
        self._inserted = 0

    def edit(self) -> None:
        level = self.trigger.level(self.view.load)
        if self.view.request is not None or not self.is_due(level) or not self.may_edit(level):
            return
        before = self.view.editable()
        positions = {message.id: k for k, message in enumerate(before)}
        after = list(self.function(tuple(before)))
        shown = [message for message in after if message.id in positions]
        order = [positions[message.id] for message in shown]
        if order != sorted(set(order)) or after[: len(shown)] != shown:
            raise ValueError(
                "edit must not reorder or repeat messages, and must append new messages last"
            )
        replacements = {message.id: message for message in shown}
        edits = {}
        for old in before:
            new = replacements.get(old.id)
            if new != old:
                edits[old.id] = new
        appended = []
        for message in after[len(shown) :]:
            self._inserted += 1
            appended.append(replace(message, id=f"edit_messages:{self._inserted}"))
        self.view.apply("EditMessages", edits, insert=appended)
