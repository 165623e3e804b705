from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import pytest

import agentgym
from agentgym import ToolCall, ToolEnv, ToolError, World, clone, render, tool
from agentgym.assemble import registry
from agentgym.oracles import StepOptimality


@dataclass(frozen=True)
class Config:
    calls: int | None = 3


class JarWorld(World[Config]):
    """Take the sweets out of a jar, the red ones first."""

    Config = Config
    prose_fails = False
    max_failed_rounds = 2

    def __init__(self, config: Config, seed: int) -> None:
        super().__init__(config, seed)
        self.max_calls = config.calls

    def generate(self) -> None:
        self.red, self.blue = 2, 2

    def rules(self) -> str:
        return "Take the red sweets."

    def task(self) -> str:
        return "Take them now."

    @tool
    def take(self, colour: str) -> str:
        """Take a sweet.

        Args:
            colour: Red or blue.
        """
        if colour not in ("red", "blue") or not getattr(self, colour):
            raise ToolError(f"there is no {colour} sweet")
        setattr(self, colour, getattr(self, colour) - 1)
        self.done = not self.red
        return f"a {colour} sweet"

    @tool
    def look(self) -> str:
        """Look into the jar."""
        return f"{self.red} red, {self.blue} blue"

    def score(self) -> float:
        return (2 - self.red) / 2

    def optimal_calls(self) -> Sequence[ToolCall]:
        return (ToolCall("take", {"colour": "red"}),) * bool(self.red)

    def label_calls(self) -> Callable[[Sequence[ToolCall]], Sequence[str]]:
        red = self.red

        def labels(calls: Sequence[ToolCall]) -> list[str]:
            assert self.red <= red, "the calls were played by now"
            names = {None: "neutral", "red": "optimal"}
            return [names.get(c.arguments.get("colour"), "greedy") for c in calls]

        return labels

    def report(self) -> Mapping[str, Any]:
        return {"red": self.red, "blue": self.blue}


class Plain(JarWorld):
    """Variant of `JarWorld` with the default hooks."""

    prose_fails = World.prose_fails
    max_failed_rounds = World.max_failed_rounds

    def label_calls(self) -> None:
        return None

    def report(self) -> Mapping[str, Any]:
        return {}


class Strict(JarWorld):
    """One call per reply."""

    parallel_calls = False


def take(colour: str = "red") -> str:
    return render(ToolCall("take", {"colour": colour}))


LOOK = render(ToolCall("look", {}))


def started(world: type[World[Any]] = JarWorld, **options: Any) -> ToolEnv:
    env = ToolEnv(world, **options)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(
    ("world", "options", "most", "told", "refused"),
    [
        (JarWorld, {}, 3, "at most 3.", ", or up to 3"),
        (JarWorld, {"calls": 2}, 2, "at most 2.", ", or up to 2"),
        (JarWorld, {"parallel_calls": False}, 1, "exactly one call", ""),
        (Strict, {}, 1, "exactly one call", ""),
        (Strict, {"calls": None}, 1, "exactly one call", ""),
    ],
)
def test_a_reply_with_more_calls_than_the_world_takes_runs_none(
    world: type[World[Any]], options: dict[str, Any], most: int, told: str, refused: str
) -> None:
    env = started(world, **options)
    assert env.most_calls == most
    assert told in env.chat.messages[0].text
    chat, *_, info = env.step(LOOK * (most + 1))
    error = f"error: this world takes one call in each reply{refused}; none was run"
    assert chat.messages[-1].text == error
    assert chat.messages[-2].calls == ()
    assert (info["valid"], info["detail"].failed_rounds) == (False, 1)
    for copy in (env, clone(env)):
        chat, *_, info = copy.step(LOOK * most)
        assert [message.text for message in chat.messages[-most:]] == ["2 red, 2 blue"] * most
        assert info["valid"]


def test_a_world_without_a_limit_takes_any_number() -> None:
    env = started(calls=None)
    assert env.most_calls is None
    chat, *_, info = env.step(LOOK * 100)
    assert (len(chat.messages), info["valid"]) == (2 + 1 + 100, True)
    with pytest.raises(ValueError, match="JarWorld has no turn budget"):
        _ = env.world.turns_left


def rounds(env: ToolEnv, *replies: str) -> list[int]:
    return [env.step(reply)[4]["detail"].failed_rounds for reply in replies]


def test_prose_is_passed_over_or_is_a_failed_round_as_the_world_says() -> None:
    bad = take("green")
    replies = ("Hm.", bad, "Hm.", "", bad, "<tool_call>{", bad + LOOK, bad)
    assert rounds(started(max_failed_rounds=None), *replies) == [0, 1, 1, 1, 2, 3, 0, 1]
    assert rounds(started(Plain), *replies) == [1, 2, 3, 4, 5, 6, 0, 1]


def test_the_world_says_which_failed_round_ends_the_episode_unless_the_user_does() -> None:
    bad = take("green")
    env = started()
    assert not env.step(bad)[2]
    *_, terminated, truncated, info = env.step(bad)
    assert (terminated, truncated, info["detail"].ended) == (True, False, "failed_rounds")
    assert started(max_failed_rounds=1).step(bad)[2]
    never = started(Plain, max_failed_rounds="world")
    for env in (started(max_failed_rounds=None), started(Plain), never):
        assert rounds(env, *[bad] * 9)[-1] == 9
        assert not env.over
    with pytest.raises(
        ValueError, match=r"max_failed_rounds must be an integer in \[1, 1000000\], got 'never'"
    ):
        ToolEnv(JarWorld, max_failed_rounds="never")  # type: ignore[arg-type]


def test_a_preset_may_hold_options_of_the_env() -> None:
    try:
        agentgym.register(
            JarWorld, presets={"patient": {"calls": 2, "max_failed_rounds": 4, "dialect": "json"}}
        )
        env = agentgym.tool_env(agentgym.make("JarWorld-patient"))
        assert (env.max_failed_rounds, env.dialect, env.most_calls) == (4, "json", 2)
        patient = agentgym.make("JarWorld-patient", max_failed_rounds=None)
        assert agentgym.tool_env(patient).max_failed_rounds is None
        assert registry.is_team("JarWorld-team"), "a world of one's own has teams too"
        with pytest.raises(ValueError, match="Strict has no option 'colour'; options: calls"):
            agentgym.register(Strict, presets={"red": {"colour": "red"}})
    finally:
        for name in ("agentgym/JarWorld-v0", "agentgym/JarWorld-patient-v0", "agentgym/Strict-v0"):
            del gymnasium.registry[name], registry._worlds[name]
        for name in list(registry._teams):
            if "/JarWorld-" in name or "/Strict-" in name:
                del gymnasium.registry[name], registry._teams[name]


def labelled(world: type[World[Any]], *replies: str) -> list[tuple[Any, ...]]:
    env = StepOptimality(ToolEnv(world, max_failed_rounds=None))
    env.reset(seed=0)
    infos = [env.step(reply)[4] for reply in replies]
    return [(info.get("labels"), info["optimal"], info["alive"]) for info in infos]


def test_calls_get_the_labels_of_the_world_after_they_were_played() -> None:
    expected = {
        LOOK: (("neutral",), False),
        LOOK + take(): (("neutral", "optimal"), True),
        take("blue"): (("greedy",), False),
        take("green") + LOOK: (("invalid", "neutral"), False),
        "Hm.": ((), False),
        LOOK * 4: ((), False),
        take() + take(): (("optimal", "invalid"), False),
    }
    assert labelled(JarWorld, *expected) == [(*found, True) for found in expected.values()]
    assert labelled(Plain, LOOK + take(), take()) == [(None, False, True), (None, True, True)]


def test_a_world_without_labels_has_no_key_for_them() -> None:
    assert "labels" not in StepOptimality(ToolEnv(Plain)).reset(seed=0)[1]
    assert StepOptimality(ToolEnv(JarWorld)).reset(seed=0)[1]["labels"] == ()


def test_a_report_is_given_at_every_kind_of_end_and_at_no_other_time() -> None:
    def end(env: ToolEnv, *replies: str) -> tuple[Any, ...]:
        for reply in replies:
            *_, info = env.step(reply)
            assert (info["detail"].report is None) == (not info["detail"].ended)
        return info["detail"].ended, info["detail"].score, info["detail"].report

    assert end(started(), take(), take("blue"), take()) == ("world", 1.0, {"red": 0, "blue": 1})
    failed = end(started(), take(), "<tool_call>{", take("green"))
    assert failed == ("failed_rounds", 0.5, {"red": 1, "blue": 2})
    env = started()
    env.world.max_turns = 1
    assert end(env, LOOK) == ("max_turns", 0.0, {"red": 2, "blue": 2})
    env = started()
    env.step(take())
    *_, terminated, truncated, info = env.truncate("enough")
    assert (terminated, truncated, info["detail"].ended) == (False, True, "enough")
    assert info["detail"].report == {"red": 1, "blue": 2}
    env = started(Plain)
    *_, info = env.truncate("enough")
    assert info["detail"].report is None
