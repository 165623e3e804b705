import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import collect

spec = agentgym.spec("SearchWorld", search_by="wordllama")
(played,) = collect(OraclePolicy("SearchWorld"), spec, [0])
assert played.reward == 1.0
