"""Clients of chat-completions endpoints and of the Anthropic Messages API."""
