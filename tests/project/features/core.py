import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import collect

spec = agentgym.spec("ListWorld", oracles="SP", context="compaction+memory+awareness", window=3_000)
(played,) = collect(OraclePolicy("ListWorld"), spec, [0])
assert played.reward == 1.0
