from agentgym import spec
from agentgym.training.integrations.trl import environment_factory, prompts, rollout_func

assert environment_factory("ListWorld")().reset(**prompts("ListWorld", [0])[0])
assert rollout_func(spec("ListWorld"))
