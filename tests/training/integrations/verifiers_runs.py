"""One episode played by verifiers' own code, for tests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

vf: Any = pytest.importorskip(
    "verifiers.v1", reason="verifiers needs openai<3, so an environment of its own: make adapters"
)

KEY = "AGENTGYM_TEST_KEY"  # the variable is not set, so a placeholder key is sent
NOWHERE = "http://127.0.0.1:9/v1"


def play_task(env: Any, url: str = NOWHERE, client: Any = None) -> Any:
    async def run() -> Any:
        (task,) = env.taskset
        async with env.serving():
            endpoint = client or vf.EvalClientConfig(base_url=url, api_key_var=KEY)
            context = vf.ModelContext(model="m", client=endpoint)
            return await env.run_slot(env.slots(task)[0], context)

    return asyncio.run(run())
