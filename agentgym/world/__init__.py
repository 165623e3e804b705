"""Worlds: the base class, configurations, splits, digests and step info.

The second floor. It may import `text`.
"""
