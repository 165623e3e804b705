"""Play: the env that plays any world, its error guard, spaces and rendering.

The third floor. It may import `text` and `world`.
"""
