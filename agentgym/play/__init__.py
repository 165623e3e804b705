"""Play: the env that plays any world, its error guard, spaces and rendering.

This third layer of the core may import `text` and `world`.
"""
