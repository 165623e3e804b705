"""Text: messages, tools, schemas, parsing, prompts and tokens.

This lowest layer imports nothing else from agentgym.
"""
