from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from agentgym import make, tool_env, worlds
from agentgym.office.office import SERVERS, Office
from agentgym.oracles import OraclePolicy
from agentgym.play.env import ToolEnv
from agentgym.testing.replies import ReplyGenerator
from agentgym.text.parsing import parse
from agentgym.text.tools import Tool, ToolError, tools_of
from tests.helpers import needs_workbench, public_state
from tests.sampling import OFFICE

# Tools that start a process, which takes 0.1 s per call, so only a few calls are drawn.
PROGRAMS = ("run_command", "execute_command", "python_execute")


def calls_of(tool: Tool, generator: ReplyGenerator, count: int) -> Iterator[Mapping[str, Any]]:
    yield {}
    yield {"no_such_argument": 1}
    for _ in range(count):
        for call in parse(generator.write([tool]), "json").calls:
            yield call.arguments


def check(tool: Tool, env: ToolEnv, generator: ReplyGenerator, count: int) -> int:
    refused = 0
    start = env.snapshot()
    for arguments in calls_of(tool, generator, count):
        before = pickle.dumps(public_state(env.world))
        try:
            env.call(tool.name, arguments)
        except ToolError:
            refused += 1
            assert pickle.dumps(public_state(env.world)) == before, (tool.name, arguments)
        else:
            env.restore(start)
    return refused


def generator_for(name: str, *texts: str) -> ReplyGenerator:
    generator = ReplyGenerator(np.random.default_rng(list(name.encode())), "json")
    for text in texts:
        generator.vocabulary.read(text)
    return generator


def played(env_id: str) -> ToolEnv:
    env = tool_env(make(env_id, max_failed_rounds=None, on_fault="raise"))
    chat, _ = env.reset(seed=4)
    policy = OraclePolicy(env_id)
    for _ in range(2):
        chat = env.step(policy([chat])[0].text)[0]
        if env.over:  # the first answer ends the episode
            chat, _ = env.reset(seed=4)
    return env


@pytest.mark.family(env_id=[entry.id for entry in worlds()])
def test_a_refused_call_changes_nothing(env_id: str) -> None:
    env, rng = played(env_id), random.Random(env_id)
    generator = generator_for(env_id, *(message.text for message in env.chat.messages))
    tools = [tool for tool in env.tools if tool.name not in PROGRAMS and not tool.final]
    picked = rng.sample(tools, 12) if env_id in OFFICE else tools * 5
    assert sum(check(tool, env, generator, 8) for tool in picked) >= len(picked)


@pytest.mark.exhaustive
@pytest.mark.parametrize("env_id", [entry.id for entry in worlds()])
def test_no_refused_call_of_any_tool_changes_anything(env_id: str) -> None:
    env = played(env_id)
    generator = generator_for(env_id, *(message.text for message in env.chat.messages))
    for tool in env.tools:
        if not tool.final:
            check(tool, env, generator, 3 if tool.name in PROGRAMS else 60)


@pytest.mark.parametrize("name", SERVERS)
def test_a_refused_call_of_an_empty_server_changes_nothing(name: str) -> None:
    if name in ("terminal", "python_execute"):
        needs_workbench()
    generator, office = generator_for(name), Office([name])
    for tool_name, bound in tools_of(office.toolsets()[0]).items():
        count = 1 if tool_name in PROGRAMS else 8
        for arguments in calls_of(bound.schema, generator, count):
            before, clock = pickle.dumps(office), office.context.clock.now()
            try:
                office.call(tool_name, arguments)
            except ToolError:
                assert pickle.dumps(office) == before, (tool_name, arguments)
                assert office.context.clock.now() == clock
