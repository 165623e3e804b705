"""Call a Messages API endpoint, which is not available in this test."""

import agentgym
from agentgym.training.rollout import AnthropicConfig, AnthropicPolicy, EndpointError

config = AnthropicConfig("model", "http://127.0.0.1:9/v1", retries=0)
chat, _ = agentgym.make("ListWorld").reset(seed=0)
said = ""
try:
    AnthropicPolicy(config)([chat])
except EndpointError as error:
    said = str(error)
assert "127.0.0.1" in said, "there is no such server"
