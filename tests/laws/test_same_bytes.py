"""Check that seeds reproduce the instance keys and prompts in `same_bytes.tsv`.

A key that changes moves instances between the splits. After an intended change, run
`python -m tests.laws.test_same_bytes`, and mention the change in CHANGELOG.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym import make, tool_env, worlds
from agentgym.envs.loca.task import OfficeTask
from agentgym.world.digests import digest

# `tests/envs/loca/test_same_bytes.py` covers the offices, whose keys include files with library bytes.
IDS = [entry.id for entry in worlds() if not issubclass(entry.world, OfficeTask)]
TABLE = Path(__file__).with_name("same_bytes.tsv")


def row(env_id: str) -> list[str]:
    env = make(env_id)
    chat, _ = env.reset(seed=0)
    texts = [message.text for message in chat.messages]
    return [env_id, tool_env(env).world.instance_key(), digest(texts)]


@pytest.mark.parametrize("env_id", IDS)
def test_seeds_keep_their_keys_and_prompts(env_id: str) -> None:
    recorded = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()]
    assert row(env_id) in recorded


if __name__ == "__main__":
    lines = ["\t".join(row(env_id)) + "\n" for env_id in IDS]
    TABLE.write_text("".join(lines), encoding="utf-8")
