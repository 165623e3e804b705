"""Assembly: the registry, the wrapper order, and the stack described by an id and its options.

This top layer of the core may import `text`, `world`, `play` and `multi`.
"""
