import agentgym

chat, _ = agentgym.make("MultimodalWorld", render="scene").reset(seed=0)
assert agentgym.make("ListWorld", render_mode="rgb_array")
