"""Worlds: the base class, configurations, splits, digests and step info.

The core's second layer, which may import `text`.
"""
