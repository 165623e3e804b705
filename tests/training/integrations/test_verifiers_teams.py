from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "verifiers", reason="verifiers needs openai<3, so an environment of its own: make adapters"
)

import verifiers.v1 as vf

import agentgym
from agentgym.assemble.registry import teams
from agentgym.oracles import TeamPolicy
from agentgym.training.integrations.verifiers import PLUGIN, env_types, load_environment
from agentgym.training.rollout.models.plain_chat import as_text
from tests.training.integrations.verifiers_runs import KEY, play_task
from tests.training.rollout.endpoint_server import Answer, Script, serving

IDS = [entry.id for entry in teams()]


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifiers.v1.runtimes.subprocess.CACHE_DIR", tmp_path)


class Table:
    """Game that the test servers play. Each request must come from the right agent and contain the agent's chat."""

    def __init__(self, env_id: str, seed: int, **options: Any) -> None:
        self.env, self.policy = agentgym.make(env_id, **options), TeamPolicy(env_id)
        self.chat, _ = self.env.reset(seed=seed)
        self.seats: tuple[str, ...] = self.env.unwrapped.game.agents
        self.replies = dict.fromkeys(self.seats, 0)

    def script(self, seat: str, idle: bool = False) -> Script:
        def answer(request: dict[str, Any], number: int) -> Answer:
            assert request["model"] == f"model of {seat}"
            assert self.env.unwrapped.agent == seat, "the seats reply in turn"
            assert request["messages"] == as_text(self.chat.messages).to_openai()
            text = "I wait." if idle else self.policy([self.chat])[0].text
            self.chat, *_ = self.env.step(text)
            self.replies[seat] += 1
            return Answer({"content": text})

        return answer


def play(
    env_id: str, scripts: dict[str, Script], seed: int = 3, **config: Any
) -> tuple[vf.Episode, dict[str, vf.Trace]]:
    options = config.pop("options", {})
    env_type, config_type = env_types(env_id, **options)
    taskset = {"id": PLUGIN, "world": env_id, "options": options, "start": seed, "stop": seed + 1}

    with ExitStack() as stack:
        agents: dict[str, Any] = {}
        for seat, script in scripts.items():
            server = stack.enter_context(serving(script))
            client = {"type": "eval", "base_url": server.url, "api_key_var": KEY}
            agents[seat] = {"model": f"model of {seat}", "client": client}
            agents[seat] |= config.pop(seat, {})
        settings = config_type.model_validate({"taskset": taskset, **agents, **config})
        episode = play_task(env_type(settings))
    return episode, {trace.agent.name: trace for trace in episode.traces}


@pytest.mark.family(team=IDS)
def test_the_oracle_policy_solves_every_team_in_every_seat(team: str) -> None:
    table = Table(team, 3)
    episode, traces = play(team, {seat: table.script(seat) for seat in table.seats})
    assert episode.ok, episode.errors or [trace.errors for trace in episode.traces]
    assert set(traces) == set(table.seats)
    game = table.env.unwrapped.game
    assert {seat: trace.reward for seat, trace in traces.items()} == game.rewards
    # Rivals that solve the task in the same cycle share the reward.
    assert set(game.rewards.values()) == {0.5 if team.endswith("-duel-v0") else 1.0}
    for seat, trace in traces.items():
        assert trace.metrics["success"] == trace.metrics["terminated"] == 1.0
        assert trace.metrics["turns"] == table.replies[seat]


@pytest.mark.parametrize("env_id", ["ListWorld-team", "TreeWorld-manager", "PuzzleWorld-duel"])
def test_a_team_that_does_nothing_gets_nothing(env_id: str) -> None:
    table = Table(env_id, 3, max_cycles=4)
    scripts = {seat: table.script(seat, idle=True) for seat in table.seats}
    episode, traces = play(env_id, scripts, options={"max_cycles": 4})
    assert episode.ok
    assert [trace.reward for trace in traces.values()] == [0.0] * 2
    assert [trace.metrics["truncated"] for trace in traces.values()] == [1.0] * 2
    assert {trace.stop_condition for trace in traces.values()} == {"max_cycles"}


def test_workers_begin_with_a_clean_context() -> None:
    table = Table("DocumentWorld-manager", 3)
    table.policy = TeamPolicy("DocumentWorld-manager", patience=2)
    _, traces = play("DocumentWorld-manager", {seat: table.script(seat) for seat in table.seats})
    worker = traces["worker_0"]
    assert worker.num_branches > 1, "each sub-task is a chat of its own"
    assert sum(node.sampled for node in worker.nodes) == table.replies["worker_0"]


def test_frozen_seats_are_not_trained_and_the_winner_alone_is_rewarded() -> None:
    table = Table("PuzzleWorld-duel", 3)
    scripts = {seat: table.script(seat, idle=seat == "player_0") for seat in table.seats}
    _, traces = play("PuzzleWorld-duel", scripts, frozen=["player_1"])
    assert (traces["player_0"].reward, traces["player_1"].reward) == (0.0, 1.0)
    assert [traces[seat].metrics["success"] for seat in sorted(traces)] == [0.0, 1.0]
    trainable = {seat: trace.agent.trainable for seat, trace in traces.items()}
    assert trainable == {"player_0": True, "player_1": False}
    episode, traces = play("PuzzleWorld-duel", scripts, frozen=["player_7"])
    assert (traces, episode.ok) == ({}, False)
    assert "no agent 'player_7'" in episode.errors[0].message


FAULTS: dict[str, tuple[dict[str, Any], Callable[[vf.Trace], bool]]] = {
    "limit": ({"max_turns": 1}, lambda trace: trace.ok and trace.metrics["truncated"] == 1.0),
    "timeout": ({"timeout": {"rollout": 1.0}}, lambda trace: trace.ok and trace.reward == 0.0),
    "harness": ({"harness": {"id": "null"}}, lambda trace: not trace.ok),
    "box": ({"runtime": {"type": "docker"}}, lambda trace: not trace.ok),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_seats_end_is_the_end_for_all(fault: str) -> None:
    """If one seat leaves, the episode ends for all seats, with a score only if a limit was reached."""
    settings, expected = FAULTS[fault]
    table = Table("ListWorld-team", 3)
    first, second = table.seats
    hanging: Script = lambda request, number: Answer({"content": "hm"}, hang=True)  # noqa: E731 - a script is a function
    scripts = {first: hanging if fault == "timeout" else table.script(first, idle=True)}
    scripts[second] = table.script(second, idle=True)
    episode, traces = play("ListWorld-team", scripts, **{first: settings})
    assert episode.ok == (fault in ("limit", "timeout")), episode.errors
    assert all(expected(trace) for trace in traces.values()), [t.errors for t in traces.values()]


def test_a_server_that_fails_ends_the_episode_without_a_score() -> None:
    table = Table("ListWorld-team", 3)
    first, second = table.seats
    failing = Answer(status=400, error={"message": "no such model"})
    episode, traces = play("ListWorld-team", {first: failing, second: table.script(second)})
    assert not episode.ok
    assert [trace.rewards for trace in traces.values()] == [{}, {}]
    assert "no such model" in traces[first].last_error.message
    assert f"the seat '{first}' failed" in traces[second].last_error.message


def test_seats_play_at_once() -> None:
    table = Table("ListWorld-team", 3)
    scripts = {seat: table.script(seat) for seat in table.seats}
    episode, _ = play("ListWorld-team", scripts, max_concurrent_agents=1)
    assert "all seats of a team play concurrently" in episode.errors[0].message


def test_a_team_is_loaded_with_its_seats() -> None:
    env = load_environment("TreeWorld-manager", range(2), tools="native", oracles="S")
    assert set(env.config.agent_harnesses()) == {"manager_0", "worker_0"}
    assert {each.tools for each in env.config.agent_harnesses().values()} == {"native"}
    assert len(list(env.taskset)) == 2


def test_the_plugin_needs_a_package_for_a_team() -> None:
    config = {"taskset": {"id": PLUGIN, "world": "ListWorld-team", "stop": 1}}
    env = vf.load_environment(vf.resolve_env_config(config))
    (trace,) = play_task(env).traces
    assert "this team has the seats actor_0, closer_0" in trace.last_error.message
