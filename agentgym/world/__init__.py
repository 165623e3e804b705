"""Worlds: the base class, configurations, splits, digests and step info.

This package may import `agentgym.text`.
"""
