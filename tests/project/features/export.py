from pathlib import Path

import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.integrations import to_chat_rows, write_rows
from agentgym.training.rollout import collect

played = collect(OraclePolicy("ListWorld"), agentgym.spec("ListWorld"), range(2))
rows = [row for trajectory in played for row in to_chat_rows(trajectory)]
for kind in ("jsonl", "parquet"):
    assert write_rows(rows, Path(f"rows.{kind}"), kind) == len(rows)
