import ray

import agentgym
from agentgym.oracles import OraclePolicy
from agentgym.training.rollout import Ray, collect

options = {"include_dashboard": False, "log_to_driver": False, "_node_ip_address": "127.0.0.1"}
ray.init("local", num_cpus=1, **options)
spec = agentgym.spec("ListWorld")
(played,) = collect(OraclePolicy("ListWorld"), spec, [0], engine=Ray(workers=1))
assert played.reward == 1.0
ray.shutdown()
