from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym import Chat, Reply, make
from agentgym.oracles import NoisyPolicy, OraclePolicy, TeamPolicy
from agentgym.training.rollout import Trajectory, TrajectoryLog, rollout

# a string that would run a script if the page treated it as markup
HOSTILE = (
    "</script><script>document.title = 'taken'</script><!-- <script> \u2028\u2029 & &lt; "
    "<img src=x onerror=\"document.title='taken'\"> \ud800 ]]> \x00 'x' `${1}`"
)


def hostile_policy(chats: Sequence[Chat]) -> list[Reply]:
    call = '<tool_call>{"name": "pop", "arguments": {"id": "%s"}}</tool_call>'
    argument = HOSTILE.encode("unicode_escape").decode().replace("\\", "\\\\").replace('"', "'")
    return [
        Reply(f"<think>{HOSTILE}</think>{HOSTILE}" + call % argument.replace("\\x00", ""))
        for _ in chats
    ]


def played(
    policy: Any = None, seed: int = 0, env_id: str = "ListWorld", **options: Any
) -> Trajectory:
    if env_id == "ListWorld":
        options = {"items": 8, "removals": 5, **options}
    env = make(env_id, labels=True, **options)
    return rollout(policy or OraclePolicy(env_id), env, seed, {"policy": "oracle"})


def write_run(folder: Path) -> Path:
    log = TrajectoryLog(folder / "trajectories.jsonl")
    episodes = [
        played(),
        played(NoisyPolicy("ListWorld", p=0.5)),
        played(
            items=14, removals=11, oracles="SP", context="clear_results+compaction", window=1_500
        ),
        played(hostile_policy, seed=3, max_failed_rounds=2),
        rollout(TeamPolicy("ListWorld-team"), make("ListWorld-team", labels=True), 2),
    ]
    with log.writing():
        log.append(*(episode.to_json() for episode in episodes))
    return folder
