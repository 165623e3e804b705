"""Call an OpenAI-compatible endpoint, which is not available in this test."""

import agentgym
from agentgym.training.rollout import EndpointConfig, EndpointError, EndpointPolicy

config = EndpointConfig("model", "http://127.0.0.1:9/v1", retries=0)
chat, _ = agentgym.make("ListWorld").reset(seed=0)
said = ""
try:
    EndpointPolicy(config)([chat])
except EndpointError as error:
    said = str(error)
assert "127.0.0.1" in said, "there is no such server"
