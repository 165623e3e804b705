"""Assembly: the registry, the wrapper order, and the stack described by an id and its options.

The core's top layer, which may import `text`, `world`, `play` and `multi`.
"""
