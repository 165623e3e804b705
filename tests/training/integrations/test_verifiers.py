from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip(
    "verifiers", reason="verifiers needs openai<3, so an environment of its own: make adapters"
)

import verifiers.v1 as vf
from verifiers.v1.cli.validate import run_validate
from verifiers.v1.configs.cli.validate import ValidateConfig

import agentgym
from agentgym import Reply, tool_env
from agentgym.assemble.registry import teams, worlds
from agentgym.envs.lumina.tree_world import TreeWorld
from agentgym.oracles import NoisyPolicy, OraclePolicy
from agentgym.training.integrations import group_id
from agentgym.training.integrations.verifiers import (
    PLUGIN,
    WorldEnv,
    WorldHarness,
    WorldHarnessConfig,
    load_environment,
)
from agentgym.training.rollout import rollout
from agentgym.training.rollout.models.plain_chat import as_text
from tests.training.integrations.verifiers_runs import play_task
from tests.training.rollout.endpoint_server import Answer, Script, call, serving

IDS = [entry.id for entry in worlds()]
SMALL: dict[str, Any] = {"items": 5, "removals": 2}


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifiers.v1.runtimes.subprocess.CACHE_DIR", tmp_path)


class Twin:
    """Server that plays a copy of the env with a policy, and answers with the policy's replies."""

    def __init__(self, policy: Any, env_id: str, seed: int, **options: Any) -> None:
        self.policy, self.env = policy, agentgym.make(env_id, **options)
        self.chat, _ = self.env.reset(seed=seed)
        self.shown: list[list[dict[str, Any]]] = []
        self.said: list[str] = []

    def __call__(self, request: dict[str, Any], number: int) -> Answer:
        self.shown.append(as_text(self.chat.messages).to_openai())
        (reply,) = self.policy([self.chat])
        self.chat, *_ = self.env.step(reply.text)
        self.said.append(reply.text)
        return self.answer(reply.text)

    def answer(self, text: str) -> Answer:
        return Answer({"content": text})


class Native(Twin):
    def answer(self, text: str) -> Answer:
        reply = next(m for m in reversed(self.chat.messages) if m.role == "assistant")
        calls = [
            call(each.name, json.dumps(dict(each.arguments)), f"srv_{len(self.said)}_{k}")
            for k, each in enumerate(reply.calls)
        ]
        return Answer(
            {"content": None, "reasoning_content": f"thought {len(self.said)}", "tool_calls": calls}
        )


def one(env: vf.Env, script: Script | Answer) -> tuple[vf.Trace, list[dict[str, Any]]]:
    with serving(script) as server:
        return play_task(env, server.url).traces[0], server.requests


@pytest.mark.family(
    dialect=["json", "python"], world=[entry.world.__name__ for entry in agentgym.worlds()]
)
def test_a_policy_that_solves_the_task_gets_the_reward(world: str, dialect: Any) -> None:
    twin = Twin(OraclePolicy(world, dialect=dialect), world, 4, dialect=dialect, oracles="SP")
    trace, requests = one(load_environment(world, range(4, 5), dialect=dialect, oracles="SP"), twin)
    assert [request["messages"] for request in requests] == twin.shown
    assert not any("tools" in request for request in requests), "the rules document them"
    assert trace.ok
    assert trace.reward == 1.0
    assert trace.metrics == {
        "success": 1.0,
        "terminated": 1.0,
        "truncated": 0.0,
        "turns": float(len(requests)),
    }
    assert (trace.stop_condition, trace.is_truncated, trace.num_branches) == (
        "agent_completed",
        False,
        1,
    )
    assert [message.content for message in trace.assistant_messages] == twin.said
    assert trace.info["agentgym"]["ended"] == "world"


EDITS: list[dict[str, Any]] = [
    {"context": "clear_results", "window": 1_200},
    {"context": "compaction", "window": 1_200},
    {"context": "compaction+memory", "window": 2_000},
    {"context": "clear_thinking"},
    {"oracles": "SPH"},
    {"oracles": "S", "hint_scope": "ephemeral"},
]


class Thinker:
    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def __call__(self, chats: Sequence[Any]) -> list[Reply]:
        return [Reply(f"<think>\nwell\n</think>\n{reply.text}") for reply in self.policy(chats)]


@pytest.mark.parametrize("options", EDITS, ids=lambda options: "-".join(map(str, options.values())))
def test_edited_contexts_are_shown_edited(options: dict[str, Any]) -> None:
    options = {"nodes": 60, **options}
    seed = 1  # with this seed, the episode is long enough for every context edit
    twin = Twin(Thinker(NoisyPolicy("TreeWorld", 0.1)), "TreeWorld", seed, **options)
    trace, requests = one(load_environment("TreeWorld", range(seed, seed + 1), **options), twin)
    assert [request["messages"] for request in requests] == twin.shown
    assert trace.reward == tool_env(twin.env).world.score()
    assert trace.num_branches > 1, "each edit begins a branch"
    sampled = [node.message.content for node in trace.nodes if node.sampled]
    assert sampled == twin.said, "each reply is in the trace once"
    last = [(message.role, message.content) for message in trace.branches[-1].messages[:-1]]
    assert last == [(message["role"], message["content"]) for message in twin.shown[-1]]


def test_tasks_are_groups_of_one_spec_and_seed() -> None:
    first, second = list(load_environment("ListWorld", range(7, 9), **SMALL).taskset)
    known = [
        group_id(rollout(OraclePolicy("ListWorld"), agentgym.make("ListWorld", **SMALL), seed))
        for seed in (7, 8)
    ]
    assert [first.key, second.key] == known
    chat, _ = agentgym.make("ListWorld", **SMALL).reset(seed=7)
    assert [message.model_dump() for message in first.data.prompt] == [
        {"role": m.role, "content": m.text} for m in chat.messages
    ]
    assert (first.data.name, first.data.seed) == ("agentgym/ListWorld-v0#7", 7)


@pytest.mark.parametrize("cleared", [False, True])
def test_structured_replies_go_on_standing_as_they_came(cleared: bool) -> None:
    """Clearing the thinking preserves the calls and their ids."""
    options = dict(SMALL)
    if cleared:
        options |= {"context": "clear_thinking"}
        options["context_options"] = {"clear_thinking": {"keep": 1}}
    twin = Native(OraclePolicy("ListWorld"), "ListWorld", 3, **SMALL)
    env = load_environment("ListWorld", range(3, 4), tools="native", **options)
    trace, requests = one(env, twin)
    assert trace.reward == 1.0
    assert cleared or trace.num_branches == 1, "verifiers knows each reply again"
    assert [tool["function"]["name"] for tool in requests[0]["tools"]] == ["pop", "done"]
    _, _, older, first, newer, second = requests[2]["messages"]
    assert older.get("reasoning_content") == (None if cleared else "thought 1")
    assert newer["reasoning_content"] == "thought 2"
    for number, (reply, result) in enumerate(((older, first), (newer, second)), 1):
        assert [each["id"] for each in reply["tool_calls"]] == [f"srv_{number}_0"]
        assert result["tool_call_id"] == f"srv_{number}_0"
        assert result["content"] == "The element has been removed."


def test_calls_that_the_env_does_not_take_are_all_answered() -> None:
    two = [call("pop", "{}", "a"), call("pop", "{}", "b")]
    trace, requests = one(
        load_environment("ListWorld", range(1), **SMALL),
        Answer({"content": None, "tool_calls": two}),
    )
    reply, first, second = requests[1]["messages"][2:]
    assert (
        [each["id"] for each in reply["tool_calls"]]
        == [first["tool_call_id"], second["tool_call_id"]]
        == ["a", "b"]
    )
    assert (
        first["content"]
        == second["content"]
        == "error: this world takes one call in each reply; none was run"
    )
    assert trace.num_branches == 1


def limited(limits: dict[str, Any]) -> vf.Env:
    taskset = {"id": PLUGIN, "world": "TreeWorld", "options": {"nodes": 20}, "stop": 1}
    return vf.load_environment(vf.resolve_env_config({"taskset": taskset, "agent": limits}))


def test_a_limit_of_verifiers_truncates_with_the_score_so_far() -> None:
    trace, requests = one(limited({"max_turns": 2}), Answer({"content": "hm"}))
    assert len(requests) == 2
    assert (trace.ok, trace.stop_condition, trace.is_truncated) == (True, "max_turns", True)
    assert trace.metrics == {"success": 0.0, "terminated": 0.0, "truncated": 1.0, "turns": 2.0}
    assert trace.reward == trace.info["agentgym"]["reward"]


@pytest.mark.parametrize("limits", [{"max_turns": 2}, {"timeout": {"rollout": 1.0}}], ids=str)
def test_a_limit_without_a_score_is_an_error_without_a_reward(
    limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(world: Any) -> float:
        raise ZeroDivisionError("no score")

    monkeypatch.setattr(TreeWorld, "score", broken)
    script: Script = lambda request, number: Answer({"content": "hm"}, hang=number > 1)  # noqa: E731 - a script is a function
    trace, _ = one(limited(limits), Answer({"content": "hm"}) if "max_turns" in limits else script)
    assert (trace.ok, {*trace.rewards.values()} <= {None}) == (False, True)
    assert "no score" in trace.last_error.message


def test_a_timeout_truncates_with_the_score_so_far() -> None:
    hanging: Script = lambda request, number: Answer({"content": "hm"}, hang=number > 1)  # noqa: E731 - a script is a function
    trace, _ = one(limited({"timeout": {"rollout": 1.0}}), hanging)
    assert (trace.ok, trace.is_timeout, trace.stop_condition) == (True, True, "agent_timeout")
    assert trace.metrics == {"success": 0.0, "terminated": 0.0, "truncated": 1.0, "turns": 1.0}


def test_a_server_that_fails_is_an_error_without_a_reward() -> None:
    trace, requests = one(
        load_environment("ListWorld", range(1), **SMALL),
        Answer(status=400, error={"message": "no such model"}),
    )
    assert len(requests) == 1
    assert not trace.ok
    assert trace.rewards == {}
    assert trace.last_error.type == "ProviderError"
    assert "no such model" in trace.last_error.message


def test_what_an_episode_in_this_process_cannot_give_is_refused(tmp_path: Path) -> None:
    harness = WorldHarness(WorldHarnessConfig())
    with pytest.raises(
        ValueError,
        match=r"worlds are played in this process, not in 'docker'; set runtime\.type to 'subprocess'",
    ):
        asyncio.run(harness.setup(SimpleNamespace(config=vf.DockerConfig(image="x"))))
    (tmp_path / "prompt.txt").write_text("Be kind.")
    config = {
        "taskset": {
            "id": PLUGIN,
            "world": "ListWorld",
            "stop": 1,
            "system_prompt": tmp_path / "prompt.txt",
        }
    }
    trace, requests = one(
        vf.load_environment(vf.resolve_env_config(config)), Answer({"content": "hm"})
    )
    assert (requests, trace.ok) == ([], False)
    assert "a world has its own rules, so system_prompt cannot be set" in trace.last_error.message


def test_a_pairing_with_something_else_is_an_error() -> None:
    data = vf.TaskData(prompt="x")
    with pytest.raises(
        ValueError,
        match=r"the harness 'agentgym_verifiers' plays worlds, not a TaskData; set taskset\.id to",
    ):
        asyncio.run(WorldHarness(WorldHarnessConfig()).launch(None, None, None, "", "", {}, data))
    (task,) = load_environment("ListWorld", range(1), **SMALL).taskset
    with pytest.raises(
        ValueError,
        match=r"a world is played by the harness 'agentgym_verifiers'; omit harness\.id",
    ):
        asyncio.run(task.world_score(SimpleNamespace(info={}, nodes=["a message"])))


@pytest.mark.family(world=[*IDS, *(entry.id for entry in teams())])
def test_verifiers_own_validation_passes(world: str, tmp_path: Path) -> None:
    """The oracle policy solves each task, and an empty trace does not."""
    taskset = {"id": PLUGIN, "world": world, "stop": 1}
    config = {"taskset": taskset, "runtime": {"type": "subprocess"}, "output_dir": tmp_path}
    rows = asyncio.run(run_validate(ValidateConfig.model_validate({**config, "rich": False})))
    assert [(row["gold"]["valid"], row["noop"]["reward"]) for row in rows] == [(True, 0.0)]


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="there is no world 'MistWorld'"):
        load_environment("MistWorld", range(1))
    with pytest.raises(ValueError, match="'colour'"):
        load_environment("ListWorld", range(1), colour="red")
    with pytest.raises(
        ValueError, match=r"seeds must be a range with step 1, got range\(0, 9, 2\)"
    ):
        load_environment("ListWorld", range(0, 9, 2))
    env = vf.load_environment(vf.resolve_env_config({"taskset": {"id": PLUGIN}}))
    with pytest.raises(ValueError, match=r"there is no world ''; worlds: .*GridWorld"):
        list(env.taskset)


def test_the_plugin_brings_its_env_and_harness() -> None:
    config = vf.resolve_env_config({"taskset": {"id": PLUGIN, "world": "ListWorld"}})
    assert isinstance(vf.load_environment(config), WorldEnv)
    assert config.agent_harnesses()["agent"].id == PLUGIN
    assert len(list(load_environment().taskset.take(3))) == 3
