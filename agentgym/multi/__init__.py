"""Teams: worlds played by several agents.

This package may import `agentgym.text`, `agentgym.world` and `agentgym.play`.
"""
