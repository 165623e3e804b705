from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from agentgym import World, aec_env, make, parallel_env, teams
from agentgym.assemble.registry import is_team
from agentgym.envs.lumina.list_world import ListWorld
from agentgym.multi.game import Game
from agentgym.multi.kinds import Talk
from agentgym.multi.team import default_roles
from agentgym.oracles import TeamPolicy
from agentgym.training.rollout import rollout
from tests.sampling import is_office

IDS = [entry.id for entry in teams()]
SPLIT = [env_id for env_id in IDS if "-team-" in env_id]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"roles": {"a": ["pop"]}}, "roles must name 2 to 64 agents, got 1"),
        (
            {"roles": {"a": ["pop"], "b": ["fly"]}},
            "roles gives b_0 the tool 'fly', which the world lacks; tools: pop, done",
        ),
        (
            {"roles": {"A": ["pop"], "b": []}},
            "role names must be lower-case, such as reader or reader_0, got 'A'",
        ),
        ({"roles": {"a": "pop", "b": []}}, "the tools of a_0 must be a list of names, got 'pop'"),
        ({"roles": {"a": ["pop"], "a_0": []}}, "roles must not name a_0 twice"),
        ({"reward": "mine"}, "reward must be 'shared' or a factor per role, got 'mine'"),
        (
            {"reward": {"x": 1.0}},
            "reward contains 'x_0', which is not in the team; agents: actor_0, closer_0",
        ),
        (
            {"reward": {"actor": 2}},
            r"the reward of actor_0 must be a factor in \[-1.0, 1.0\], got 2",
        ),
        ({"max_message": 0}, r"max_message must be an integer in \[1, 131072\], got 0"),
        ({"max_cycles": 0}, r"max_cycles must be an integer in \[1, 1000000000\], got 0"),
        ({"items": 0}, "items must be an integer in"),
        ({"itmes": 3}, "ListWorld has no option 'itmes'"),
        ({"dialect": "yaml"}, "dialect must be one of auto, json, python, got 'yaml'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: str) -> None:
    for form in (make, aec_env, parallel_env):
        with pytest.raises(ValueError, match=error):
            form("ListWorld-team", **options)
    with pytest.raises(ValueError, match="team must be one of"):
        Game("agentgym.envs.lumina.list_world:ListWorld", team="mob")
    with pytest.raises(ValueError, match="has one agent; ids of teams end in -team, -manager"):
        aec_env("ListWorld")
    with pytest.raises(
        ValueError, match="the first role of this team must be the manager, got boss_0"
    ):
        make("ListWorld-manager", roles={"boss": ["done"], "worker": ["pop"]})


def test_pettingzoo_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "agentgym.multi.zoo", raising=False)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    for form in (aec_env, parallel_env):
        with pytest.raises(ImportError, match=r"PettingZoo: pip install 'agentgym-suite\[multi\]'"):
            form("ListWorld-team")
    assert rollout(TeamPolicy("ListWorld-team"), make("ListWorld-team"), 0).reward == 1.0


def test_a_world_with_one_tool_leaves_the_others_to_talk() -> None:
    for env_id, options in (
        ("LongContextQA-team", {"delivery": "task"}),
        ("SearchWorld-team", {"setting": "static"}),
    ):
        env = make(env_id, **options)
        first, second = env.unwrapped.game.protocol.agents.values()
        assert (first, second) == ((), ("answer",))
        assert rollout(TeamPolicy(env_id), env, 1).reward == 1.0


@pytest.mark.parametrize(
    ("tools", "actor", "closer"),
    [
        ({"a": False, "b": True, "c": False}, ("a", "c"), ("b",)),
        ({"a": False, "b": False, "c": False}, ("a", "c"), ("b",)),
        ({"a": True, "b": True}, ("a",), ("b",)),
        ({"a": True}, ("a",), ()),
    ],
)
def test_the_default_split(
    tools: dict[str, bool], actor: tuple[str, ...], closer: tuple[str, ...]
) -> None:
    assert default_roles(World, tools) == {"actor": actor, "closer": closer}


class Busy(ListWorld):
    """A world with a tool that has the same name as a team tool."""

    def toolsets(self) -> Any:
        return (Talk("x_0", None, 3),)  # type: ignore[arg-type]


def test_a_world_may_not_have_the_tools_of_a_team() -> None:
    with pytest.raises(ValueError, match="the world and the team both have a tool tell; rename"):
        Game(Busy)


@pytest.mark.parametrize("env_id", SPLIT)
def test_every_tool_of_the_world_is_somebodys(env_id: str) -> None:
    game = make(env_id).unwrapped.game
    tools = [name for names in game.protocol.agents.values() for name in names]
    env = make(env_id.replace("-team", "")).unwrapped
    assert sorted(tools) == sorted(tool.name for tool in env.tools)
    assert is_team(env_id)
    assert not is_team(env_id.replace("-team", ""))


def test_gymnasium_finds_nothing_to_say() -> None:
    for env_id in (env_id for env_id in IDS if not is_office(env_id) or "Course" in env_id):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(make(env_id).unwrapped)
