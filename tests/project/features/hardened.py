"""Programs in the system sandbox, if the host allows it."""

from agentgym.sandboxes import SandboxUnavailable, workbench

reason = ""
try:
    workbench.check()
except SandboxUnavailable as error:
    reason = str(error)
assert "pip install" not in reason, reason
