import agentgym
from agentgym import ToolCall, render

env = agentgym.make("ListWorld", context="programmatic")
env.reset(seed=0)
program = ToolCall("run_python", {"code": "print(6 * 7)"})
chat, *_ = env.step(render(program))
assert "42" in chat.messages[-1].text, chat.messages[-1].text
