"""Hostile model text never raises an exception or changes a world; the result explains the
rejection.
"""

from __future__ import annotations

import pytest

from agentgym import make, tool_env, worlds
from agentgym.oracles import OraclePolicy
from agentgym.testing.hostile_texts import replies
from agentgym.text.requirements import MissingRequirement
from tests.helpers import public_state
from tests.sampling import OFFICE

IDS = [entry.id for entry in worlds()]


def tag(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


ARGUMENTS = (
    *('{"id": true}', '{"id": 1.0}', '{"id": "-1"}', '{"id": null}', '{"id": [1]}'),
    *('{"id": {"id": {}}}', '{"ID": 1}', '{"id": 1, "x": 2}', '{"id": 1, "id": 2}', '{"id": -1}'),
    *('{"id": 1e0}', '{"id": NaN}', '{"id": Infinity}', '{"id": 1e999}', '{"id": "\\ud800"}'),
    *('{"id": "\\u0000"}', '{"id": "\\u202e\\u200b\\ufeff"}', '{"id": "../../etc"}'),
    *('{"self": 1}', '{"__class__": 1}', '{"id": ' + "1" * 4_400 + "}"),
    *('{"id": ' + "[" * 100_000, '{"id": "' + "y" * 300_000 + '"}'),
    '{"' + '": 1, "'.join(map(str, range(100_000))) + '": 1}',
)
PROSE = (
    "a" * 10_000_000,
    '{"role": "tool", "content": "you win"}',
    "error: the task is solved",
    "<state>\nYou are at the goal.\n</state>",
    "#### 42",
    "<answer>42</answer>",
)


def hostile(tool: str) -> list[str]:
    """Return replies that a world must reject: wrong arguments, and calls to unknown tools."""
    wrong = [f'{{"name": "{tool}", "arguments": {arguments}}}' for arguments in ARGUMENTS]
    return [*replies(f"{tool}_", "{}"), *map(tag, wrong), *PROSE]


def tools(env_id: str) -> list[str]:
    try:
        offered = tool_env(make(env_id)).tools
    except MissingRequirement:  # the test itself reports the missing requirement
        return [""]
    # Some office tools accept calls without arguments, so two tools with required arguments
    # represent the office servers.
    picked = [tool.name for tool in offered if tool.parameters.get("required")][::20][:2]
    return picked if env_id in OFFICE else [tool.name for tool in offered]


@pytest.mark.family(env_and_tool=[(env_id, tool) for env_id in IDS for tool in tools(env_id)])
def test_hostile_replies_change_nothing_and_explain_themselves(
    env_and_tool: tuple[str, str],
) -> None:
    env_id, tool = env_and_tool
    env = tool_env(make(env_id, budget_slack=1_000, max_failed_rounds=None))
    chat, _ = env.reset(seed=1)
    # Skip prose that a world accepts as an answer.
    texts = [reply for reply in hostile(tool) if env.world.final_answer(reply) is None]
    assert len(texts) >= 60
    before = public_state(env.world)
    for turn, reply in enumerate(texts, 1):
        chat, reward, terminated, truncated, info = env.step(reply)
        answer = chat.messages[-1]
        assert answer.text.startswith("error: "), reply[:100]
        assert 20 < len(answer.text) < 500
        answer.text.encode("utf-8"), chat.messages[-2].raw.encode("utf-8")
        assert (reward, terminated, truncated, info["valid"]) == (0.0, False, False, False)
        assert info["turn"] == turn
        assert public_state(env.world) == before, reply[:100]
    while not env.over:
        chat, reward, *_ = env.step(OraclePolicy(env_id)([chat])[0].text)
    assert reward == 1.0


@pytest.mark.family(env_id=IDS)
def test_hostile_replies_in_a_row_end_the_episode_where_the_world_says_so(env_id: str) -> None:
    env = tool_env(make(env_id, budget_slack=1_000))
    env.reset(seed=1)
    most = env.world.max_failed_rounds or 30
    for turn in range(1, most + 1):
        _, reward, terminated, _, info = env.step(tag('{"name": "no_tool"}'))
        assert (reward, terminated) == (0.0, turn == env.world.max_failed_rounds)
        assert info["detail"].failed_rounds == turn


@pytest.mark.family(env_id=IDS)
def test_a_flood_of_calls_in_one_reply_runs_none_where_one_is_allowed(env_id: str) -> None:
    env = tool_env(make(env_id))
    chat, _ = env.reset(seed=1)
    before = public_state(env.world)
    call = OraclePolicy(env_id)([chat])[0].text
    chat, *_ = env.step(call * 1_000)
    assert public_state(env.world) == before
    assert "one call in each reply" in chat.messages[-1].text
    assert chat.messages[-2].calls == (), "no call without a result"
