"""Pages of a state that is too long for a hint."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from agentgym.text.messages import Message
from agentgym.text.tools import ToolError, Toolset, tool
from agentgym.world.world import World

TOOL = "recall_state"
PAGE_CHARS = 12_000  # about 4,000 tokens, a small part of any context window
RECALL_NOTE = (
    "# Long states\nA state that is too long for a hint is shown in part: what concerns the next "
    f"steps, and how much else there is. `{TOOL}` shows pages of the whole at the end of the hint, "
    "until your next other reply. A reply that calls nothing else takes no turn."
)
_NOTICE = f"\nThis is a part of the state; {TOOL} shows the whole, in pages 1 to {{}}."
_PAGES = re.compile(re.escape(_NOTICE).replace(r"\{\}", "([0-9]{1,6})"))
_HEADING = "\n# Page {} of {}\n"


class StatePages(Toolset):
    """Toolset of an agent that sees a state instead of the history.

    Attributes:
        count: The number of pages of the last state; 0 if the hint was complete.
    """

    episode_state: ClassVar[tuple[str, ...]] = ("count", "shown")
    count: int = 0
    shown: tuple[int, ...] = ()

    def begin(self) -> None:
        self.count, self.shown = 0, ()

    @tool
    def recall_state(self, pages: list[int]) -> str:
        """Show pages of the whole state in the state hint, until your next other reply. Takes no
        turn in a reply that calls nothing else.

        Args:
            pages: The numbers of the pages, from 1, that are not shown yet.
        """
        # `StateOracle` answers valid requests without calling this tool.
        if not self.count:
            raise ToolError("the state hint is complete: there are no more pages")
        raise ToolError(
            f"pages must list hidden pages from 1 to {self.count}, in a reply without other calls, "
            f"got {pages}"
        )

    def describe(self, world: World[Any]) -> str:
        """Describe a world's state and add the requested pages."""
        brief, chars = world.brief_state(), world.state_chars()
        if chars <= len(brief):
            self.count = 0
            return brief
        self.count = math.ceil(chars / PAGE_CHARS)
        parts = [brief, _NOTICE.format(self.count)]
        state = world.state() if self.shown else ""
        for page in self.shown:
            if page <= self.count:
                parts.append(_HEADING.format(page, self.count))
                parts.append(state[(page - 1) * PAGE_CHARS : page * PAGE_CHARS])
        return "".join(parts)

    def request(self, reply: Message) -> bool:
        """Show the requested pages; return False if the reply requests no new page."""
        asked = set(self.shown)
        for call in reply.calls:
            pages = call.arguments.get("pages")
            if call.name != TOOL or len(call.arguments) != 1 or not isinstance(pages, list):
                return False
            for page in pages:
                if type(page) is not int or not 1 <= page <= self.count:
                    return False
                asked.add(page)
        if len(asked) == len(self.shown):
            return False
        self.shown = tuple(sorted(asked))
        return True


def read_pages(hint: str) -> tuple[str, Sequence[int]]:
    """Return the state, or the part that the hint shows, and the numbers of the omitted pages."""
    notice = _PAGES.search(hint)
    if notice is None:
        return hint, ()
    count, position = int(notice[1]), notice.end()
    pages, missing = list[str](), list[int]()
    for page in range(1, count + 1):
        heading = _HEADING.format(page, count)
        if hint.startswith(heading, position):
            position += len(heading)
            pages.append(hint[position : position + PAGE_CHARS])
            position += PAGE_CHARS
        else:
            missing.append(page)
    return ("".join(pages) if pages else hint), missing
