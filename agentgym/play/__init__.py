"""Play: the env that plays any world, its error guard, spaces and rendering.

This package may import `agentgym.text` and `agentgym.world`.
"""
