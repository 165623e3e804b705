"""Teams: worlds played by several agents.

This layer may import `text`, `world` and `play`.
"""
