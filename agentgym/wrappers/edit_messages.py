"""A context strategy that is one function of the messages, for authors of simple ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium

from agentgym.arguments import check_bool
from agentgym.messages import Chat, Message
from agentgym.stages import Stage
from agentgym.wrappers.budget import ContextBudget, Trigger, read_trigger
from agentgym.wrappers.context import ContextWrapper, import_function

MessageEdit = Callable[[Sequence[Message]], Sequence[Message]]
"""Function from the messages that may be edited to those that are to be shown in their place."""


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
        choices = "a function, or package.module:function"
        self.function: MessageEdit = (
            edit if callable(edit) else import_function("edit", edit, choices)
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
        new = []
        for message in after[len(shown) :]:
            self._inserted += 1
            new.append(replace(message, id=f"edit_messages:{self._inserted}"))
        self.view.apply("EditMessages", edits, insert=new)
