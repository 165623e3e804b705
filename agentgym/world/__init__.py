"""Worlds: the base class, configurations, splits, digests and step info.

This second layer of the core may import `text`.
"""
