"""Worlds on an OpenEnv server, played by verifiers' own `openenv` taskset.

The client of `openenv` and our server require different releases of mcp. The server therefore runs
with another Python, which `make adapters` sets.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "verifiers", reason="verifiers needs openai<3, so an environment of its own: make adapters"
)

import verifiers.v1 as vf

import agentgym
from agentgym.oracles import OraclePolicy
from tests.training.integrations.openenv_server import serving_command
from tests.training.integrations.verifiers_runs import play_task
from tests.training.rollout.endpoint_server import Answer, serving

PYTHON = os.environ.get("AGENTGYM_OPENENV_PYTHON", "")
pytestmark = pytest.mark.skipif(
    not PYTHON, reason="AGENTGYM_OPENENV_PYTHON names no Python: make adapters"
)
SMALL: dict[str, Any] = {"items": 5, "removals": 2}


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifiers.v1.runtimes.subprocess.CACHE_DIR", tmp_path)


def play(url: str, script: Any) -> vf.Trace:
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    taskset = {"id": "openenv", "base_url": url, "resets": [{"seed": 3}]}
    env = vf.load_environment(vf.resolve_env_config({"taskset": taskset, "player": agent}))

    with serving(script) as server:
        episode = play_task(env, server.url)
    assert episode.ok, episode.errors or episode.traces[0].errors
    return episode.traces[0]


class Player:
    """Server that plays the same instance, and checks that the observations form the same chat."""

    def __init__(self, world: str, policy: Any, **options: Any) -> None:
        self.policy, self.env = policy, agentgym.make(world, **options)
        self.chat, _ = self.env.reset(seed=3)
        self.seen: list[dict[str, Any]] = []

    def __call__(self, request: dict[str, Any], number: int) -> Answer:
        shown = json.loads(request["messages"][-1]["content"])
        observation = shown["observation"]
        assert shown["action_schema"]["required"] == ["text"]
        self.seen[observation["keep"] :] = observation["messages"]
        assert self.seen == self.chat.to_openai()
        text = self.policy([self.chat])[0].text
        self.chat, *_ = self.env.step(text)
        return stream(text)


def stream(text: str) -> Answer:
    """Return a reply as the server-sent events that the `null` harness expects."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    chunks = [json.dumps({**head, "choices": [each]}) for each in (choice, end)]
    body = "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"])
    return Answer(body=body, headers={"Content-Type": "text/event-stream"})


# verifiers starts a process for each turn, so the episodes are short.
@pytest.mark.parametrize(
    ("world", "options"),
    [
        ("ListWorld", {**SMALL, "oracles": "SP"}),
        ("ListWorld", {**SMALL, "context": "clear_results:trigger=1uses:keep=0"}),
    ],
)
def test_the_oracle_policy_solves_a_served_stack(world: str, options: dict[str, Any]) -> None:
    player = Player(world, OraclePolicy(world), **options)
    chosen = " ".join(f"--set {name}={value}" for name, value in options.items())
    command = f"agentgym serve --openenv {world} --http 127.0.0.1:8000 {chosen}"
    with serving_command(command, PYTHON) as url:
        trace = play(url, player)
    assert trace.rewards["openenv_reward"].score == 1.0
