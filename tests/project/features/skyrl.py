import skyrl_gym

from agentgym.training.integrations.skyrl import prompts, register

register("list", "ListWorld")
row = prompts("list", [0])[0]
prompt, name = row.pop("prompt"), row.pop("env_class")
env = skyrl_gym.make(name, env_config={}, extras={**row, "max_turns": 100})
assert env.init(prompt)
