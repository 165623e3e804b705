"""Play: the env that plays any world, its error guard, spaces and rendering.

The core's third layer, which may import `text` and `world`.
"""
