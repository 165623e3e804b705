from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import pytest

from agentgym import make, tool_env
from agentgym.envs.lumina.list_world import ListWorld

HOOKS = ("subtask", "state", "restate", "optimal_calls", "label_calls", "subtask_for")
GOOD = '<tool_call>{"name": "pop", "arguments": {"index": 0}}</tool_call>'


class Fragile(ListWorld):
    """ListWorld whose oracle hooks fail after the first pop."""

    broken: tuple[str, ...] = HOOKS


def failing(name: str) -> Any:
    def hook(self: Fragile, *args: Any, **kwargs: Any) -> Any:
        if name in self.broken and self.turn > 0:
            raise RuntimeError(f"{name} broke")
        return getattr(ListWorld, name)(self, *args, **kwargs)

    return hook


for each in HOOKS:
    setattr(Fragile, each, failing(each))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(
        "Fragile-v0",
        entry_point="agentgym.play.env:ToolEnv",
        kwargs={"world": f"{__name__}:Fragile"},
        disable_env_checker=True,
        order_enforce=False,
    )
    yield
    del gymnasium.registry["Fragile-v0"]


@pytest.mark.parametrize("arm", ["P", "S", "SP", "SH", "SPH", "P_", "S_", "P0.5", "P0S0"])
def test_hooks_that_break_make_an_episode_invalid_and_raise_nothing(arm: str) -> None:
    env = make("Fragile-v0", oracles=arm, labels=True, items=6, removals=3)
    env.reset(seed=0)
    _, _, _, _, info = env.step(GOOD)
    assert {fault.tool for fault in info["detail"].faults} != set()
    assert info["detail"].invalid != ""
    env.step("nonsense")
    chat, _ = env.reset(seed=0)
    assert tool_env(env).guard.invalid == "", "a reset forgets it"
    assert chat.messages


def test_the_exception_is_raised_for_who_wants_it() -> None:
    env = make("Fragile-v0", oracles="P", on_fault="raise", items=6, removals=3)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="broke"):
        env.step(GOOD)
