"""Notes that scripted policies write with the tool of `agentgym.wrappers.MemoryTool`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from agentgym.oracles.reading import ParsedChat, apply_result, read_state
from agentgym.text.messages import ToolCall
from agentgym.world.world import World
from agentgym.wrappers.memory_store import ROOT

NOTE = f"{ROOT}/state.md"
_TOOL = "memory"
_LINE_NUMBER = re.compile(r"(?m)^[0-9]+\t")


def choose_memory_call(parsed: ParsedChat, describe: Callable[[], str]) -> ToolCall | None:
    """Return the memory call that must precede the next action, or None.

    The policy saves the state that `describe` returns when the context is nearly full. It looks for
    a note whenever the chat shows no memory call, because earlier turns may have been removed.
    """
    # A state hint or a summary already contains what a note would.
    if "state" in parsed.hints or not any(tool.name == _TOOL for tool in parsed.tools):
        return None
    if parsed.warned:
        return ToolCall(_TOOL, {"command": "create", "path": NOTE, "file_text": describe()})
    used = [event for event in parsed.past.events if event and event[0].name == _TOOL]
    if not used and not parsed.summary:
        return ToolCall(_TOOL, {"command": "view", "path": ROOT})
    if used and not any(map(_read_note, used)) and NOTE in used[-1][1]:
        return ToolCall(_TOOL, {"command": "view", "path": NOTE})
    return None


def recall_from_note(kind: type[World[Any]], parsed: ParsedChat) -> World[object] | None:
    """Return the world that the newest visible note and the calls after it imply; None without a
    readable note.
    """
    events = parsed.past.events
    for place in reversed(range(len(events))):
        event = events[place]
        if event is None or not (note := _read_note(event)):
            continue
        world = kind.read_task(parsed.task)
        if not read_state(world, note):
            return None
        world.turn += 1  # the turn that wrote or read the note
        for later in events[place + 1 :]:
            if later is None:
                world.turn += 1
            else:
                apply_result(world, *later)
        return world
    return None


def _read_note(event: tuple[ToolCall, str]) -> str:
    call, result = event
    if call.name != _TOOL or call.arguments.get("path") != NOTE:
        return ""
    if call.arguments.get("command") == "create":
        return str(call.arguments.get("file_text", ""))
    return _LINE_NUMBER.sub("", result)
