"""Clients for Chat Completions, Responses and Anthropic Messages endpoints."""
