from agentgym import parallel_env

env = parallel_env("ListWorld-team")
observations, _ = env.reset(seed=0)
assert set(observations) == set(env.agents)
