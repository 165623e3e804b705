from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec, load_env_creator

import agentgym
from agentgym.oracles import NoisyPolicy, PlanOracle
from agentgym.training.rollout import rollout

STACKS: list[tuple[str, dict[str, Any]]] = [
    ("ListWorld", {}),
    ("ListWorld-easy", {"oracles": "SPH", "labels": True, "shots": 1, "render_mode": "ansi"}),
    ("TreeWorld", {"oracles": "P0.5S_", "hint_scope": "ephemeral"}),
    (
        "GridWorld",
        {"context": "clear_results+compaction", "window": 3_000, "dialect": "json"}
        | {"context_options": {"compaction": {"max_summary": 100}}},
    ),
    ("ListWorld", {"oracle_options": {"H": {"keep_last_error": True}}, "oracles": "SH"}),
    ("ListWorld", {"wrappers": [agentgym.spec("ListWorld", oracles="P").additional_wrappers[0]]}),
    ("ListWorld-team", {"oracles": "C", "agents": {"closer_0": {"oracles": "S"}}, "max_cycles": 9}),
]


@pytest.mark.parametrize(("env_id", "options"), STACKS)
def test_both_ways_make_one_env(env_id: str, options: dict[str, Any]) -> None:
    env_id = agentgym.resolve(env_id)
    envs: list[Any] = [
        gymnasium.make(env_id, **options),
        gymnasium.make(agentgym.spec(env_id, **options)),
    ]
    assert envs[0].spec == envs[1].spec
    envs.append(gymnasium.make(EnvSpec.from_json(envs[0].spec.to_json())))
    assert len({str(env) for env in envs}) == 1
    assert envs[0].reset(seed=3) == envs[1].reset(seed=3) == envs[2].reset(seed=3)
    if "team" not in env_id:
        played = [rollout(NoisyPolicy(env_id, 0.2), env, 4).to_json() for env in envs]
        assert len(set(played)) == 1


def test_what_a_spec_has_is_not_lost_behind_more_options() -> None:
    with pytest.raises(ValueError, match="oracles"):
        gymnasium.make(agentgym.spec("ListWorld", labels=True), oracles="P")


def test_registered_ids_are_known_by_text() -> None:
    spec = gymnasium.spec("agentgym/ListWorld-v0")
    again, made = EnvSpec.from_json(spec.to_json()), agentgym.spec("ListWorld", oracles="P")
    assert gymnasium.make(again, oracles="P").spec == gymnasium.make(made).spec
    assert isinstance(gymnasium.make(again, oracles="P"), PlanOracle)
    with pytest.raises(AttributeError, match="agentgym/NoWorld-v0"):
        load_env_creator("agentgym.assemble.entry_points:agentgym/NoWorld-v0")


def test_a_spec_that_is_set_by_hand_counts() -> None:
    env = agentgym.tool_env(agentgym.make("ListWorld"))
    spec = agentgym.spec("ListWorld", items=5)
    env.spec = spec
    assert env.spec is spec
    env.spec = None
    assert env.spec is None


def test_gymnasium_keeps_its_modes_of_rendering() -> None:
    env = gymnasium.make("agentgym/GridWorld-v0", render_mode="rgb_array_list", oracles="S")
    env.reset(seed=0)
    frames: Any = env.render()
    assert frames[0].shape[2] == 3


def test_vector_env(capsys: pytest.CaptureFixture[str]) -> None:
    """The example plays the same episodes with and without processes."""
    example = importlib.import_module("examples.vector_env")
    means = {example.main(["--steps", "20", "--mode", mode]) for mode in ("async", "sync")}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == lines[1]
    assert int(lines[0].split()[0]) > 8
    assert 0.3 < means.pop() < 1.0
    assert not means
