"""Marks of messages: how what a policy was shown differs from what the env first wrote."""

from __future__ import annotations

from agentgym.messages import Message

NOTES = {
    "plan": "PlanOracle",
    "state": "StateOracle",
    "system_warning": "ContextAwareness",
    "context_warning": "MemoryTool",
    "budget:token_budget": "ContextAwareness",
}
"""Tags of the blocks that wrappers put at the end of a message, with the wrappers."""

DROPPED = "dropped"
_SAME_START = 16
"""Letters at the beginning by which a result that was cut in the middle is told from a placeholder;
a result that is shorter is compared whole.
"""


def split_notes(text: str, tags: frozenset[str]) -> list[tuple[str, str]]:
    """Return the parts of a text: first the text itself under an empty name, then the blocks that
    wrappers put at its end, by their tags, in order; in linear time.
    """
    notes: list[tuple[str, str]] = []
    end = len(text.rstrip())
    while end:
        tag = next((tag for tag in tags if text.endswith(f"</{tag}>", 0, end)), None)
        start = -1 if tag is None else text.rfind(f"\n\n<{tag}>", 0, end)
        if tag is None or start < 0:
            break
        notes.append((tag, text[start + len(tag) + 4 : end - len(tag) - 3].strip("\n")))
        end = start
    return [("", text[:end] if notes else text), *reversed(notes)]


def mark_of(first: Message, now: Message, tags: frozenset[str]) -> str:
    """Return how a message differs from its first version; empty if it does not, but for notes at
    its end.
    """
    made = _made_by_wrapper(now)
    if made or first == now:
        return made
    (_, before), *old_notes = split_notes(first.text, tags)
    (_, text), *notes = split_notes(now.text, tags)
    if before != text or (first.images and not now.images):
        if now.role != "tool":
            return "rewritten"
        return "cut" if text and text[:_SAME_START] == before[:_SAME_START] else "cleared"
    if first.thinking and not now.thinking:
        return "thinking cleared"
    if first.calls != now.calls:
        return "arguments cleared"
    gone = {tag for tag, _ in old_notes} - {tag for tag, _ in notes}
    return "note removed" if gone else ""


def _made_by_wrapper(message: Message) -> str:
    wrapper, _, rest = message.id.partition(":")
    if wrapper != "compaction":
        return "" if wrapper.isdecimal() or not wrapper else f"by {wrapper}"
    if message.role == "assistant":
        return "summary"
    return "request" if rest.endswith(":request") else "by compaction"
