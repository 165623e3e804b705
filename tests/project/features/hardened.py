"""Check that the system sandbox works, or fails for a reason other than a missing package."""

from agentgym.sandboxes import SandboxUnavailable, workbench

reason = ""
try:
    workbench.check()
except SandboxUnavailable as error:
    reason = str(error)
assert "pip install" not in reason, reason
