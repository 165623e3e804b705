"""Text: messages, tools, schemas, parsing, prompts and tokens.

This package imports no other package of agentgym.
"""
