"""Assembly: the registry, the wrapper order, and the stack described by an id and its options.

The top layer of the core. It may import `text`, `world`, `play` and `multi`.
"""
