"""Plan, state and history oracles (LUMINA, section 3), as observation wrappers over any world.

A hint is a block `<plan>…</plan>` or `<state>…</state>` at the end of the newest message. The paper
leaves open whether earlier hints stay: `persistent` hints do, `ephemeral` hints do not. The paper
has neither wrong hints nor placebos.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, SupportsFloat

import gymnasium
import numpy as np

from agentgym.assemble.wrapper_order import Stage, StagedWrapper, layers
from agentgym.assemble.wrapper_stack import HINT_SCOPES, needed_hooks, register_oracle
from agentgym.oracles.choices import Decoys, placebo_for, wrong_plan
from agentgym.oracles.recall import RECALL_NOTE, TOOL, StatePages
from agentgym.text.messages import TASK_ID, Chat, Message
from agentgym.text.parsing import parse
from agentgym.text.validation import check_bool, check_choice, check_float
from agentgym.world.step_info import StepInfo
from agentgym.world.world import World, check_defined, check_hooks, has_hook

# Notices that context wrappers added to the world's text.
_NOTICE = re.compile(r"\n\n<(system_warning|context_warning)>")
_SPACE = re.compile(r"\s*")


PLAN_NOTE = (
    "# Plan hints\nMessages to you end with a hint between <plan> and </plan>. It comes from the "
    "environment, not from the user or a tool, and is always right: it is the next step of an "
    "optimal plan. A hint on an earlier message was for that moment."
)
STATE_NOTE = (
    "# State hints\nMessages to you end with a hint between <state> and </state>. It comes from the "
    "environment, not from the user or a tool, and is always right: it sums up all that you have "
    "been shown so far, as it stands now. A hint on an earlier message was for that moment."
)
PLACEBO_NOTE = (
    "# {title}\nMessages to you end with a block between <{tag}> and </{tag}>. It comes from the "
    "environment, not from the user or a tool, and never matters: it is text of some length that "
    "says nothing about the task. A block on an earlier message did not matter either."
)
_NOTE = (
    "# Hints\nMessages to you end with a hint between <{tag}> and </{tag}>. It comes from the "
    "environment, not from the user or a tool."
)
HISTORY_NOTE = (
    "# History\nYour earlier replies and their results are not shown. Each time you are shown the "
    "task as it stands now; what has happened so far is in the state."
)


class HintOracle(
    StagedWrapper[Chat, str, Chat, str], gymnasium.ObservationWrapper[Chat, str, Chat]
):
    """Wrapper that appends a hint to the newest message, in time independent of the chat's length.

    Random choices depend only on the instance and the turn, so that runs can be compared pairwise.

    Args:
        hint_scope: `persistent` or `ephemeral`.
        accuracy: The probability, in [0, 1], that a hint is correct.
        placebo: Whether to show uninformative text of the same length instead of a hint.
        **recorded: The subclass's arguments, which specs record.

    Attributes:
        note: The announcement in the system message; by default, a general announcement.
        hooks: The hooks of `World` that provide the hint.
        wrong_hooks: Additional hooks that wrong hints require.
        source: The chat before this hint was added.
        hint: The newest hint; empty after the end of the episode.
    """

    stage = Stage.HINTS
    tag: str
    placebo_tag: ClassVar[str] = "aside"
    note: ClassVar[str] = ""
    hooks: ClassVar[tuple[str, ...]] = ()
    wrong_hooks: ClassVar[tuple[str, ...]] = ()
    opening: ClassVar[re.Pattern[str]]  # matches the start of any oracle's hint
    _tags: ClassVar[set[str]] = set()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._tags.update((getattr(cls, "tag", cls.placebo_tag), cls.placebo_tag))
        HintOracle.opening = re.compile(rf"\n\n<({'|'.join(map(re.escape, sorted(cls._tags)))})>\n")

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        hint_scope: str = "persistent",
        accuracy: float = 1.0,
        placebo: bool = False,
        **recorded: Any,
    ) -> None:
        check_choice("hint_scope", hint_scope, HINT_SCOPES)
        check_float("accuracy", accuracy, 0.0, 1.0)
        check_bool("placebo", placebo)
        if accuracy < 1.0 and (placebo or not self.wrong_hooks):
            why = "a placebo is neither right nor wrong" if placebo else "it has no wrong hints"
            raise ValueError(
                f"{type(self).__name__} does not accept accuracy={accuracy}: {why}; omit accuracy"
            )
        variant: dict[str, Any] = {"accuracy": accuracy} if accuracy < 1.0 else {}
        if placebo:
            variant["placebo"] = True
        super().__init__(env, hint_scope=hint_scope, **{**variant, **recorded})
        hooks = needed_hooks(type(self), {"accuracy": accuracy})
        check_hooks(self.world_env.world_class, hooks)
        check_defined(self.world_env.world_class, self.world_env.config, hooks)
        self.accuracy, self.placebo = accuracy, placebo
        if placebo:
            self.tag = self.placebo_tag
            notes = PLACEBO_NOTE.format(title=f"{self.tag.capitalize()}s", tag=self.tag)
        else:
            notes = self.note or _NOTE.format(tag=self.tag)
        self.world_env.announce(notes)
        self.persistent = hint_scope == "persistent"
        self.source = Chat()
        self.hint = ""
        self._shown = Chat()

    def text(self) -> str:
        """Return the current hint."""
        raise NotImplementedError

    def wrong_text(self, rng: np.random.Generator) -> str:
        """Draw a wrong hint; return an empty string if the world has none."""
        raise NotImplementedError

    def begin(self) -> None:
        """Prepare for a new episode."""

    def _draw(self) -> str:
        if self.placebo:
            return placebo_for(self.text(), self.world_env.world.turn)
        if self.accuracy == 1.0:
            return self.text()
        rng = np.random.default_rng(zlib.crc32(f"{self.source.moment()}:{self.tag}".encode()))
        return self.text() if rng.random() < self.accuracy else self.wrong_text(rng)

    def observation(self, observation: Chat) -> Chat:
        known, count = len(self.source.messages), len(observation.messages)
        grew = 0 < known <= count and observation.shared_prefix(self.source) == known
        self.source = observation
        self.hint = ""
        if not self.world_env.over:
            with self.world_env.guard.watch(f"{self.tag} hints", "its hints broke"):
                self.hint = self._draw()
        last = with_hints(observation.messages[-1], [self])
        if not self.persistent:
            return observation.without_last().with_last(last)
        if not grew:
            self._shown = Chat(tuple(observation.messages[:-1]), observation.tools)
            known = count - 1
        elif known == count:  # no new message, but a new hint
            self._shown, known = self._shown.without_last(), known - 1
        self._shown = self._shown.add(*observation.messages[known:-1], last)
        return self._shown

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        chat, reward, terminated, truncated, info = self.env.step(action)
        shown = self.observation(chat)  # may record a fault
        return shown, reward, terminated, truncated, self.world_env.guard.add_faults(info)

    def reset(self, **options: Any) -> tuple[Chat, dict[str, Any]]:
        self.source = Chat()
        observation, info = self.env.reset(**options)
        self._info_keys = tuple(info)
        self.begin()
        return self.observation(observation), info


class PlanOracle(HintOracle):
    """Oracle that shows the next step of an optimal plan.

    Args:
        hint_scope: `persistent` or `ephemeral`.
        with_state: Whether the policy also sees the state, to which the step may refer.
        accuracy: The probability that a hint is correct; a wrong hint asks for a non-optimal call.
        placebo: Whether to show uninformative text instead of a hint.

    Example:
        >>> env = PlanOracle(gymnasium.make("agentgym/ListWorld-v0"))
    """

    tag = "plan"
    placebo_tag = "note"
    note = PLAN_NOTE
    hooks = ("subtask",)
    wrong_hooks = ("optimal_calls",)

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        hint_scope: str = "persistent",
        with_state: bool = False,
        accuracy: float = 1.0,
        placebo: bool = False,
    ) -> None:
        check_bool("with_state", with_state)
        super().__init__(env, hint_scope, accuracy, placebo, with_state=with_state)
        self.with_state = with_state

    def text(self) -> str:
        return self.world_env.world.subtask(self.with_state)

    def wrong_text(self, rng: np.random.Generator) -> str:
        return wrong_plan(self.world_env, self.with_state, rng)


class StateOracle(HintOracle):
    """Oracle that shows the belief state.

    Args:
        hint_scope: `persistent` or `ephemeral`.
        whole: Whether the state replaces the history. The hint contains `World.brief_state`; a
            tool shows the rest if `whole` is set or the agent sees only part of the history.
        accuracy: The probability that a hint is correct; a wrong hint is another instance's state.
        placebo: Whether to show uninformative text instead of a hint.

    Example:
        >>> env = StateOracle(gymnasium.make("agentgym/ListWorld-v0"))
    """

    tag = "state"
    placebo_tag = "remark"
    note = STATE_NOTE
    hooks = ("state",)
    wrong_hooks = ("optimal_calls",)

    def __init__(
        self,
        env: gymnasium.Env[Chat, str],
        hint_scope: str = "persistent",
        whole: bool = True,
        accuracy: float = 1.0,
        placebo: bool = False,
    ) -> None:
        check_bool("whole", whole)
        super().__init__(env, hint_scope, accuracy, placebo, whole=whole)
        self.whole = whole
        self._pages = StatePages()
        self._offers_pages = (
            (whole or not self.world_env.sees_all)
            and not placebo
            and has_hook(self.world_env.world_class, "brief_state")
        )
        if self._offers_pages:
            self.world_env.mount(self._pages, RECALL_NOTE)

    def begin(self) -> None:
        if self.accuracy < 1.0:
            self._decoys = Decoys(self.world_env)

    def text(self) -> str:
        return self._describe(self.world_env.world)

    def _describe(self, world: World[Any]) -> str:
        return self._pages.describe(world) if self._offers_pages else world.brief_state()

    def step(self, action: str) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        """Run a reply; a reply that only requests pages of the state uses no turn."""
        if self._pages.count and not self.world_env.over and isinstance(action, str):
            if TOOL in action and self._pages.request(self._parse(action)):
                return self._show_pages()
            self._pages.shown = ()
        return super().step(action)

    def _parse(self, action: str) -> Message:
        env = self.world_env
        reply = parse(action, env.dialect, env.tools)
        too_many = env.most_calls is not None and len(reply.calls) > env.most_calls
        return replace(reply, calls=()) if too_many else reply

    def _show_pages(self) -> tuple[Chat, SupportsFloat, bool, bool, dict[str, Any]]:
        info = {
            **dict.fromkeys(self._info_keys),
            "turn": self.world_env.world.turn,
            "valid": True,
            "success": False,
            "detail": StepInfo(calls=1),
        }
        chat = self.observation(self.source)
        return chat, 0.0, False, False, self.world_env.guard.add_faults(info)

    def wrong_text(self, rng: np.random.Generator) -> str:
        return self._decoys.state(self._describe)


class HistoryOracle(
    StagedWrapper[Chat, str, Chat, str], gymnasium.ObservationWrapper[Chat, str, Chat]
):
    """Oracle that hides the history until the episode ends: it shows the system message, the
    restated task and the newest hints (LUMINA, figure 1c).

    Args:
        env: An env with a `StateOracle`.
        keep_last_error: Whether to keep showing the error of a failed reply; the paper's oracle
            drops it.

    Example:
        >>> env = HistoryOracle(StateOracle(gymnasium.make("agentgym/ListWorld-v0")))
    """

    stage = Stage.HISTORY

    def __init__(self, env: gymnasium.Env[Chat, str], keep_last_error: bool = False) -> None:
        check_bool("keep_last_error", keep_last_error)
        super().__init__(env, keep_last_error=keep_last_error)
        self.world_env.announce(HISTORY_NOTE)
        self.keep_last_error = keep_last_error
        self.hints = [layer for layer in layers(env) if isinstance(layer, HintOracle)][::-1]
        if not any(isinstance(hint, StateOracle) and not hint.placebo for hint in self.hints):
            raise ValueError(
                "HistoryOracle needs a StateOracle inside, because without the history the agent "
                "cannot know the state"
            )

    def observation(self, observation: Chat) -> Chat:
        if self.world_env.over:
            return observation
        source = self.hints[0].source
        prefix = source.messages[: source.pinned()]
        task, newest = prefix[-1], source.messages[-1]
        if (restated := self.world_env.restated_task()) is not None:
            task = replace(task, text=restated)
        if self.keep_last_error and newest.id != TASK_ID and newest.text.startswith("error:"):
            task = replace(task, text=f"{task.text}\n\nYour last reply failed. {newest.text}")
        # Scripted policies seed their random choices with this moment.
        task = replace(task, moment=source.moment())
        return Chat((*prefix[:-1], with_hints(task, self.hints)), source.tools)


# The arms of LUMINA's section 4.3, in the order of the figures; H requires S.
ARMS = ("", "S", "P", "SP", "SH", "SPH")


def sort_arms(arms: Iterable[str]) -> list[str]:
    """Return oracle combinations without duplicates, starting with the paper's combinations."""
    mine = set(arms)
    return [arm for arm in ARMS if arm in mine] + sorted(mine.difference(ARMS))


register_oracle(
    "P", "plan", PlanOracle, lambda arm, scope: {"hint_scope": scope, "with_state": "S" in arm}
)
register_oracle(
    "S", "state", StateOracle, lambda arm, scope: {"hint_scope": scope, "whole": "H" in arm}
)
register_oracle(
    "H",
    "history",
    HistoryOracle,
    needs="S",
    reason="without history the agent cannot know the state",
)


def with_hints(message: Message, hints: list[HintOracle]) -> Message:
    """Return the message with the oracles' hints appended."""
    blocks = [f"\n\n<{hint.tag}>\n{hint.hint}\n</{hint.tag}>" for hint in hints if hint.hint]
    return replace(message, text=message.text + "".join(blocks)) if blocks else message


def split_hints(text: str) -> tuple[str, dict[str, str]]:
    """Split a message into the world's text and the hints, by tag."""
    if "\n\n<" not in text:
        return text, {}
    said, hints = _take_blocks(text, HintOracle.opening, "\n</{}>")
    return _take_blocks(said, _NOTICE, "</{}>")[0], hints


def _take_blocks(text: str, opening: re.Pattern[str], closing: str) -> tuple[str, dict[str, str]]:
    rest: list[str] = []
    blocks: dict[str, str] = {}
    unclosed: set[str] = set()  # repeated searches for closing tags would take quadratic time
    position = start = 0
    while mark := opening.search(text, start):
        tag = mark[1]
        end = -1 if tag in unclosed else text.find(closing.format(tag), mark.end())
        if end < 0:
            unclosed.add(tag)
            start = mark.start() + 1
        else:
            rest.append(text[position : mark.start()])
            blocks[tag] = text[mark.end() : end]
            position = end + len(closing.format(tag))
            if opening is _NOTICE and (space := _SPACE.match(text, position)):
                position = space.end()
            start = position
    return "".join((*rest, text[position:])), blocks
