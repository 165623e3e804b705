from agentgym.training.integrations.mcp import build_server, http_app, open_episode

assert build_server(open_episode("ListWorld", 0))
assert http_app([open_episode("ListWorld", 0)])
