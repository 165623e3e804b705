from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.error import ResetNeeded

import agentgym
from agentgym import Chat, Reply, parse
from agentgym.assemble.recorded_specs import make_recorded
from agentgym.assemble.registry import teams
from agentgym.oracles import NoisyPolicy, TeamPolicy
from agentgym.play.policy import PolicyError
from agentgym.training import integrations
from agentgym.training.evaluation.scoring import score
from agentgym.training.integrations.common import growing_spec, mcp_env
from agentgym.training.rollout import PolicyConfig, collect, replay, rollout
from tests.training.integrations.openenv_server import serving as serving_openenv
from tests.training.rollout.endpoint_server import Answer, serving

# Other libraries use deprecated functions, and leave streams and event loops open.
pytestmark = pytest.mark.filterwarnings("ignore")
SEED = 3
TEAM = "PursuitWorld-match"
SEAT: dict[str, Any] = {"seat": "evader_0", "opponents": {"pursuer_0": "noisy:p=0.3"}}
# Opponents, named as `package.module:policy`, that end the episode in different ways.
BROKEN, FATAL, SILENT, LEAVING = (
    f"{__name__}:{name}" for name in ("broken", "fatal", "silent", "leaving")
)


def broken(chats: list[Chat]) -> list[Reply]:
    raise RuntimeError("no such model")


def fatal(chats: list[Chat]) -> list[Reply]:
    error = PolicyError("the key is wrong")
    error.fatal = True  # type: ignore[misc]
    raise error


def silent(chats: list[Chat]) -> list[Reply]:
    return [Reply("Hm.") for _ in chats]


def leaving(chats: list[Chat]) -> list[Reply]:
    return [Reply("", ended="over_window") for _ in chats]


def against(name: str, seat: str = "evader_0") -> Any:
    rival = {"evader_0": "pursuer_0", "pursuer_0": "evader_0"}[seat]
    return agentgym.make(TEAM, seat=seat, opponents={rival: name})


def play_openenv(replies: list[str], folder: Path) -> float:
    pytest.importorskip("openenv", "0.10")
    bridge = integrations.openenv
    app = bridge.create_app([bridge.Stack(TEAM, SEAT)])
    with serving_openenv(app) as url, closing(bridge.RemoteEnv(url)) as env:
        env.reset(seed=SEED)
        outcomes = [env.step(text) for text in replies]
    return outcomes[-1][1]


def play_inspect(replies: list[str], folder: Path) -> float:
    pytest.importorskip("inspect_ai")
    tests: Any = importlib.import_module("tests.training.integrations.test_inspect_tasks")
    said = iter(replies)
    answer = lambda messages: tests.ModelOutput.from_content("mockllm", next(said))  # noqa: E731
    log = tests.run(tests.world(TEAM, seeds=1, start=SEED, **SEAT), answer, folder)
    (played,) = tests.read_log(Path(log.location))
    assert [step.reply.text for step in played.steps] == replies
    return float(log.results.scores[0].metrics["mean"].value)


def play_verifiers(replies: list[str], folder: Path) -> float:
    pytest.importorskip("verifiers.v1")
    runs: Any = importlib.import_module("tests.training.integrations.verifiers_runs")
    env = integrations.verifiers.load_environment(TEAM, range(SEED, SEED + 1), **SEAT)
    said = iter(replies)
    with serving(lambda request, number: Answer({"content": next(said)})) as server:
        (trace,) = runs.play_task(env, server.url).traces
    assert trace.metrics["turns"] == len(replies)
    return float(trace.reward)


def play_skyrl(replies: list[str], folder: Path) -> float:
    skyrl_gym: Any = pytest.importorskip("skyrl_gym")
    integrations.skyrl.register("seat", TEAM, **SEAT)
    env = skyrl_gym.make("seat", extras={"seed": SEED})
    env.init([])
    steps = [env.step(text) for text in replies]
    del skyrl_gym.registry["seat"]
    assert [step["done"] for step in steps] == [False] * (len(replies) - 1) + [True]
    return float(steps[-1]["reward"])


def play_trl_tools(replies: list[str], folder: Path) -> float:
    pytest.importorskip("trl")
    environment: Any = integrations.trl.environment_factory(TEAM, **SEAT)()
    environment.reset(seed=SEED)
    for text in replies:
        for call in parse(text, "auto").calls:
            getattr(environment, call.name)(**call.arguments)
    assert environment._over
    return float(environment.get_reward())


def play_trl_rollouts(replies: list[str], folder: Path) -> float:
    pytest.importorskip("trl")
    tests: Any = importlib.import_module("tests.training.integrations.test_trl")
    said = iter(replies)
    engine = tests.Engine(tests.make_trl_tokenizer(), lambda prompt: next(said))
    play = integrations.trl.rollout_func(agentgym.spec(TEAM, **SEAT))
    output = play([[{"role": "user", "content": "", "seed": SEED}]], engine)
    assert output["env_facts"][0]["turns"] == len(replies)
    return float(output["env_reward"][0])


def play_verl(replies: list[str], folder: Path) -> float:
    pytest.importorskip("verl")
    tests: Any = importlib.import_module("tests.training.integrations.test_verl")
    tokenizer = tests.make_tokenizer(
        [*replies, agentgym.make(TEAM).reset(seed=SEED)[0].to_text()], 900
    )
    loop = {"name": "seat", "_target_": "agentgym.training.integrations.verl.WorldAgentLoop"}
    tests.save(tokenizer, folder, json.dumps([{**loop, "env_id": TEAM, "options": SEAT}]))
    said = iter(replies)
    engine = tests.Engine(tokenizer, lambda chats: [Reply(next(said))], TEAM, SEED, **SEAT)
    worker = tests.AgentLoopWorker(tests.configured(folder), engine)
    rows = tests.rows("seat", TEAM, SEED, **SEAT)
    batch = asyncio.run(worker.generate_sequences(rows))
    assert batch.non_tensor_batch["turns"].tolist() == [len(replies)]
    return float(batch.batch["rm_scores"].sum())


PLAYERS: dict[str, Callable[[list[str], Path], float]] = {
    "openenv": play_openenv,
    "inspect_tasks": play_inspect,
    "verifiers": play_verifiers,
    "skyrl": play_skyrl,
    "trl, environment_factory": play_trl_tools,
    "trl, rollout_func": play_trl_rollouts,
    "verl": play_verl,
}


@pytest.mark.parametrize("bridge", PLAYERS)
def test_every_bridge_plays_a_seat(bridge: str, tmp_path: Path) -> None:
    """A policy that gives the same replies through a bridge earns the same reward."""
    policy = TeamPolicy(TEAM, NoisyPolicy(TEAM, 0.3))
    expected = rollout(policy, agentgym.make(TEAM, **SEAT), SEED)
    assert expected.reward not in (0.0, 1.0), "the others' moves count"
    replies = [step.reply.text for step in expected.steps]
    assert PLAYERS[bridge](replies, tmp_path) == pytest.approx(expected.reward)


def test_all_bridges_are_tested() -> None:
    tested = {name.partition(",")[0] for name in PLAYERS}
    assert tested == integrations._EXTRAS.keys() - {"mcp", "renderers"}


@pytest.mark.family(team=[entry.id for entry in teams()])
def test_a_seat_plays_like_the_same_seat_of_a_whole_team(team: str) -> None:
    policy = PolicyConfig("noisy:p=0.2").make(team)
    whole = rollout(policy, agentgym.make(team, labels=True), SEED)
    for seat, steps in whole.by_agent().items():
        others = [each for each in whole.seat_rewards() if each != seat]
        opponents = dict.fromkeys(others, "noisy:p=0.2")
        spec = agentgym.spec(team, labels=True, seat=seat, opponents=opponents)
        (played,) = collect(policy, spec, [SEED], labels={"world": "", "arm": "", "horizon": 1})
        assert [step.chat for step in played.steps] == [whole.steps[k].chat for k in steps]
        assert [step.reply for step in played.steps] == [whole.steps[k].reply for k in steps]
        assert [step.info.get("optimal") for step in played.steps] == [
            whole.steps[k].info.get("optimal") for k in steps
        ]
        assert played.seat_rewards() == whole.seat_rewards()
        assert played.outcomes() == whole.outcomes()
        assert played.reward == whole.seat_rewards()[seat]
        assert played.reward_of(seat) == pytest.approx(whole.reward_of(seat))
        winners = whole.steps[-1].info["detail"]["report"]["team"].get("winners")
        won = whole.steps[-1].info["success"] if winners is None else seat in winners
        assert score(played).success == won
        assert replay(played) == played


def test_a_fault_of_a_frozen_policy_is_reported_as_its_own() -> None:
    env = against(BROKEN, "pursuer_0")
    chat, _ = env.reset(seed=SEED)
    _, reward, terminated, truncated, info = env.step(TeamPolicy(TEAM)([chat])[0].text)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["detail"].ended == "fault"
    assert info["detail"].invalid == (
        "the policy of the frozen seat 'evader_0' failed: policy broken raised "
        "RuntimeError: no such model"
    )
    assert env.reset(seed=SEED)[0] == chat, "the next episode is not affected"
    env = against(FATAL, "pursuer_0")
    chat, _ = env.reset(seed=SEED)
    with pytest.raises(PolicyError, match="the key is wrong"):
        env.step(TeamPolicy(TEAM)([chat])[0].text)
    with pytest.raises(ResetNeeded):
        env.step("Hm.")


@pytest.mark.parametrize(
    ("name", "ended"), [(SILENT, "max_turns"), (LEAVING, "over_window"), (BROKEN, "fault")]
)
def test_others_may_end_the_episode_before_the_first_turn(name: str, ended: str) -> None:
    for end in ("step", "truncate"):
        env = against(name)
        env.reset(seed=SEED)
        _, reward, terminated, truncated, info = getattr(env.unwrapped, end)("Hm.")
        assert (terminated, truncated) == (False, True)
        assert info["detail"].ended == ended
        assert reward == info["detail"].report["team"]["rewards"]["evader_0"]
        with pytest.raises(ResetNeeded):
            getattr(env.unwrapped, end)("Hm.")


def test_wrong_replies_end_the_episode_without_an_error() -> None:
    env = against("oracle")
    _, info = env.reset(seed=SEED)
    with pytest.raises(TypeError):
        env.step(None)
    over = False
    while not over:
        _, reward, terminated, truncated, info = env.step('{"name": "\ud800"')
        over = terminated or truncated
    assert (reward < 0.1, terminated, info["detail"].ended) == (True, False, "max_turns")
    assert info["detail"].report["team"]["winners"] == ["pursuer_0"]


def test_gymnasium_makes_vectors_and_features_of_seats() -> None:
    vector = gymnasium.make_vec(
        f"agentgym/{TEAM}-v0", num_envs=2, vectorization_mode="sync", **SEAT
    )
    chats, _ = vector.reset(seed=SEED)
    assert {chat.agent for chat in chats} == {"evader_0"}
    features = agentgym.wrappers.FeatureObservations(
        agentgym.wrappers.DiscreteActions(agentgym.make(TEAM, **SEAT))
    )
    observation, _ = features.reset(seed=SEED)
    assert features.observation_space.contains(observation)
    assert features.get_wrapper_attr("action_masks")().any()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "opponents={'player_1': 'oracle'}"),
        ({**SEAT, "seat": "player_0"}, "seat must be one of pursuer_0, evader_0, got 'player_0'"),
        ({**SEAT, "seat": "pursuer_0"}, "must not contain 'pursuer_0', the seat of this env"),
        ({"seat": "evader_0"}, "the seat 'pursuer_0' has no policy"),
        ({**SEAT, "opponents": {"pursuer_0": "expert"}}, "there is no policy 'expert'"),
    ],
)
def test_wrong_seats_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        gymnasium.make(agentgym.assemble.registry.one_agent_spec(TEAM, **options))


def test_what_cannot_play_a_seat_refuses_it() -> None:
    worker = {"seat": "worker_0", "opponents": {"manager_0": "oracle"}}
    with pytest.raises(ValueError, match="TRL keeps the history, and worker_0 starts several chat"):
        growing_spec("TRL", "train with rollout_func", "TreeWorld-manager", worker)
    with pytest.raises(ValueError, match="a team requires turns, which MCP does not have"):
        mcp_env(agentgym.make(TEAM, **SEAT))
    # Loading a log must not run the policies that it names.
    with pytest.raises(ValueError, match="if you trust it"):
        make_recorded(agentgym.spec(TEAM, **SEAT).to_json())
