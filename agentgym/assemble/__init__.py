"""Assembly: the registry, the order of wrappers and the stack that an id and its options describe.

The top floor of the core. It may import `text`, `world`, `play` and `multi`.
"""
