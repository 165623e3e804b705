import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.papers.reasoning_graph import graph_of
from agentgym.training.rollout import collect

(played,) = collect(OraclePolicy("SearchWorld"), agentgym.spec("SearchWorld"), [0])
assert graph_of(played)
