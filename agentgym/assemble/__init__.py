"""Assembly: the registry, the order of wrappers, and wrapper stacks built from ids and options.

This package may import `agentgym.text`, `world`, `play` and `multi`.
"""
