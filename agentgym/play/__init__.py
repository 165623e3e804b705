"""The env that plays any world, with its error guard, spaces and rendering.

This package may import `agentgym.text` and `agentgym.world`.
"""
