"""A sound world, and worlds that each break one law for the fuzzer to find.

They are registered only with Gymnasium; tests of all worlds skip them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium

from agentgym import Content, ToolError, World, tool


@dataclass(frozen=True)
class Config:
    budget_slack: int = 0


class SoundWorld(World[Config]):
    """Keep notes until the note `end` contains the number."""

    Config = Config

    def generate(self) -> None:
        self.number = int(self.rng.integers(1, 10))
        self.notes: dict[str, str] = {"first": "a note"}
        self.clock = 0
        self.max_turns = 20 + self.config.budget_slack

    def rules(self) -> str:
        return "You keep notes."

    def task(self) -> str | Content:
        return f"Write the number {self.number} into the note end, then call finish."

    def score(self) -> float:
        return float(self.done and self.notes.get("end") == str(self.number))

    @tool
    def write(self, name: str, text: str) -> str:
        """Write a note.

        Args:
            name: Its name.
            text: Its text.
        """
        if not name.strip():
            raise ToolError("a note needs a name")
        self.clock += 1
        self.notes[name] = text
        return self.written(name, text, f'{{"name": "{len(self.notes)}", "clock": {self.clock}}}')

    @tool
    def read(self, name: str) -> str:
        """Read a note.

        Args:
            name: Its name.
        """
        return self.text_of(name)

    @tool
    def wind(self, seconds: int) -> str:
        """Set the clock forward.

        Args:
            seconds: The seconds, 1 to 100.
        """
        return self.advance(seconds)

    @tool(final=True)
    def finish(self) -> str:
        """End the task."""
        return "Done."

    def written(self, name: str, text: str, result: str) -> str:
        return result

    def text_of(self, name: str) -> str:
        if name not in self.notes:
            raise ToolError(f"there is no such note; notes: {len(self.notes)}")
        return self.notes[name]

    def advance(self, seconds: int) -> str:
        if not 1 <= seconds <= 100:
            raise ToolError("seconds must be 1 to 100")
        self.clock += seconds
        return f"The clock shows {self.clock}."


class RaisingWorld(SoundWorld):
    """Its tool raises instead of refusing."""

    def text_of(self, name: str) -> str:
        return self.notes[name]


class RareWorld(SoundWorld):
    """Its tool raises for texts with a bidirectional control character in one of its two arguments."""

    def written(self, name: str, text: str, result: str) -> str:
        if set(text) & set("\u202a\u202b\u202d\u202e\u2066\u2067"):
            raise RuntimeError("the layout of the text failed")
        return result


class ScoringWorld(SoundWorld):
    """Its scorer raises in some states."""

    def score(self) -> float:
        return super().score() if int(self.clock) < 20 else 1 / (self.clock - self.clock)


class HalfDoneWorld(SoundWorld):
    """A refused call has already changed something."""

    def advance(self, seconds: int) -> str:
        self.notes["last"] = str(seconds)[:9]
        return super().advance(seconds)


class TickingWorld(SoundWorld):
    """Its clock advances on a refused call."""

    def text_of(self, name: str) -> str:
        self.clock += 1
        return super().text_of(name)


class RememberingWorld(SoundWorld):
    """Its episodes share a class attribute."""

    shared: ClassVar[list[str]] = []

    def written(self, name: str, text: str, result: str) -> str:
        self.shared.append(name)
        return f"{result} {len(self.shared)}"


class NaNWorld(SoundWorld):
    """Its score is NaN in some states."""

    def score(self) -> float:
        return float("nan") if len(self.notes) > 2 else super().score()


class OverfullWorld(SoundWorld):
    """Its score is above 1 in some states."""

    def score(self) -> float:
        return float(len(self.notes) > 2) * 1.5


class UnwritableWorld(SoundWorld):
    """Its report is not JSON-serialisable."""

    def report(self) -> Mapping[str, Any]:
        return {"names": set(self.notes)}


class SurrogateWorld(SoundWorld):
    """Its tool cuts a text inside a surrogate pair."""

    def written(self, name: str, text: str, result: str) -> str:
        start = text.encode("utf-8", "replace")[:2].decode("utf-8", "surrogateescape")
        return f"{result} {start}"


class ForgetfulWorld(SoundWorld):
    """A copy of it lacks a field."""

    def generate(self) -> None:
        super().generate()
        self.reads = 0

    def text_of(self, name: str) -> str:
        text = super().text_of(name)
        self.reads += 1
        return f"{text} (read {self.reads} times)"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "reads": 0}


class TimedWorld(SoundWorld):
    """It prints the machine's time."""

    def advance(self, seconds: int) -> str:
        return f"{super().advance(seconds)} {time.time_ns()}"


# If the env refuses such a result, it reports the failing tool or scorer.
REFUSED = frozenset({"raise", "result"})

# The worlds with the laws they break; the fuzzer must report at least one.
PLANTED: Mapping[type[SoundWorld], frozenset[str]] = {
    RaisingWorld: frozenset({"raise"}),
    RareWorld: frozenset({"raise"}),
    ScoringWorld: frozenset({"raise"}),
    HalfDoneWorld: frozenset({"state"}),
    TickingWorld: frozenset({"state"}),
    RememberingWorld: frozenset({"repeat"}),
    NaNWorld: REFUSED,
    OverfullWorld: REFUSED,
    UnwritableWorld: REFUSED,
    SurrogateWorld: REFUSED,
    ForgetfulWorld: frozenset({"copy"}),
    TimedWorld: frozenset({"copy"}),
}

for _world in (SoundWorld, *PLANTED):
    gymnasium.register(
        f"planted/{_world.__name__}-v0",
        entry_point="agentgym.play.env:ToolEnv",
        kwargs={"world": f"{__name__}:{_world.__name__}"},
        order_enforce=False,
        disable_env_checker=True,
    )


def planted_id(world: type[SoundWorld]) -> str:
    return f"{__name__}:planted/{world.__name__}-v0"
