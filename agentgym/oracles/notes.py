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

    The policy saves the state that `describe` returns when the context is nearly full, and looks
    for a note whenever the chat shows no memory call.
    """
    # A state hint or a summary already contains the note's contents.
    if "state" in parsed.hints or not any(tool.name == _TOOL for tool in parsed.tools):
        return None
    used = [event for event in parsed.past.events if event and event[0].name == _TOOL]
    newest = used[-1][0].arguments if used else {}
    read_back = newest.get("command") == "view" and newest.get("path") == NOTE
    # After reading a note, save the state again, because later calls may have changed it.
    if parsed.warned or read_back:
        return ToolCall(_TOOL, {"command": "create", "path": NOTE, "file_text": describe()})
    if not used and not parsed.summary:
        return ToolCall(_TOOL, {"command": "view", "path": ROOT})
    if newest.get("path") == ROOT and NOTE in used[-1][1]:
        return ToolCall(_TOOL, {"command": "view", "path": NOTE})
    return None


def recall_from_note(kind: type[World[Any]], parsed: ParsedChat) -> World[object] | None:
    """Return the world implied by the newest visible note and the calls after it, or None."""
    events = parsed.past.events
    for place in reversed(range(len(events))):
        event = events[place]
        if event is None or not (note := _read_note(event)):
            continue
        world = kind.read_task(parsed.task)
        if not read_state(world, note):
            return None
        if event[0].arguments["command"] == "create":
            world.turn += 1
            events = events[place + 1 :]
        # If the note was read with `view`, all visible calls are newer than the note.
        for later in events:
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
    if call.arguments["command"] == "create":
        return str(call.arguments["file_text"])
    return _LINE_NUMBER.sub("", result)
