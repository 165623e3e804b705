"""Teams: worlds played by several agents.

It may import `text`, `world` and `play`.
"""
